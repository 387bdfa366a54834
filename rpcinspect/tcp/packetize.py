"""Bytes that passed over a socket -> the Ethernet frames that a capture of the loopback could hold.

In: the two ends of a connection, and what each of them sent, in order unless the place of bytes is told. Out:
frames with the headers of Ethernet, IPv4 or IPv6 and TCP: the three segments of the opening, data with the
sequence numbers and acknowledgements that belong to it, the three segments of the end. Nothing is sent twice,
and nothing acknowledged that has not been sent; who really ended the connection, how the system cut the bytes
into segments and when it acknowledged them, nobody knows who has only the socket. Checksums are right, so
that a reader that looks at them is content.

Mirrors RFC 791, 8200 and 9293.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterator

HostPort = tuple[str, int]
"""(host, port); the host is a numeric address without brackets."""

LINK_TYPE = 1
"""Ethernet, as captures of the loopback have it on Linux: with addresses of zeros."""
FIN, SYN, PSH, ACK = 1, 2, 8, 16

MAX_PAYLOAD = 65_476
"""Of one segment: what the headers of IPv6 and TCP leave of the 65,536 bytes of the loopback's packets."""
WINDOW, WINDOW_SCALE = 0xFFFF, 14
"""The largest that there are: 1 GiB may be on its way before a reader of the capture would wonder."""
SYN_OPTIONS = struct.pack(">BBHBBBB", 2, 4, MAX_PAYLOAD, 1, 3, 3, WINDOW_SCALE)
"""Maximum segment size, no-op, window scale."""

_TCP = struct.Struct(">HHIIBBHHH")
_IPV4 = struct.Struct(">BBHHHBBH")
_ETHERTYPE_IPV4, _ETHERTYPE_IPV6 = b"\x08\x00", b"\x86\xdd"
_PROTOCOL = 6
_HOPS = 64
_DO_NOT_FRAGMENT = 0x4000


class Packetizer:
    """Writes one TCP connection. Each method returns frames, to be written in the order of the calls."""

    def __init__(self, client: HostPort, server: HostPort, *, initial: tuple[int, int]) -> None:
        """`initial`: the sequence numbers at which client and server begin."""
        there, back = _FrameMaker(client, server), _FrameMaker(server, client)
        self._directions = there, back
        self._first = initial[0] + 1, initial[1] + 1
        """Sequence number of the first byte of client and server."""
        self._sent = [-1, -1]
        """Bytes that each side has sent without a gap; -1 before its SYN."""
        self._early: tuple[dict[int, int], dict[int, int]] = {}, {}
        """Of each side, bytes that were sent behind a gap: from → to."""

    def open(self) -> Iterator[bytes]:
        """SYN, the SYN that answers it, and the acknowledgement."""
        yield self._frame(0, SYN, -1, options=SYN_OPTIONS)
        yield self._frame(1, SYN | ACK, -1, options=SYN_OPTIONS)
        yield self._frame(0, ACK, 0)

    def data(self, from_client: bool, data: bytes | memoryview, at: int | None = None) -> Iterator[bytes]:
        """Returns bytes of one side as segments. `at`: offset in this side's stream, where the bytes do not
        follow those that were sent last; what lies between may come later, or never."""
        view, side = memoryview(data), 0 if from_client else 1
        at = self._sent[side] if at is None else at
        for start in range(0, len(view), MAX_PAYLOAD):
            part = view[start : start + MAX_PAYLOAD]
            last = start + len(part) == len(view)
            yield self._frame(side, ACK | PSH if last else ACK, at + start, part)

    def close(self, by_client: bool, said: tuple[int, int] | None = None) -> Iterator[bytes]:
        """Returns the FINs of one side, then of the other. `said`: lengths of the client's and the server's
        stream, where some bytes were never sent here."""
        first = 0 if by_client else 1
        ends = self._sent if said is None else said
        last = ends[first], ends[1 - first]
        yield self._frame(first, FIN | ACK, last[0])
        yield self._frame(1 - first, FIN | ACK, last[1])
        yield self._frame(first, ACK, last[0] + 1)

    def _frame(
        self,
        side: int,
        flags: int,
        at: int,
        payload: bytes | memoryview = b"",
        *,
        options: bytes = b"",
    ) -> bytes:
        """Returns one frame. `at`: from the first byte of the side's stream; its SYN is at -1."""
        acknowledgment = (self._first[1 - side] + self._sent[1 - side]) % 2**32 if flags & ACK else 0
        self._took(side, at, at + len(payload) + bool(flags & (SYN | FIN)))
        sequence = (self._first[side] + at) % 2**32
        return self._directions[side].frame(sequence, acknowledgment, flags, options, payload)

    def _took(self, side: int, start: int, stop: int) -> None:
        """Notes that a side has sent a range."""
        early = self._early[side]
        if start > self._sent[side]:
            early[start] = max(stop, early.get(start, 0))
            return
        self._sent[side] = max(stop, self._sent[side])
        while early and (start := min(early)) <= self._sent[side]:
            self._sent[side] = max(self._sent[side], early.pop(start))


class _FrameMaker:
    """The parts that all frames from one end to the other have in common."""

    def __init__(self, source: HostPort, destination: HostPort) -> None:
        self._ports = source[1], destination[1]
        addresses = [ipaddress.ip_address(host) for host, _ in (source, destination)]
        self._is_ipv4 = addresses[0].version == 4
        self._addresses = addresses[0].packed + addresses[1].packed
        self._ethernet = bytes(12) + (_ETHERTYPE_IPV4 if self._is_ipv4 else _ETHERTYPE_IPV6)

    def frame(
        self, sequence: int, acknowledgment: int, flags: int, options: bytes, payload: bytes | memoryview
    ) -> bytes:
        size = 20 + len(options)
        fields = (*self._ports, sequence, acknowledgment, size // 4 << 4, flags, WINDOW)
        header = _TCP.pack(*fields, 0, 0) + options
        length = size + len(payload)
        # In front of the segment the checksum has the addresses, the protocol and the length.
        checksum = _checksum(self._addresses + header, payload, _PROTOCOL + length)
        header = _TCP.pack(*fields, checksum, 0) + options
        return b"".join((self._ethernet, self._ip_header(length), header, payload))

    def _ip_header(self, length: int) -> bytes:
        if not self._is_ipv4:
            return struct.pack(">IHBB", 6 << 28, length, _PROTOCOL, _HOPS) + self._addresses
        fields = (0x45, 0, 20 + length, 0, _DO_NOT_FRAGMENT, _HOPS, _PROTOCOL)
        checksum = _checksum(_IPV4.pack(*fields, 0) + self._addresses)
        return _IPV4.pack(*fields, checksum) + self._addresses


def _checksum(header: bytes, payload: bytes | memoryview = b"", more: int = 0) -> int:
    """The internet checksum of a header of even length, a payload and a number that is added to them.

    A sum of 16-bit words with end-around carry is the remainder of the whole, read as one large number, by
    65,535: about four times as fast as adding words, and the payload isn't copied.
    """
    number = int.from_bytes(payload, "big") << (8 if len(payload) % 2 else 0)
    total = (int.from_bytes(header, "big") + number + more) % 0xFFFF
    # The words are never all 0, so a remainder of 0 stands for a sum of 0xFFFF.
    return 0xFFFF - total if total else 0

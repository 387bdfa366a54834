"""Lines of `tshark -T fields` → blocks of TCP segments. Pure: no process and no file.

In: lines with the values of `FIELDS`, tab between them; a field that a packet has more than once has commas.
Out: one `TcpBlock` for each batch of lines. Which address belongs to which TCP header is told by
frame.protocols, the packet's headers from the outside in (`eth:ethertype:ip:udp:vxlan:eth:ethertype:ip:tcp`):
the nearest before it. Headers that an ICMP error quotes are no segments.

A loop over packets in Python, so it is kept flat; what is the same for every packet of a connection is worked
out once.
"""

from __future__ import annotations

from binascii import unhexlify
from collections import Counter
from collections.abc import Sequence
from ipaddress import ip_address

import numpy as np

from rpcinspect.capture.block import Direction, SegmentBlock, TcpBlock, as_int64

FIELDS = (
    "ip.src",
    "ip.dst",
    "ipv6.src",
    "ipv6.dst",
    "tcp.srcport",
    "tcp.dstport",
    "frame.protocols",
    "frame.number",
    "frame.time_epoch",
    "tcp.seq_raw",
    "tcp.ack_raw",
    "tcp.flags",
    "tcp.len",
    "tcp.payload",
)
"""The first seven are the same for all packets of one direction of a connection."""
SegmentNumbers = tuple[int, int, int, int, int]
"""Sequence, acknowledgment, flags, payload bytes captured and on the wire."""

_ALONE = 7
"""Fields after those."""
RST = 4
_NONE, _SEVERAL = -1, -2
_NETWORKS = (b"ip", b"ipv6")
_QUOTING = (b"icmp", b"icmpv6")


class FieldLines:
    """Parses the lines of one capture; `feed` them in batches."""

    def __init__(self, capture: int) -> None:
        self.directions: list[Direction] = []
        """Every direction seen."""
        self.unreadable = 0
        """Lines that were not what was asked for."""
        self._capture = capture
        self._heads: dict[bytes, int] = {}
        """First seven fields → index of the direction, `_NONE` or `_SEVERAL`."""
        self._indexes: dict[Direction, int] = {}
        self._flags: dict[bytes, int] = {}
        self._time_ns = 0
        """Of the last packet, for those without a time."""

    def feed(self, lines: Sequence[bytes], window_offset: int) -> TcpBlock | None:
        """Returns the segments of these packets, payloads from `window_offset` on; None if no line is a
        packet."""
        rows: list[tuple[int, int, int, int, int, int, int, int]] = []
        append = rows.append
        payloads: list[bytes] = []
        other: Counter[bytes] = Counter()
        heads = self._heads
        packets, first_ns, last_ns = 0, 1 << 62, -(1 << 62)
        for line in lines:
            try:
                head, number, when, sequence, acknowledged, flags, length, payload = line.rsplit(
                    b"\t", _ALONE
                )
                time_ns = nanoseconds(when) if when else self._time_ns
                packet = int(number)
            except ValueError:
                self.unreadable += 1
                continue
            packets += 1
            self._time_ns = time_ns
            first_ns = time_ns if time_ns < first_ns else first_ns
            last_ns = time_ns if time_ns > last_ns else last_ns
            direction = heads.get(head)
            if direction is None:
                direction = heads[head] = self._direction(head)
            if direction < 0:
                found = self._several(head, line) if direction == _SEVERAL else []
                if not found:
                    other[head] += 1
                for one, numbers, data in found:
                    append((packet, time_ns, one, *numbers))
                    payloads.append(data)
                continue
            try:
                row = self._numbers(sequence, acknowledged, flags, length, payload)
            except ValueError:  # a header that was cut
                other[b"cut header"] += 1
                continue
            append((packet, time_ns, direction, *row))
            if payload:
                payloads.append(payload)
        if not packets:
            return None
        columns = as_int64(rows).reshape(-1, 8).T
        captured = np.ascontiguousarray(columns[6])
        segments = SegmentBlock(
            capture=self._capture,
            window=_bytes(payloads),
            window_offset=window_offset,
            packet=np.ascontiguousarray(columns[0]),
            time_ns=np.ascontiguousarray(columns[1]),
            flow=np.ascontiguousarray(columns[2]),
            sequence=np.ascontiguousarray(columns[3]),
            acknowledgment=np.ascontiguousarray(columns[4]),
            flags=columns[5].astype(np.uint8),
            offset=window_offset + np.cumsum(captured) - captured,
            captured=captured,
            length=np.ascontiguousarray(columns[7]),
        )
        return TcpBlock(
            packets=packets,
            times=(first_ns, last_ns),
            other=_reasons(other),
            directions=self.directions,
            segments=segments,
        )

    def _numbers(
        self, sequence: bytes, acknowledged: bytes, flags: bytes, length: bytes, payload: bytes
    ) -> SegmentNumbers:
        """Parses these fields; raises `ValueError` where they are invalid."""
        control = self._flags.get(flags)
        if control is None:
            control = self._flags[flags] = int(flags, 16) & 0x3F
        size = int(length)
        captured = _hex_bytes(payload)
        if control & RST and not captured:
            size = 0  # tshark takes what a reset carries for a text about its cause
        if captured > size:
            raise ValueError
        return int(sequence), int(acknowledged or b"0"), control, captured, size

    def _direction(self, head: bytes) -> int:
        """Parses the first seven fields; returns an index into `directions` if there is one TCP header."""
        found = self._headers(head)
        if not found:
            return _NONE
        return found[0] if len(found) == 1 and b"," not in _ports(head) else _SEVERAL

    def _headers(self, head: bytes) -> list[int]:
        """The direction of each TCP header, from the outside in; stops at what can't be understood."""
        *names, protocols = head.split(b"\t")
        if len(names) != 6:
            return []
        values = [name.split(b",") if name else [] for name in names]
        nearest: tuple[bytes, bytes] | None = None
        seen = {b"ip": 0, b"ipv6": 0}
        found: list[int] = []
        for protocol in protocols.split(b":"):
            try:
                if protocol in _NETWORKS:
                    at, first = seen[protocol], 2 * _NETWORKS.index(protocol)
                    seen[protocol] += 1
                    nearest = _address(values[first][at]), _address(values[first + 1][at])
                elif protocol in _QUOTING:
                    break
                elif protocol == b"tcp" and nearest is not None:
                    at = len(found)
                    ports = int(values[4][at]), int(values[5][at])
                    found.append(self._index(Direction(nearest[0], ports[0], nearest[1], ports[1])))
            except (IndexError, ValueError):
                break
        return found

    def _index(self, direction: Direction) -> int:
        index = self._indexes.get(direction)
        if index is None:
            index = self._indexes[direction] = len(self.directions)
            self.directions.append(direction)
        return index

    def _several(self, head: bytes, line: bytes) -> list[tuple[int, SegmentNumbers, bytes]]:
        """Direction, numbers and payload of each segment of a packet with several TCP headers."""
        sequence, acknowledged, flags, length, payload = (
            field.split(b",") for field in line.split(b"\t")[-5:]
        )
        payloads = iter(payload)
        found = []
        try:
            for at, direction in enumerate(self._headers(head)):
                data = next(payloads, b"") if int(length[at]) else b""
                numbers = self._numbers(sequence[at], acknowledged[at], flags[at], length[at], data)
                found.append((direction, numbers, data))
        except (IndexError, ValueError):
            pass  # cut: those before it are good
        return found


def nanoseconds(seconds: bytes) -> int:
    """Seconds since 1970 as tshark writes them, exactly."""
    if seconds[-10:-9] == b".":
        return int(seconds.replace(b".", b""))
    whole, _, fraction = seconds.partition(b".")
    return int(whole + (fraction + b"000000000")[:9])


def _ports(head: bytes) -> bytes:
    return b"".join(head.split(b"\t")[4:6])


def _address(text: bytes) -> bytes:
    return ip_address(text.decode("ascii", "replace")).packed


def _hex_bytes(payload: bytes) -> int:
    """Returns how many bytes these digits are; older releases put colons between them."""
    return (len(payload) + 1) // 3 if payload[2:3] == b":" else len(payload) // 2


def _bytes(payloads: list[bytes]) -> bytes:
    digits = b"".join(payloads)
    return unhexlify(digits.replace(b":", b"") if b":" in digits else digits)


def _reasons(heads: Counter[bytes]) -> dict[str, int]:
    """Why packets gave no segment: what came after their addresses, else their last header."""
    reasons: Counter[str] = Counter()
    for head, packets in heads.items():
        names = head.rpartition(b"\t")[2].split(b":")
        quoting = [at for at, name in enumerate(names) if name in _QUOTING]
        if quoting:
            names = names[: quoting[0] + 1]
        networks = [at for at, name in enumerate(names) if name in _NETWORKS]
        inside = names[networks[-1] + 1 :] if networks else []
        name = (inside or names[-1:])[0].decode("ascii", "replace")
        reasons["cut header" if name == "tcp" else name or "no protocol"] += packets
    return dict(reasons)

"""Streams that tshark has decrypted, as if they had been sent in the clear.

In: the segments of a TLS connection in the order of capture, with the plaintext that tshark found in each.
Out: segments of the plaintext. It is shorter than what was sent, so sequence numbers are counted anew from a
connection's first; acknowledgments mean nothing then and are left out.

How much plaintext a hole in the ciphertext has swallowed can't be known, so what comes behind one is missing,
even if tshark could read it. Holes include segments that tshark took for copies and left out. To know of
them, records are counted here too: by their headers (type, version u16, length u16) in what was sent.
"""

from __future__ import annotations

from msgspec import Struct, field

from rpcinspect.capture.block import Direction

Numbers = tuple[int, int, int, int, int]
"""Sequence, acknowledgment, flags, payload bytes captured and on the wire."""

SYN, ACK = 2, 16
WRAP = 1 << 32
HEADER = 5
HANDSHAKE = b"\x16\x03"
"""How a TLS connection begins: a record of the handshake, version 3.x."""
MAX_LATER = 1 << 24
"""Bytes behind a hole that are kept for the time when it is filled."""


class _Side(Struct):
    """One direction."""

    first: int | None = None
    """Sequence number of its first byte, where its SYN was captured."""
    sent: int | None = None
    """Up to where what was sent has been captured, without a hole."""
    plain: int = 0
    """Next sequence number of the plaintext."""
    records: int = 0
    """Whole ones up to `sent`, less those that tshark has told of."""
    torn: bool = False
    header: bytes = b""
    rest: int = 0
    """Bytes of the record that are still to come."""
    later: list[tuple[int, bytes]] = field(default_factory=list)
    """What was captured behind a hole."""

    def take(self, sequence: int, payload: bytes) -> None:
        """Enters what was sent."""
        if self.sent is None:
            self.sent = self.plain = sequence
        self.later.append((sequence, payload))
        start = self.sent
        for one in sorted(self.later, key=lambda one: _distance(start, one[0])):
            behind = -_distance(self.sent, one[0])
            if behind < 0:
                break
            self.later.remove(one)
            new = one[1][behind:]
            self._walk(new)
            self.sent = (self.sent + len(new)) % WRAP
        if len(self.later) > 1 and sum(len(data) for _, data in self.later) > MAX_LATER:
            self.torn = True
            self.later.clear()

    def _walk(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            if not self.rest:
                piece = data[at : at + HEADER - len(self.header)]
                at += len(piece)
                self.header += piece
                if len(self.header) < HEADER:
                    return
                self.rest, self.header = int.from_bytes(self.header[3:], "big"), b""
            step = min(self.rest, len(data) - at)
            at += step
            self.rest -= step
            self.records += not self.rest


class _Connection(Struct):
    encrypted: bool | None = None
    """None before its first byte."""
    sides: dict[Direction, _Side] = field(default_factory=dict)


class TlsStreams:
    """All connections of a capture; those without TLS stay as they are."""

    def __init__(self) -> None:
        self._connections: dict[Direction, _Connection] = {}

    def replace(
        self, direction: Direction, numbers: Numbers, payload: bytes, records: int, plaintext: int
    ) -> Numbers | None:
        """The numbers for a segment in which tshark saw the end of `records` TLS records and found as many
        bytes of plaintext; None if the segment stays as it is.
        """
        sequence, _, flags, captured, length = numbers
        connection = self._connections.get(direction)
        if connection is None:
            connection = self._connections.get(_reversed(direction)) or _Connection()
            self._connections[direction] = connection
        if flags & SYN:
            start = (sequence + 1) % WRAP
            known = connection.sides.get(direction)
            if known is not None and known.first == start:
                return None  # a copy
            if not flags & ACK:
                connection.encrypted = None  # the port is used again
            connection.sides[direction] = _Side(start, start, start)
            return None
        side = connection.sides.setdefault(direction, _Side())
        side.take(sequence, payload)
        if connection.encrypted is None and payload:
            connection.encrypted = payload.startswith(HANDSHAKE)
        if not connection.encrypted:
            side.plain = side.sent or 0
            return None
        side.records -= records
        side.torn = side.torn or captured < length or (plaintext > 0 and side.records != 0)
        start, side.plain = side.plain, (side.plain + plaintext) % WRAP
        return start, 0, flags & ~ACK, 0 if side.torn else plaintext, plaintext


def _distance(near: int, sequence: int) -> int:
    """How far behind `near` this 32-bit number lies; negative before it."""
    return (sequence - near + WRAP // 2) % WRAP - WRAP // 2


def _reversed(direction: Direction) -> Direction:
    source, source_port, destination, destination_port = direction
    return Direction(destination, destination_port, source, source_port)

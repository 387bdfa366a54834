"""IP fragments → whole packets, in bounded memory.

In: fragments in the order of capture. Out: packets whose last missing part has come, as bytes to read
headers from and as the places in the file where those bytes lie. Where parts overlap the first copy wins;
another one is handed on beside it, to be reported. A first part is handed on at once, too, as a packet that
is not all there: captures filtered by port hold only first parts. Fragments are rare (TCP avoids them), so
this goes one at a time. Mirrors RFC 815 and 8200 section 4.5; that IPv6 forbids overlaps is not enforced.

Numbers of packets come again soon. So what stays incomplete is dropped after `PATIENCE_NS`, and a part
that has another's place but not its bytes starts a new packet.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from rpcinspect.capture.block import Int64s, PacketBlock
from rpcinspect.tcp.ip import Count, Fragments

MAX_PACKETS = 4096
MAX_BYTES = 1 << 25
"""Of packets that wait for their rest; the oldest are given up first."""
MAX_DONE = 4096
"""Complete packets whose parts are still recognised when they are captured once more."""
MAX_LENGTH = 0xFFFF
PATIENCE_NS = 30_000_000_000
FRAGMENT_COST = 400
"""Bytes of memory that a fragment takes beside its data."""

INCOMPLETE, PART, AGAIN, BAD = (
    "incomplete ip fragment",
    "ip fragment",
    "ip fragment seen again",
    "bad ip fragment",
)
"""Reasons why a packet gave no segment: the rest is missing; it is in the segment of another packet of the
capture; it was captured before; it lies outside of any packet."""


class FragmentPiece(Struct):
    """A range of a packet that lies in one place of the file."""

    start: int
    """In bytes from what is behind the IP header."""
    end: int
    """As it was on the wire."""
    offset: int
    """In the file."""
    data: bytes
    """What is there: less than the range where a snap length cut it."""

    def part(self, start: int, end: int) -> FragmentPiece:
        """What lies in [start, end), which must overlap it."""
        low, high = max(start, self.start), min(end, self.end)
        skip = low - self.start
        return FragmentPiece(low, high, self.offset + skip, self.data[skip : high - self.start])


class Fragment(Struct):
    """A fragment of an IP packet."""

    row: int
    """In the block of packets."""
    time_ns: int
    addresses: tuple[int, ...]
    identification: int
    protocol: int
    more: bool
    pieces: list[FragmentPiece]
    """Usually one; several where a fragment came in fragments."""


class Datagram(Struct, eq=False):
    """A packet made from fragments; `pieces` are in order and do not overlap."""

    addresses: tuple[int, ...]
    time_ns: int
    """Of the fragment that came first."""
    protocol: int = -1
    """Known once the first part was seen."""
    pieces: list[FragmentPiece] = field(default_factory=list)
    copies: list[FragmentPiece] = field(default_factory=list)
    """Second copies that differ from the first."""
    row: int = 0
    """Of the fragment that came last."""
    whole: bool = False
    total: int | None = None
    covered: int = 0
    held: int = 0
    """About how many bytes of memory it takes."""
    silent: int = 0
    """Packets of the capture that went into it and gave no segment themselves."""
    seen: dict[tuple[int, int], int] = field(default_factory=dict)
    """(start, end) of every fragment → hash of its bytes."""
    origin: Datagram | None = None
    """The packet that this one is the first part of."""

    def content(self) -> tuple[bytes, int]:
        """The bytes, with zeros where they were cut off, and how many there are before that."""
        data, there = bytearray(self.pieces[-1].end), None
        for piece in self.pieces:
            data[piece.start : piece.start + len(piece.data)] = piece.data
            if there is None and len(piece.data) < piece.end - piece.start:
                there = piece.start + len(piece.data)
        return bytes(data), len(data) if there is None else there

    def between(self, start: int, end: int) -> list[FragmentPiece]:
        """The pieces of [start, end)."""
        at = max(0, bisect_right(self.pieces, start, key=attrgetter("start")) - 1)
        found = []
        while at < len(self.pieces) and self.pieces[at].start < end:
            if self.pieces[at].end > start:
                found.append(self.pieces[at].part(start, end))
            at += 1
        return found

    def add(self, new: FragmentPiece) -> None:
        """Takes what is not there yet, and keeps other copies that differ apart."""
        pieces = self.pieces
        for kept in self.between(new.start, new.end):
            copy = new.part(kept.start, kept.end)
            size = min(len(copy.data), len(kept.data))
            if copy.data[:size] != kept.data[:size]:
                self.copies.append(copy)
                self.held += len(copy.data)
        at = bisect_right(pieces, new.start, key=attrgetter("start"))
        position = max(new.start, pieces[at - 1].end) if at else new.start
        while position < new.end:
            following = pieces[at].start if at < len(pieces) else new.end
            if position < following:
                part = new.part(position, min(following, new.end))
                pieces.insert(at, part)
                self.covered += part.end - part.start
                self.held += len(part.data)
                at += 1
            if at >= len(pieces):
                return
            position, at = pieces[at].end, at + 1


class Reassembly:
    """Reassembles the fragments of one capture file after the other."""

    def __init__(self, count: Count) -> None:
        self._count = count
        self._capture = -1
        self._waiting: OrderedDict[tuple[int, ...], Datagram] = OrderedDict()
        self._done: OrderedDict[tuple[int, ...], Datagram] = OrderedDict()
        """Without their bytes."""
        self._held = 0

    def feed(self, capture: int, fragments: Iterable[Fragment]) -> Iterator[Datagram]:
        """Packets in the order in which they become complete, and first parts at once."""
        if capture != self._capture:
            self._capture, self._held = capture, 0
            self._waiting.clear()
            self._done.clear()
        for fragment in fragments:
            datagram = self._take(fragment)
            if datagram is not None:
                yield datagram

    def gave_segment(self, first_part: Datagram) -> None:
        """Takes back that the packet of a first part gave no segment."""
        datagram = first_part.origin
        assert datagram is not None
        datagram.silent -= 1
        self._count(PART if datagram.whole else INCOMPLETE, -1)

    def _take(self, fragment: Fragment) -> Datagram | None:
        pieces = fragment.pieces
        if not pieces or pieces[0].start >= pieces[-1].end or pieces[-1].end > MAX_LENGTH:
            self._count(BAD, 1)
            return None
        key = (fragment.identification, *fragment.addresses)
        place = pieces[0].start, pieces[-1].end
        content = hash(b"".join(piece.data for piece in pieces))
        waiting = self._waiting.get(key)
        for known in (self._done.get(key), waiting):
            if known is not None and known.seen.get(place) == content and _near(known, fragment):
                self._count(AGAIN, 1)
                return None
        if waiting is not None and (place in waiting.seen or not _near(waiting, fragment)):
            self._give_up(key)
            waiting = None
        if waiting is None:
            waiting = self._waiting[key] = Datagram(fragment.addresses, fragment.time_ns)
        return self._add(key, waiting, content, fragment)

    def _add(
        self, key: tuple[int, ...], datagram: Datagram, content: int, fragment: Fragment
    ) -> Datagram | None:
        """The packet, if this fragment was the last that it lacked, or its first part."""
        start, end = fragment.pieces[0].start, fragment.pieces[-1].end
        total = datagram.total
        last = datagram.pieces[-1].end if datagram.pieces else 0
        if (total is not None and (end > total or (end < total and not fragment.more))) or (
            not fragment.more and last > end
        ):
            self._count(BAD, 1)
            return None
        if not fragment.more:
            datagram.total = end
        before = datagram.held
        datagram.seen[start, end] = content
        for piece in fragment.pieces:
            datagram.add(piece)
        datagram.held += FRAGMENT_COST
        self._held += datagram.held - before
        datagram.row = fragment.row
        if start == 0:
            datagram.protocol = fragment.protocol
        if datagram.covered == datagram.total:
            return self._complete(key, datagram)
        datagram.silent += 1
        self._count(INCOMPLETE, 1)
        while self._held > MAX_BYTES or len(self._waiting) > MAX_PACKETS:
            self._give_up(next(iter(self._waiting)))
        if start > 0:
            return None
        return Datagram(
            fragment.addresses,
            fragment.time_ns,
            fragment.protocol,
            datagram.between(0, end),
            row=fragment.row,
            origin=datagram,
        )

    def _complete(self, key: tuple[int, ...], datagram: Datagram) -> Datagram:
        self._give_up(key)
        self._count(INCOMPLETE, -datagram.silent)
        self._count(PART, datagram.silent)
        datagram.whole = True
        self._done[key] = Datagram(datagram.addresses, datagram.time_ns, seen=datagram.seen)
        self._done.move_to_end(key)
        if len(self._done) > MAX_DONE:
            self._done.popitem(last=False)
        return datagram

    def _give_up(self, key: tuple[int, ...]) -> None:
        self._held -= self._waiting.pop(key).held


def _near(datagram: Datagram, fragment: Fragment) -> bool:
    return abs(fragment.time_ns - datagram.time_ns) <= PATIENCE_NS


FIN, SYN = 1, 2


class SegmentColumns(Struct, frozen=True, eq=False):
    """Segments of one link type and IP version, as columns; positions count from the window."""

    row: Int64s
    flow: Int64s
    sequence: Int64s
    acknowledgment: Int64s
    flags: NDArray[np.uint8]
    payload: Int64s
    captured: Int64s
    length: Int64s


def list_fragments(
    block: PacketBlock,
    fragments: list[Fragments],
    place: Callable[[int, int, int, int], tuple[int, list[FragmentPiece]]],
) -> list[Fragment]:
    """Returns fragments one by one, in file order; `place` gives the row and file offset of one."""
    listed = []
    for some in fragments:
        packets = some.packets
        columns = (
            *(packets.rows.row, packets.rows.at, packets.rows.end, packets.rows.wire),
            *(packets.protocol, some.identification, some.start, some.more),
        )
        addresses = zip(*(column.tolist() for column in packets.addresses), strict=True)
        for whose, values in zip(
            addresses, zip(*(column.tolist() for column in columns), strict=True), strict=True
        ):
            row, at, end, wire, protocol, identification, start, more = values
            row, pieces = place(row, at, max(at, end), wire)
            for piece in pieces:
                piece.start, piece.end = piece.start + start, piece.end + start
            time_ns = int(block.time_ns[row])
            listed.append(Fragment(row, time_ns, whose, identification, protocol, more, pieces))
    return sorted(listed, key=attrgetter("row"))


def lay_out(
    parts: list[SegmentColumns], datagrams: list[Datagram], base: list[int], window_offset: int
) -> SegmentColumns:
    """Returns segments as ranges of the file, one row for each piece of a payload, with positions from the
    window of these packets.

    What belongs to the first byte is said by the first row, what belongs to the last by the last. Behind them
    come second copies of bytes that differ, for the next stage to find.
    """
    rows: list[tuple[int, ...]] = []
    for part in parts:
        columns = (
            *(part.row, part.flow, part.sequence, part.acknowledgment, part.flags),
            *(part.payload, part.length),
        )
        for which, flow, sequence, acknowledgment, flags, at, length in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            datagram, at = datagrams[which], at - base[which]
            for piece, its_flags, before in _ranges(datagram, at, at + length, flags):
                rows.append(
                    (
                        datagram.row,
                        flow,
                        (sequence + before) % (1 << 32),
                        acknowledgment,
                        its_flags,
                        piece.offset - window_offset,
                        len(piece.data),
                        piece.end - piece.start,
                    )
                )
    table = np.array(rows, dtype=np.int64).reshape(-1, 8).T
    return SegmentColumns(
        row=table[0],
        flow=table[1],
        sequence=table[2],
        acknowledgment=table[3],
        flags=table[4].astype(np.uint8),
        payload=table[5],
        captured=table[6],
        length=table[7],
    )


def _ranges(datagram: Datagram, at: int, end: int, flags: int) -> Iterator[tuple[FragmentPiece, int, int]]:
    """Pieces of a payload [at, end), their flags, and how many sequence numbers come before each."""
    syn = flags >> 1 & 1
    pieces = datagram.between(at, end)
    if not pieces and datagram.whole:
        pieces = [FragmentPiece(at, at, 0, b"")]
    for index, piece in enumerate(pieces):
        first, last = index == 0, index == len(pieces) - 1 and datagram.whole
        its_flags = flags & ~((0 if first else SYN) | (0 if last else FIN))
        yield piece, its_flags, piece.start - at + (0 if first else syn)
    for copy in datagram.copies:
        if copy.start < end and at < copy.end:
            piece = copy.part(at, end)
            yield piece, flags & ~(SYN | FIN), piece.start - at + syn

"""Between packets that were made from fragments and the places in the file where their bytes lie.

In: fragments as columns; the segments that were read from whole packets, in a window of their own. Out:
fragments one by one; the same segments as ranges of the file, one row for each piece of a payload.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from rpcinspect.capture.block import Int64s, PacketBlock
from rpcinspect.tcp.fragment import Datagram, Fragment, Piece
from rpcinspect.tcp.ip import Fragments

FIN, SYN = 1, 2


class Part(Struct, frozen=True, eq=False):
    """Segments of one link type and IP version; positions count from the window."""

    row: Int64s
    flow: Int64s
    sequence: Int64s
    acknowledgment: Int64s
    flags: NDArray[np.uint8]
    payload: Int64s
    captured: Int64s
    length: Int64s


def row_of(fragment: Fragment) -> int:
    return fragment.row


def list_fragments(
    block: PacketBlock,
    fragments: list[Fragments],
    place: Callable[[int, int, int, int], tuple[int, list[Piece]]],
) -> list[Fragment]:
    """Fragments one by one, in file order; `place` says in which row and where in the file one lies."""
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
    return sorted(listed, key=row_of)


def lay_out(parts: list[Part], datagrams: list[Datagram], base: list[int], window_offset: int) -> Part:
    """Segments of the window of these packets as ranges of the file: one row for each piece of a payload.

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
    return Part(
        row=table[0],
        flow=table[1],
        sequence=table[2],
        acknowledgment=table[3],
        flags=table[4].astype(np.uint8),
        payload=table[5],
        captured=table[6],
        length=table[7],
    )


def _ranges(datagram: Datagram, at: int, end: int, flags: int) -> Iterator[tuple[Piece, int, int]]:
    """Pieces of a payload [at, end), their flags, and how many sequence numbers come before each."""
    syn = flags >> 1 & 1
    pieces = datagram.between(at, end)
    if not pieces and datagram.whole:
        pieces = [Piece(at, at, 0, b"")]
    for index, piece in enumerate(pieces):
        first, last = index == 0, index == len(pieces) - 1 and datagram.whole
        its_flags = flags & ~((0 if first else SYN) | (0 if last else FIN))
        yield piece, its_flags, piece.start - at + (0 if first else syn)
    for copy in datagram.copies:
        if copy.start < end and at < copy.end:
            piece = copy.part(at, end)
            yield piece, flags & ~(SYN | FIN), piece.start - at + syn

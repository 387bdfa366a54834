"""Which packets carry a message: all of them, in every capture, retransmissions included.

A message knows its first and its last packet. Between them lie those of others, and behind them there may be
more copies of its bytes. In: messages that were decoded, then the segments of their captures once more. Out:
a row for each packet of each message.

Of descriptor and payloads it is known where they are in their stream. Of tensors it is known where in the
files the first copy of each byte lies: the segment there tells the place in the stream, and so where other
copies are. Reading again keeps 40 bytes for each message, each piece of a tensor and each row.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from msgspec import Struct

from rpcinspect.capture.block import Int64s, SegmentBlock, as_int64
from rpcinspect.pipeline import Decoding
from rpcinspect.sources.packets import segments_alone
from rpcinspect.tcp.segment import SYN, Flow, Segmenter
from rpcinspect.tcp.stream import WRAP
from rpcinspect.tensorpipe.records import TpMessage

Columns: TypeAlias = tuple[Int64s, Int64s, Int64s]
NOTHING = as_int64([])


class MessageFrames(Struct, frozen=True, eq=False):
    """Packets of messages, by message, capture and packet. The columns have the same length."""

    message: Int64s
    """As it was given to `FrameFinder.add`."""
    capture: Int64s
    packet: Int64s
    """As Wireshark counts."""
    time_ns: Int64s
    """As the capture has it."""
    begins: Int64s
    """1 where the packet has the first byte of the message's descriptor, else 0."""

    def each(self) -> Iterator[tuple[int, int, MessageFrames]]:
        """Yields (message, capture, its rows) for each message in each capture."""
        edges = np.flatnonzero(np.diff(self.message) | np.diff(self.capture)) + 1
        for start, end in pairwise([0, *edges.tolist(), len(self.message)]):
            if start < end:
                rows = MessageFrames(*[getattr(self, name)[start:end] for name in self.__struct_fields__])
                yield int(rows.message[0]), int(rows.capture[0]), rows


def frames_of(decoding: Decoding, messages: Iterable[tuple[int, TpMessage]]) -> MessageFrames:
    """Returns the packets of messages, each given with a number: reads the captures of a decoding once more.
    Raises `OutputError` where they are logs, or can't be read twice."""
    finder = FrameFinder()
    for number, tp in messages:
        finder.add(number, tp)
    for capture in range(len(decoding.readers)):
        segmenter = Segmenter()
        with decoding.open_again(capture) as reader:
            finder.look(capture, segmenter.flows, segments_alone(reader, segmenter))
    return finder.found()


class _Ranges:
    """Ranges of numbers, and whose they are, as they are collected."""

    def __init__(self) -> None:
        self._columns = array("q"), array("q"), array("q")

    def add(self, start: int, end: int, owner: int) -> None:
        starts, ends, owners = self._columns
        starts.append(start)
        ends.append(end)
        owners.append(owner)

    def columns(self) -> Columns:
        """Returns (starts, ends, owners) by their starts."""
        starts, ends, owners = map(as_int64, self._columns)
        order = np.argsort(starts, kind="stable")
        return starts[order], ends[order], owners[order]


class _CarryingStream:
    """One direction of a connection: which ranges of it are whose."""

    def __init__(self, origin: int, heads: Columns | None = None) -> None:
        """`origin`: sequence number of its first byte; `heads`: ranges of descriptors and payloads."""
        self._origin = origin
        self.has_heads = heads is not None
        self._parts = [] if heads is None else [heads]
        self._at = 0
        """Behind the furthest byte that was seen."""
        self._last_ns = 0

    def add(self, ranges: Columns) -> None:
        """Takes ranges that overlap no others."""
        self._parts.append(ranges)

    def positions(self, sequences: Int64s, lengths: Int64s, times: Int64s) -> Int64s:
        """Returns where segments begin, counted from the first byte; they come in the order of capture."""
        if times[0] < self._last_ns:  # another capture of the same connection
            self._at = 0
        starts: Int64s = self._at + ((sequences - self._origin - self._at + WRAP // 2) % WRAP) - WRAP // 2
        self._at, self._last_ns = max(self._at, int((starts + lengths).max())), int(times[-1])
        return starts

    def owners(self, starts: Int64s, ends: Int64s) -> Columns:
        """Returns which segment has bytes of which owner: (segment, owner, 1 if these are its first)."""
        own_starts, own_ends, own = self._sorted()
        low = np.searchsorted(own_ends, starts, "right")
        count = np.maximum(np.searchsorted(own_starts, ends) - low, 0)
        segment = np.repeat(np.arange(len(starts)), count)
        at = np.repeat(low - np.cumsum(count) + count, count) + np.arange(len(segment))
        return segment, own[at], (own_starts[at] >= starts[segment]).astype(np.int64)

    def _sorted(self) -> Columns:
        """Returns all ranges in their order; those of one owner that follow each other are one."""
        if len(self._parts) > 1:
            starts, ends, owners = (np.concatenate(column) for column in zip(*self._parts, strict=True))
            order = np.argsort(starts, kind="stable")
            starts, ends, owners = starts[order], ends[order], owners[order]
            new = (starts[1:] != ends[:-1]) | (owners[1:] != owners[:-1])
            self._parts = [
                (starts[np.append(True, new)], ends[np.append(new, True)], owners[np.append(True, new)])
            ]
        return self._parts[0] if self._parts else (NOTHING, NOTHING, NOTHING)


class _Section(Struct, frozen=True, eq=False):
    """Rows of a block that are of one stream."""

    stream: _CarryingStream
    rows: Int64s


class FrameFinder:
    """Finds the packets of messages: `add` each, then `look` at the segments of all captures in their order,
    then ask for `found`."""

    def __init__(self) -> None:
        self._heads: defaultdict[Flow, defaultdict[int, _Ranges]] = defaultdict(lambda: defaultdict(_Ranges))
        """Of descriptors and payloads, by flow and sequence number of its offset 0."""
        self._pieces: defaultdict[int, _Ranges] = defaultdict(_Ranges)
        """Of tensors, by capture: where in the file."""
        self._streams: dict[Flow, dict[int, _CarryingStream]] = {}
        """By the sequence number of the first byte: a port may be used again."""
        self._rows: list[tuple[Int64s, ...]] = []

    def add(self, number: int, tp: TpMessage) -> None:
        """Takes a message of packets, by a number of the caller's."""
        origin = tp.pipe.origins[not tp.from_client]
        if origin is not None:
            self._heads[tp.flow][origin].add(tp.offset, tp.offset + tp.length, number)
        for tensor in tp.tensors:
            if tensor.extent is not None:
                for capture, offset, length in tensor.extent.pieces:
                    self._pieces[capture].add(offset, offset + length, number)

    def look(self, capture: int, flows: Sequence[Flow], blocks: Iterable[SegmentBlock]) -> None:
        """Looks at the segments of one capture; `flows` is the growing table that they refer to."""
        if not self._streams:
            self._streams = {
                flow: {origin: _CarryingStream(origin, ranges.columns()) for origin, ranges in its.items()}
                for flow, its in self._heads.items()
            }
        pieces = self._pieces.pop(capture, _Ranges()).columns()
        current: dict[int, _CarryingStream] = {}
        for block in blocks:
            if len(block):
                self._look(block, flows, current, pieces)

    def found(self) -> MessageFrames:
        """Returns the packets of all messages."""
        columns = [np.concatenate(column) for column in zip(*self._rows, strict=True)] or [NOTHING] * 5
        message, capture, packet, time_ns, begins = columns
        order = np.lexsort((-begins, packet, capture, message))
        columns = [column[order] for column in (message, capture, packet, time_ns, begins)]
        new = np.append(True, np.any([np.diff(column) for column in columns[:3]], axis=0))[: len(order)]
        return MessageFrames(*[column[new] for column in columns])

    def _look(
        self,
        block: SegmentBlock,
        flows: Sequence[Flow],
        current: dict[int, _CarryingStream],
        pieces: Columns,
    ) -> None:
        row, part = _segments_of(block, pieces)
        sections = list(self._sections(block, flows, current, set(block.flow[row].tolist())))
        start = np.zeros(len(block), dtype=np.int64)
        which = np.full(len(block), -1)
        for number, section in enumerate(sections):
            rows = section.rows
            sequences = block.sequence[rows] + ((block.flags[rows] & SYN) != 0)
            start[rows] = section.stream.positions(sequences, block.length[rows], block.time_ns[rows])
            which[rows] = number
        begin, end, owner = (column[part] for column in pieces)
        shift = start[row] - block.offset[row]
        for number in np.unique(which[row]).tolist():
            its = which[row] == number
            sections[number].stream.add((begin[its] + shift[its], end[its] + shift[its], owner[its]))
        for section in sections:
            rows = section.rows[block.length[section.rows] > 0]
            segment, owners, first = section.stream.owners(start[rows], start[rows] + block.length[rows])
            if len(segment):
                at = rows[segment]
                captures = np.full(len(at), block.capture)
                begins = first * section.stream.has_heads
                self._rows.append((owners, captures, block.packet[at], block.time_ns[at], begins))

    def _sections(
        self,
        block: SegmentBlock,
        flows: Sequence[Flow],
        current: dict[int, _CarryingStream],
        needed: set[int],
    ) -> Iterator[_Section]:
        """Cuts the rows of a block by stream; leaves out flows that carry nothing. `needed`: flows on which
        there are tensors."""
        order = np.argsort(block.flow, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(block.flow[order])) + 1):
            index = int(block.flow[rows[0]])
            known = self._streams.get(flows[index])
            if known is None and index not in needed:
                continue
            known = self._streams.setdefault(flows[index], {})
            opened = np.flatnonzero(block.flags[rows] & SYN).tolist()
            for low, high in pairwise([0, *opened, len(rows)]):
                if low in opened or index not in current:
                    first = (int(block.sequence[rows[low]]) + (low in opened)) % WRAP
                    if low not in opened and known:
                        first = next(iter(known))
                    current[index] = known.setdefault(first, _CarryingStream(first))
                if low < high:
                    yield _Section(current[index], rows[low:high])


def _segments_of(block: SegmentBlock, pieces: Columns) -> tuple[Int64s, Int64s]:
    """Returns (row of the block, piece) for each piece of a tensor that lies in a segment of it."""
    order = np.argsort(block.offset, kind="stable")
    offsets = block.offset[order]
    low, high = np.searchsorted(pieces[0], [offsets[0], int((block.offset + block.captured).max())])
    part = np.arange(low, high)
    at = np.searchsorted(offsets, pieces[0][part], "right") - 1
    row = order[at]
    there = pieces[0][part] < block.offset[row] + block.captured[row]
    return row[there], part[there]

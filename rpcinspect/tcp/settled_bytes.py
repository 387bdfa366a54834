"""The settled bytes of one direction of a connection, as ranges of the capture files rather than copies.

In: runs of segments and holes, in the order of their positions. Out: bytes, file ranges, times and packet
numbers by position. Zeros stand for what was not captured; `missing` says how much of a range that is.

Positions are TCP sequence numbers unwrapped to 64 bits; `position - origin` is the offset that people see.
Looking up many ranges at once and looking up one go by the same runs, side by side.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from itertools import chain, pairwise, repeat
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from rpcinspect.capture.block import Int64s
from rpcinspect.problems import Location
from rpcinspect.tcp.ranges import NO_COLUMN, NO_STAMP, CaptureBytes, Extent, RangeStamp, SegmentRun
from rpcinspect.tcp.segment import Flow

HISTORY_RUNS = 16
HISTORY_SEGMENTS = 512
"""How much of what readers are done with stays known, so that late copies can still be compared with it."""

MANY = 16
"""Ranges that are looked up all at once by numpy; fewer are faster one by one."""
end_of = attrgetter("end")


class SettledBytes:
    """Bytes of a direction before `end`, all captured or holes. `end` is None until the start is known."""

    __slots__ = ("_head", "_history", "_rested", "_source", "end", "flow", "holes", "origin", "runs")

    def __init__(self, flow: Flow, source: CaptureBytes, origin: int | None) -> None:
        self.flow = flow
        self.origin = origin
        """Position of the stream's first byte: known from the SYN, else the lowest that was captured."""
        self.end: int | None = origin
        """All before this position is settled."""
        self.runs: list[SegmentRun] = []
        """Settled runs that readers have not released, from index `_head` on."""
        self.holes: list[tuple[int, int]] = []
        self._head = 0
        self._rested = 0
        """Where `rest` has come to."""
        self._history: deque[SegmentRun] | None = None
        self._source = source

    def _locate(self, position: int) -> int:
        """Index of the run that holds a position at or after the released part."""
        runs, index = self.runs, self._head
        if index >= len(runs) or position < runs[index].end:
            return index
        return min(bisect_right(runs, position, index, key=end_of), len(runs) - 1)

    def read(self, start: int, end: int) -> bytes:
        """The bytes [start, end), all settled; zeros where they were not captured."""
        if start >= end:
            return b""
        index = self._locate(start)
        run = self.runs[index]
        if end <= run.end and not run.missing:
            return run.read(start, end, self._source)
        parts = []
        while start < end:
            run = self.runs[index]
            stop = min(end, run.end)
            if run.missing:
                parts.append(bytes(stop - start))
            else:
                parts.append(run.read(start, stop, self._source))
            start = stop
            index += 1
        return b"".join(parts)

    def extent(self, start: int, end: int) -> Extent:
        """Where the settled bytes [start, end) lie in the capture files."""
        pieces: list[tuple[int, int, int]] = []
        missing: list[tuple[int, int]] = []
        at = start
        index = self._locate(start) if start < end else 0
        while at < end:
            run = self.runs[index]
            stop = min(end, run.end)
            if run.missing:
                missing.append((at - start, stop - start))
            else:
                pieces += zip(repeat(run.capture), *run.segments(at, stop))
            at = stop
            index += 1
        return Extent(end - start, tuple(pieces), tuple(missing))

    def place(self, start: int, end: int, capture: int | None = None) -> tuple[Extent, RangeStamp]:
        """`extent` and `stamp` of [start, end) in one. What lies outside of the settled bytes is missing."""
        if self.end is None or self.origin is None or start < self.origin or self.end < end:
            return self._place_cut(start, end, capture)
        extent = self.extent(start, end)
        return extent, self.stamp(start, end, capture) if extent.pieces else NO_STAMP

    def whole(self, starts: Int64s, ends: Int64s) -> tuple[int, Int64s, Int64s, Int64s]:
        """Returns (capture, file offsets, times, packets) of the first ranges that each lie inside one
        segment of the same run; ranges are ascending and settled."""
        run = self.runs[self._locate(int(starts[0]))]
        if run.missing:
            return -1, NO_COLUMN, NO_COLUMN, NO_COLUMN
        edges, offsets = run.starts, run.offsets
        starts = starts[: np.searchsorted(starts, run.end)]
        low = np.searchsorted(edges, starts, "right") - 1
        outside = np.flatnonzero(ends[: len(starts)] > np.append(edges[1:], run.end)[low])
        if len(outside):
            starts, low = starts[: outside[0]], low[: outside[0]]
        return run.capture, offsets[low] + (starts - edges[low]), run.times[low], run.packets[low]

    def numbers(self, capture: int, offsets: Int64s) -> NDArray[np.uint64]:
        """Returns the 64-bit numbers at file offsets, as far as they are in the window."""
        return self._source.numbers(capture, offsets)

    def _place_cut(self, start: int, end: int, capture: int | None) -> tuple[Extent, RangeStamp]:
        if start == end:  # nothing can be missing of nothing
            return Extent(0, ()), NO_STAMP
        low = max(start, self.origin if self.origin is not None else end)
        high = min(end, self.end if self.end is not None else start)
        if low >= high:
            return Extent(end - start, (), ((0, end - start),)), NO_STAMP
        inner, stamp = self.place(low, high, capture)
        missing = [(a + low - start, b + low - start) for a, b in inner.missing]
        if low > start:
            missing.insert(0, (0, low - start))
        if high < end:
            missing.append((high - start, end - start))
        return Extent(end - start, inner.pieces, tuple(missing)), stamp

    def missing(self, start: int, end: int) -> int:
        """How many of the settled bytes [start, end) were not captured."""
        if not self.holes:
            return 0
        total = 0
        holes = self.holes
        for at in range(max(0, bisect_right(holes, (start, start)) - 1), len(holes)):
            a, b = holes[at]
            if a >= end:
                break
            total += max(0, min(b, end) - max(a, start))
        return total

    def next_hole(self, position: int) -> tuple[int, int] | None:
        """The hole that holds a position or is the first after it."""
        at = max(0, bisect_right(self.holes, (position, position)) - 1)
        for hole in self.holes[at : at + 2]:
            if hole[1] > position:
                return hole
        return None

    def stamp(self, start: int, end: int, capture: int | None = None) -> RangeStamp:
        """The stamp of the captured bytes in [start, end). With a capture, the last three numbers are of that
        one, and -1 where it holds none of the bytes.
        """
        index = self._locate(start)
        runs = self.runs
        run = runs[index]
        if end <= run.end and not run.missing and capture in (None, run.capture):
            return run.stamp(start, end)
        found = []
        while start < end and index < len(runs):
            run = runs[index]
            stop = min(end, run.end)
            if not run.missing and start < stop:
                found.append(run.stamp(start, stop))
            start = stop
            index += 1
        if not found:
            return NO_STAMP
        which = found[0][2] if capture is None else capture
        firsts, lasts, _, _, _, _ = zip(*found, strict=True)
        its = [one for one in found if one[2] == which]
        packets = [packet for one in its for packet in one[4:]]
        packet = its[0][3] if its else -1
        return min(firsts), max(lasts), which, packet, min(packets, default=-1), max(packets, default=-1)

    def stamps(self, edges: list[int]) -> Iterable[RangeStamp]:
        """`stamp` of each range from one edge to the next; edges ascend."""
        if len(edges) < MANY:
            return [self.stamp(start, end) for start, end in pairwise(edges)]
        parts: list[Iterable[RangeStamp]] = []
        at, last = 0, len(edges) - 1
        while at < last:
            run = self.runs[self._locate(edges[at])]
            stop = bisect_right(edges, run.end, at + 1) - 1
            if stop == at or run.missing:
                parts.append([self.stamp(edges[at], edges[at + 1])])
                at += 1
            else:
                parts.append(run.stamps(edges[at : stop + 1]))
                at = stop
        return chain.from_iterable(parts)

    def segment_end(self, position: int) -> int:
        """Where the segment that holds this settled position ends, or the hole."""
        run = self.runs[self._locate(position)]
        if run.missing:
            return run.end
        starts = run.lists()[0]
        at = bisect_right(starts, position)
        return starts[at] if at < len(starts) else run.end

    def location(self, position: int) -> Location:
        """The place of a settled position, for people."""
        capture: int | None = None
        packet: int | None = None
        if self.runs and self.end is not None and position < self.end:
            run = self.runs[self._locate(position)]
            if not run.missing and run.start <= position < run.end:
                _, _, capture, packet, _, _ = run.stamp(position, position + 1)
        return Location(capture=capture, packet=packet, flow=str(self.flow), offset=self.offset(position))

    def offset(self, position: int) -> int:
        """Bytes from the start of the stream."""
        return position - (self.origin if self.origin is not None else position)

    @property
    def kept_from(self) -> int | None:
        """The first position that can still be read."""
        return self.runs[self._head].start if self._head < len(self.runs) else self.end

    def rest(self, position: int) -> None:
        """Readers are done with all before this position for now, and will want it again at the end."""
        index = self._locate(self._rested)
        while index < len(self.runs) and self.runs[index].end <= position:
            self.runs[index].forget_lists()
            index += 1
        self._rested = max(self._rested, position)

    def release(self, position: int) -> None:
        """Readers are done with all before this position."""
        runs = self.runs
        head = self._head
        while head < len(runs) and runs[head].end <= position:
            run = runs[head]
            if not run.missing:
                if len(run.starts) > HISTORY_SEGMENTS:
                    run = run.slice(int(run.starts[-HISTORY_SEGMENTS]), run.end)
                run.forget_lists()
                if self._history is None:
                    self._history = deque(maxlen=HISTORY_RUNS)
                self._history.append(run)
            head += 1
        if head > max(64, len(runs) // 8) or head == len(runs):
            del runs[:head]
            head = 0
        self._head = head

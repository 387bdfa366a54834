"""One direction of one TCP connection, as ranges of the capture file rather than copies of its bytes.

In: *runs* of segments (numpy columns) in the order of capture. Out: a contiguous stream that grows at `end`;
readers take bytes, file ranges, times and packet numbers by position. Where two copies of a byte were
captured the first wins, and a copy that differs is noted. What can't come any more becomes a hole with an
exact range.

Positions are TCP sequence numbers unwrapped to 64 bits; `position - origin` is the offset that people see.

Longer than others: looking up many ranges at once and looking up one go by the same runs, side by side.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from itertools import chain, pairwise, repeat
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray
from sortedcontainers import SortedDict

from rpcinspect.capture.block import Int64s
from rpcinspect.errors import Location
from rpcinspect.wire.ranges import CaptureBytes, Extent, Run
from rpcinspect.wire.segment import Flow

if TYPE_CHECKING:
    from rpcinspect.wire.tcp import Connection

HISTORY_RUNS = 16
HISTORY_SEGMENTS = 512
"""How much of what readers are done with stays known, so that late copies can still be compared with it."""

NOTHING_PENDING: SortedDict = SortedDict()
"""Stands for that of each stream until something is: empty ones of their own would be most of the memory that
a capture of many connections takes. Never written to.
"""
MAX_CONFLICTS = 1000

MANY = 16
"""Ranges that are looked up all at once by numpy; fewer are faster one by one."""
NO_NUMBERS = np.empty(0, dtype=np.int64)


class Conflict(Struct, frozen=True):
    """Two copies of the same stream bytes that differ; the first was kept."""

    position: int
    length: int
    packet: int
    """Of the copy that was dropped."""
    capture: int


class Stream:
    """One direction of a connection; see the module's text. `end` is None until its start is settled."""

    __slots__ = (
        "_head",
        "_history",
        "_pending",
        "_rested",
        "_source",
        "acked",
        "conflicts",
        "connection",
        "cut_bytes",
        "end",
        "fin",
        "fin_ns",
        "finished",
        "first_ns",
        "flow",
        "hole_since_ns",
        "holes",
        "last_ns",
        "origin",
        "runs",
        "sent",
        "start_known",
    )

    def __init__(self, flow: Flow, connection: Connection, source: CaptureBytes, origin: int | None) -> None:
        self.flow = flow
        self.connection = connection
        self.origin = origin
        """Position of the stream's first byte: known from the SYN, else the lowest that was captured."""
        self.start_known = origin is not None
        """Whether `origin` is where the stream began, and not only where its capture did."""
        self.end: int | None = origin
        """All before this position is settled: captured, or a hole."""
        self.runs: list[Run] = []
        """Settled runs that readers have not released, from index `_head` on."""
        self.holes: list[tuple[int, int]] = []
        self.conflicts: list[Conflict] = []
        self.cut_bytes = 0
        """Bytes of this direction that a snap length cut off."""
        self.sent: tuple[int, int] | None = None
        """(latest capture, position after the last byte that it shows to be sent, cut off or not)."""
        self.fin: int | None = None
        """Position after the last byte, once a FIN told it."""
        self.fin_ns: int | None = None
        """When that FIN was captured."""
        self.acked: int | None = None
        """Highest position that the other side acknowledged."""
        self.finished = False
        self.first_ns: int | None = None
        self.last_ns = 0
        self.hole_since_ns: int | None = None
        self._head = 0
        self._rested = 0
        """Where `rest` has come to."""
        self._pending: SortedDict = NOTHING_PENDING
        self._history: deque[Run] | None = None
        self._source = source

    # -- writing: what the TCP stage does ----------------------------------------------------------------

    def offer(self, run: Run) -> None:
        """Takes a run of segments in the order of capture."""
        if self.end is None:
            self._insert(run)
        elif run.start == self.end and not self._pending:
            self._append(run)
        else:
            if run.start < self.end:
                stop = min(run.end, self.end)
                self._compare_all(run, run.start, stop)
                if run.end <= self.end:
                    return
                run = run.slice(self.end, run.end)
            self._insert(run)
            self._drain()

    def settle_start(self) -> None:
        """Gives up waiting for earlier bytes of a stream whose SYN was not captured."""
        if self.end is None and self._pending:
            self.origin = self.end = int(self._pending.peekitem(0)[0])
            self._drain()

    def settle_hole(self) -> None:
        """Turns the missing bytes before the next pending run into a hole."""
        if self.end is not None and self._pending:
            self._hole(int(self._pending.peekitem(0)[0]))
            self._drain()

    def finish(self) -> None:
        """Nothing more will be captured of this stream: settles all that is pending, and the tail."""
        if self.finished:
            return
        self.settle_start()
        while self._pending:
            self.settle_hole()
        if self.end is not None:
            tail = self.end
            if self.fin is not None:
                tail = max(tail, self.fin)
            elif (
                self.acked is not None and self.acked > self.end + 1
            ):  # a FIN that was not captured counts one
                tail = self.acked
            if tail > self.end:
                self._hole(tail)
        self.finished = True

    @property
    def waiting(self) -> bool:
        """Whether captured bytes wait behind missing ones."""
        return bool(self._pending)

    @property
    def pending_start(self) -> int | None:
        """Position of the first captured byte behind the missing ones."""
        return int(self._pending.peekitem(0)[0]) if self._pending else None

    def _hole(self, to: int) -> None:
        assert self.end is not None
        self._append(Run(self.end, to))

    def _append(self, run: Run) -> None:
        self.runs.append(run)
        self.end = run.end
        if run.starts is None:
            if self.holes and self.holes[-1][1] == run.start:
                self.holes[-1] = (self.holes[-1][0], run.end)
            else:
                self.holes.append((run.start, run.end))

    def _drain(self) -> None:
        pending = self._pending
        while pending:
            start, run = pending.peekitem(0)
            if start != self.end:
                return
            pending.popitem(0)
            self._append(run)

    def _insert(self, run: Run) -> None:
        """Adds the parts of a run that no pending run covers yet; pending runs never overlap."""
        if self._pending is NOTHING_PENDING:
            self._pending = SortedDict()
        pending = self._pending
        start, end = run.start, run.end
        at = pending.bisect_right(start) - 1
        if at >= 0:
            before = pending.peekitem(at)[1]
            if before.end > start:
                self._compare(before, run, start, min(before.end, end))
                start = before.end
        at += 1
        while start < end:
            after = pending.peekitem(at)[1] if at < len(pending) else None
            if after is None or after.start >= end:
                pending[start] = run.slice(start, end)
                return
            if after.start > start:
                pending[start] = run.slice(start, after.start)
                at += 1
            self._compare(after, run, after.start, min(after.end, end))
            start = after.end
            at += 1

    def _compare_all(self, run: Run, start: int, end: int) -> None:
        """Notes where a second copy of [start, end) differs from whatever was kept of it."""
        if not run.missing and start < end and len(self.conflicts) < MAX_CONFLICTS:
            for kept in self._kept(start, end):
                self._compare(kept, run, max(kept.start, start), min(kept.end, end))

    def _compare(self, kept: Run, run: Run, start: int, end: int) -> None:
        """Notes where a second copy of [start, end), which both runs hold, differs from the first."""
        if run.missing or kept.missing or start >= end or len(self.conflicts) >= MAX_CONFLICTS:
            return
        first = self._source.gather(kept.capture, *kept.segments(start, end))
        second = self._source.gather(run.capture, *run.segments(start, end))
        if first != second:
            at = next(i for i, (x, y) in enumerate(zip(first, second, strict=True)) if x != y)
            starts, _, packets, _, _ = run.lists()
            packet = packets[bisect_right(starts, start + at) - 1]
            self.conflicts.append(Conflict(start + at, end - start - at, packet, run.capture))

    def _kept(self, start: int, end: int) -> list[Run]:
        found = [r for r in self._history or () if r.start < end and start < r.end]
        runs = self.runs
        index = bisect_right(runs, start, self._head, key=_end_of)
        while index < len(runs) and runs[index].start < end:
            found.append(runs[index])
            index += 1
        at = max(0, self._pending.bisect_right(start) - 1)
        while at < len(self._pending):
            run = self._pending.peekitem(at)[1]
            if run.start >= end:
                break
            found.append(run)
            at += 1
        return found

    # -- reading: what frames are made from --------------------------------------------------------------

    def _locate(self, position: int) -> int:
        """Index of the run that holds a position at or after the released part."""
        runs, index = self.runs, self._head
        if index >= len(runs) or position < runs[index].end:
            return index
        return min(bisect_right(runs, position, index, key=_end_of), len(runs) - 1)

    def read(self, start: int, end: int) -> bytes:
        """The bytes [start, end), all settled; zeros where they were not captured."""
        if start >= end:
            return b""
        index = self._locate(start)
        run = self.runs[index]
        if end <= run.end and not run.missing:
            return self._source.gather(run.capture, *run.segments(start, end))
        parts = []
        while start < end:
            run = self.runs[index]
            stop = min(end, run.end)
            if run.missing:
                parts.append(bytes(stop - start))
            else:
                parts.append(self._source.gather(run.capture, *run.segments(start, stop)))
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

    def place(self, start: int, end: int) -> tuple[Extent, int, int]:
        """(extent, first ns, last ns) of the settled bytes [start, end): `extent` and `stamp` in one."""
        extent = self.extent(start, end)
        first, last, _, _ = self.stamp(start, end) if extent.pieces else (0, 0, -1, -1)
        return extent, first, last

    def whole(self, starts: Int64s, ends: Int64s) -> tuple[int, Int64s, Int64s]:
        """Of ascending settled ranges the first ones, as long as each lies inside one segment of one and the
        same run: (capture, their offsets in its file, their times).
        """
        run = self.runs[self._locate(int(starts[0]))]
        edges, offsets, times = run.starts, run.offsets, run.times
        if edges is None or offsets is None or times is None:
            return -1, NO_NUMBERS, NO_NUMBERS
        starts = starts[: np.searchsorted(starts, run.end)]
        low = np.searchsorted(edges, starts, "right") - 1
        outside = np.flatnonzero(ends[: len(starts)] > np.append(edges[1:], run.end)[low])
        if len(outside):
            starts, low = starts[: outside[0]], low[: outside[0]]
        return run.capture, offsets[low] + (starts - edges[low]), times[low]

    def numbers(self, capture: int, offsets: Int64s) -> NDArray[np.uint64]:
        """The 64-bit numbers at these offsets, as long as they are at hand."""
        return self._source.numbers(capture, offsets)

    def place_cut(self, start: int, end: int) -> tuple[Extent, int, int]:
        """As `place` of a range that reaches outside of what was captured: the rest of it is missing."""
        if start == end:  # nothing can be missing of nothing
            return Extent(0, ()), 0, 0
        low = max(start, self.origin if self.origin is not None else end)
        high = min(end, self.end if self.end is not None else start)
        if low >= high:
            return Extent(end - start, (), ((0, end - start),)), 0, 0
        inner, first, last = self.place(low, high)
        missing = [(a + low - start, b + low - start) for a, b in inner.missing]
        if low > start:
            missing.insert(0, (0, low - start))
        if high < end:
            missing.append((high - start, end - start))
        return Extent(end - start, inner.pieces, tuple(missing)), first, last

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

    def stamp(self, start: int, end: int) -> tuple[int, int, int, int]:
        """(first ns, last ns, capture, packet) of the captured bytes in [start, end); the packet is the first
        one's.

        Zeros where none of them was captured (capture and packet -1).
        """
        index = self._locate(start)
        runs = self.runs
        run = runs[index]
        if end <= run.end and not run.missing:
            return run.stamp(start, end)
        first, last, capture, packet = 0, 0, -1, -1
        while start < end and index < len(runs):
            run = runs[index]
            stop = min(end, run.end)
            if not run.missing and start < stop:
                low, high, its_capture, its_packet = run.stamp(start, stop)
                if capture < 0:
                    first, last, capture, packet = low, high, its_capture, its_packet
                else:
                    first, last = min(first, low), max(last, high)
            start = stop
            index += 1
        return first, last, capture, packet

    def stamps(self, edges: list[int]) -> Iterable[tuple[int, int, int, int]]:
        """`stamp` of each range from one edge to the next; edges ascend."""
        if len(edges) < MANY:
            return [self.stamp(start, end) for start, end in pairwise(edges)]
        parts: list[Iterable[tuple[int, int, int, int]]] = []
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
        if run.starts is None:
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
                _, _, capture, packet = run.stamp(position, position + 1)
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
                assert run.starts is not None
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


def _end_of(run: Run) -> int:
    return run.end

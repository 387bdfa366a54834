"""TCP connections and their two streams, which grow as segments are captured.

In: *runs* of segments (numpy columns) in the order of capture. Out: contiguous streams that grow at `end`.
Where two copies of a byte were captured the first wins, and a copy that differs is noted. What can't come any
more becomes a hole with an exact range.
"""

from __future__ import annotations

from bisect import bisect_right

from msgspec import Struct
from sortedcontainers import SortedDict

from rpcinspect.tcp.ranges import CaptureBytes, SegmentRun
from rpcinspect.tcp.segment import Flow
from rpcinspect.tcp.settled_bytes import SettledBytes, end_of

EPOCH = 1 << 34
"""First unwrapped position: far enough from 0 that bytes before the first captured one stay positive."""
WRAP = 1 << 32

NOTHING_PENDING: SortedDict = SortedDict()
"""Stands for that of each stream until something is: empty ones of their own would be most of the memory that
a capture of many connections takes. Never written to.
"""
MAX_CONFLICTS = 1000


class Connection:
    """A TCP connection between two endpoints; a port that is used again makes another one."""

    __slots__ = (
        "backward",
        "client",
        "client_isn",
        "flow",
        "forward",
        "number",
        "reset_by",
        "reset_ns",
        "server_isn",
    )

    def __init__(
        self, number: int, flow: Flow, source: CaptureBytes, isn: int | None, other_isn: int | None
    ) -> None:
        """`flow` is the direction that was seen first, `isn` its initial sequence number, where known."""
        self.number = number
        self.flow = flow
        self.forward = Stream(flow, self, source, _first_position(isn))
        """The stream of `flow`."""
        self.backward = Stream(flow.reversed, self, source, _first_position(other_isn))
        self.client: Stream | None = None
        """The stream of the side that opened the connection; None while that is not known."""
        self.client_isn: int | None = None
        self.server_isn: int | None = None
        self.reset_ns: int | None = None
        """When the first RST was captured."""
        self.reset_by: Stream | None = None
        """The direction in which it went."""

    @property
    def streams(self) -> tuple[Stream, Stream]:
        """Returns both directions."""
        return self.forward, self.backward

    @property
    def ended_ns(self) -> int | None:
        """Returns when a side closed or reset the connection; None while that was not captured."""
        ends = (self.forward.fin_ns, self.backward.fin_ns, self.reset_ns)
        return min((end for end in ends if end is not None), default=None)

    def other(self, stream: Stream) -> Stream:
        """The opposite direction."""
        return self.backward if stream is self.forward else self.forward

    @property
    def server(self) -> Stream | None:
        """The stream of the side that listened."""
        return None if self.client is None else self.other(self.client)


class Conflict(Struct, frozen=True):
    """Copies of the same stream bytes that differ; the first copy was kept."""

    position: int
    length: int
    packet: int
    """Of the copy that was dropped."""
    capture: int


class Stream(SettledBytes):
    """A direction of a connection; grows as segments are captured."""

    __slots__ = (
        "_pending",
        "acked",
        "conflicts",
        "connection",
        "cut_bytes",
        "fin",
        "fin_ns",
        "finished",
        "first_ns",
        "hole_since_ns",
        "last_ns",
        "sent",
        "start_known",
    )

    def __init__(self, flow: Flow, connection: Connection, source: CaptureBytes, origin: int | None) -> None:
        super().__init__(flow, source, origin)
        self.connection = connection
        self.start_known = origin is not None
        """Whether `origin` is where the stream began, and not only where its capture did."""
        self.conflicts: list[Conflict] = []
        self.cut_bytes = 0
        """Bytes of this direction that a snap length cut off."""
        self.sent: tuple[int, int] | None = None
        """(latest capture, position after the last byte that it shows to be sent, cut off or not)."""
        self.fin: int | None = None
        """Position after the last byte, once a FIN was captured."""
        self.fin_ns: int | None = None
        """When that FIN was captured."""
        self.acked: int | None = None
        """Highest position that the other side acknowledged."""
        self.finished = False
        self.first_ns: int | None = None
        self.last_ns = 0
        self.hole_since_ns: int | None = None
        self._pending: SortedDict = NOTHING_PENDING

    def offer(self, run: SegmentRun) -> None:
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

    def begin(self, isn: int) -> None:
        """Settles the start by the initial sequence number, unless captured bytes lie before it."""
        if self.end is not None:
            return
        first, number = self.pending_start, (isn + 1) % WRAP
        start = EPOCH + number if first is None else unwrap(first, number)
        if first is None or start <= first:
            self.origin = self.end = start
            self.start_known = True
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
        """Settles all that is pending, and the tail, at the end of the capture."""
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
        self._append(SegmentRun(self.end, to))

    def _append(self, run: SegmentRun) -> None:
        self.runs.append(run)
        self.end = run.end
        if run.missing:
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

    def _insert(self, run: SegmentRun) -> None:
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

    def _compare_all(self, run: SegmentRun, start: int, end: int) -> None:
        """Notes where a second copy of [start, end) differs from the parts that were kept."""
        if not run.missing and start < end and len(self.conflicts) < MAX_CONFLICTS:
            for kept in self._kept(start, end):
                self._compare(kept, run, max(kept.start, start), min(kept.end, end))

    def _compare(self, kept: SegmentRun, run: SegmentRun, start: int, end: int) -> None:
        """Notes where a second copy of [start, end), which both runs hold, differs from the first."""
        if run.missing or kept.missing or start >= end or len(self.conflicts) >= MAX_CONFLICTS:
            return
        first = kept.read(start, end, self._source)
        second = run.read(start, end, self._source)
        if first != second:
            at = next(i for i, (x, y) in enumerate(zip(first, second, strict=True)) if x != y)
            starts, _, packets, _, _ = run.lists()
            packet = packets[bisect_right(starts, start + at) - 1]
            self.conflicts.append(Conflict(start + at, end - start - at, packet, run.capture))

    def _kept(self, start: int, end: int) -> list[SegmentRun]:
        """Returns what of a range before `self.end` is there."""
        found = [r for r in self._history or () if r.start < end and start < r.end]
        runs = self.runs
        index = bisect_right(runs, start, self._head, key=end_of)
        while index < len(runs) and runs[index].start < end:
            found.append(runs[index])
            index += 1
        return found


def unwrap(near: int, sequence: int) -> int:
    """The position nearest to `near` that has this 32-bit sequence number."""
    return near + ((sequence - near + WRAP // 2) % WRAP) - WRAP // 2


def _first_position(isn: int | None) -> int | None:
    """Returns the position of a stream's first byte, behind this sequence number."""
    return None if isn is None else EPOCH + ((isn + 1) % WRAP)

"""The order of calls, as far as they have one: it pairs what is left in both runs, and tells what stands
elsewhere in the other run.

In: the calls of a lane of both runs, which of them are paired, and on which thread of the program each was
sent. Out: more pairs. A call may change places with those of other threads and with those that overlap it,
not with one of its thread that was over before it began, nor with one that began after it was over: where
such a pair lies between two calls in one run and not in the other, they are not each other's. A thread whose
paired calls have changed places themselves has no order to go by.

Of aligned calls: groups that have changed places, and calls without a partner that repeat one that has. Two
calls have an order only if the same worker certainly sent both while it served the same request, or of its
own, and one was over before the other began. Calls that overlap have none, so their order is never a
difference.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from itertools import accumulate
from typing import Protocol, TypeAlias

from rpcinspect.diff.sequences import IndexPairs, unpaired
from rpcinspect.diff.side import DiffSide
from rpcinspect.rpc.questions import GENERAL
from rpcinspect.run.exchanges import Exchange

MAX_TRIALS = 64
"""Calls that are tried for one."""


class TimeSpan(Protocol):
    """What began, and perhaps ended: a call, or all of a context."""

    @property
    def begin_ns(self) -> int:
        """Returns when it began."""

    @property
    def end_ns(self) -> int | None:
        """Returns when it ended; None where it did not."""


ThreadKeys: TypeAlias = tuple[Sequence[Hashable], Sequence[Hashable]]
"""Of both runs: what is the same for calls that one thread sent one after the other."""


def in_time(
    a: Sequence[TimeSpan],
    b: Sequence[TimeSpan],
    pairs: IndexPairs,
    keys: tuple[Sequence[Hashable], ...] = (),
    threads: ThreadKeys | None = None,
) -> IndexPairs:
    """Returns the pairs and pairs of what is left: the first with the first possible partner, and so on;
    `keys` of both runs must be equal. Without `threads` all are of one thread."""
    left_a, left_b = unpaired(len(a), len(b), pairs)
    between = _Between(a, b, pairs, threads)
    found = list(pairs)
    left_a.sort(key=lambda place: a[place].begin_ns)
    left_b.sort(key=lambda place: b[place].begin_ns)
    for i in left_a:
        for at, j in enumerate(left_b[:MAX_TRIALS]):
            if (not keys or keys[0][i] == keys[1][j]) and between.nothing(i, j):
                found.append((i, j))
                del left_b[at]
                break
    return sorted(found)


def in_place(
    a: Sequence[TimeSpan],
    b: Sequence[TimeSpan],
    pairs: IndexPairs,
    more: IndexPairs,
    threads: ThreadKeys | None = None,
) -> IndexPairs:
    """Returns the pairs, and of `more` those that lie after and before the same pairs in both runs."""
    if not more:
        return sorted(pairs)
    between = _Between(a, b, pairs, threads)
    return sorted([*pairs, *(pair for pair in more if between.nothing(*pair))])


def overlap(one: TimeSpan, other: TimeSpan) -> bool:
    """Whether neither was over when the other began."""
    first, second = (one, other) if one.begin_ns <= other.begin_ns else (other, one)
    return first.end_ns is None or first.end_ns >= second.begin_ns


class _Between:
    """Which pairs lie after a call of the first run and before one of the second, or the other way round."""

    def __init__(
        self, a: Sequence[TimeSpan], b: Sequence[TimeSpan], pairs: IndexPairs, threads: ThreadKeys | None
    ) -> None:
        self._a, self._b, self._threads = a, b, threads
        lanes: dict[Hashable, list[tuple[TimeSpan, TimeSpan]]] = defaultdict(list)
        for i, j in pairs:
            lanes[self._thread(i, j)].append((a[i], b[j]))
        self._lanes = {thread: PlacedPairs(lane) for thread, lane in lanes.items()}

    def _thread(self, i: int, j: int) -> Hashable:
        return None if self._threads is None else (self._threads[0][i], self._threads[1][j])

    def nothing(self, i: int, j: int) -> bool:
        """Returns whether no pair of their thread lies between."""
        lane = self._lanes.get(self._thread(i, j))
        return lane is None or not lane.ordered or lane.nothing(self._a[i], self._b[j])


class PlacedPairs:
    """The pairs of one thread."""

    def __init__(self, pairs: Sequence[tuple[TimeSpan, TimeSpan]]) -> None:
        begun = sorted(pairs, key=lambda pair: pair[0].begin_ns)
        self._begins = [pair[0].begin_ns for pair in begun]
        self._soonest = list(accumulate((_over(pair[1]) for pair in reversed(begun)), min))[::-1]
        """Of the pairs from each on: when the first of them was over in b."""
        ended = sorted(pairs, key=lambda pair: _over(pair[0]))
        self._ends = [_over(pair[0]) for pair in ended]
        self._latest = list(accumulate((pair[1].begin_ns for pair in ended), max))
        """Of the pairs up to each: when the last of them began in b."""
        self.ordered = all(self.nothing(*pair) for pair in pairs)
        """Whether each pair stands in the same place in both runs."""

    def nothing(self, one: TimeSpan, other: TimeSpan) -> bool:
        """Whether no pair lies between."""
        after = bisect_right(self._begins, _over(one))
        if after < len(self._begins) and self._soonest[after] < other.begin_ns:
            return False
        before = bisect_left(self._ends, one.begin_ns)
        return before == 0 or self._latest[before - 1] <= _over(other)


def _over(call: TimeSpan) -> float:
    """When a call was over; one without an answer never is."""
    return float("inf") if call.end_ns is None else call.end_ns


def changed_places(a: DiffSide, b: DiffSide, pairs: Mapping[int, int]) -> list[list[tuple[int, int]]]:
    """Returns groups of pairs of requests, in the order of the first run: each call was over, in one run,
    before another of its group began, and began after that one was over in the other run."""
    lanes: dict[Hashable, list[tuple[Exchange, Exchange]]] = defaultdict(list)
    for index, partner in pairs.items():
        call, other = a.calls[index], b.calls[partner]
        if call.kind not in GENERAL or call.control or index in a.causes.doubts or partner in b.causes.doubts:
            continue
        parent = a.causes.parents.get(index)
        lanes[a.signs[index].job, a.signs[index].caller, parent].append((call, other))
    groups: list[list[tuple[int, int]]] = []
    for lane in lanes.values():
        groups += _groups(_moved(lane))
    return sorted(groups)


def _moved(lane: Sequence[tuple[Exchange, Exchange]]) -> list[tuple[Exchange, Exchange]]:
    """The pairs of a lane that stand the other way round to another one."""
    ordered = sorted(lane, key=lambda pair: (pair[0].begin_ns, pair[0].index))
    placed = PlacedPairs(ordered)
    return [] if placed.ordered else [pair for pair in ordered if not placed.nothing(*pair)]


def _groups(moved: Sequence[tuple[Exchange, Exchange]]) -> list[list[tuple[int, int]]]:
    """Cuts the moved calls wherever all before the cut come before all behind it in both runs."""
    places = sorted(range(len(moved)), key=lambda n: moved[n][1].begin_ns)
    rank = {n: at for at, n in enumerate(places)}
    groups: list[list[tuple[int, int]]] = []
    highest = -1
    current: list[tuple[int, int]] = []
    for n, (call, other) in enumerate(moved):
        current.append((call.index, other.index))
        highest = max(highest, rank[n])
        if highest == n:
            groups.append(current)
            current = []
    return groups


def repeated(run: DiffSide, paired: set[int]) -> set[int]:
    """Returns calls without a partner whose neighbour in their lane has a partner and the same content."""
    found: set[int] = set()
    left = [
        call
        for call in run.calls.values()
        if call.index not in paired and call.kind in GENERAL and not call.control
    ]
    if not left:
        return found
    wanted = {run.signs[call.index] for call in left}
    lanes: dict[Hashable, list[int]] = defaultdict(list)
    for call in run.calls.values():
        if run.signs[call.index] in wanted:
            lanes[run.signs[call.index]].append(call.index)
    for lane in lanes.values():
        for order in (range(len(lane)), range(len(lane) - 1, -1, -1)):
            last: int | None = None  # the last one that has a partner, or repeats one
            for at in order:
                index = lane[at]
                if index in paired or index in found:
                    last = index
                elif last is not None and run.content(last) == run.content(index) and _near(run, last, index):
                    found.add(index)
                    last = index
                else:
                    last = None
    return found


def _near(run: DiffSide, one: int, other: int) -> bool:
    """Whether two calls are of one context, or of none."""
    return run.calls[one].context == run.calls[other].context

"""Calls that both runs make, one after the other, and in another order.

In: aligned calls. Out: groups of calls that have changed places. Two calls have an order only if the same
worker certainly sent both while it served the same request, or of its own, and one was over before the
other began.
Calls that overlap have none, so their order is never a difference.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from itertools import accumulate, pairwise

from rpcinspect.diff.side import DiffSide
from rpcinspect.rpc.questions import GENERAL
from rpcinspect.run.exchanges import Exchange


def changed_places(a: DiffSide, b: DiffSide, pairs: Mapping[int, int]) -> list[list[tuple[int, int]]]:
    """Groups of pairs of requests, each in the order of the first run: each call was over, in one run, before
    another of its group began, and began after that was over in the other run."""
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
    if _ascends(ordered):
        return []
    begins = [pair[0].begin_ns for pair in ordered]
    # Of all pairs from a place on, in the order of a: the one that is over first in b.
    soonest = list(accumulate((_end(pair[1]) for pair in reversed(ordered)), min))[::-1]
    by_end = sorted(ordered, key=lambda pair: _end(pair[0]))
    ends = [_end(pair[0]) for pair in by_end]
    # Of all pairs that are over in a up to a place: the one that begins last in b.
    latest = list(accumulate((pair[1].begin_ns for pair in by_end), max))
    found = []
    for pair in ordered:
        after = bisect_right(begins, _end(pair[0]))
        before = bisect_right(ends, pair[0].begin_ns - 1)
        if (after < len(soonest) and soonest[after] < pair[1].begin_ns) or (
            before > 0 and latest[before - 1] > _end(pair[1])
        ):
            found.append(pair)
    return found


def _ascends(ordered: Sequence[tuple[Exchange, Exchange]]) -> bool:
    """Whether they begin in the same order in both runs."""
    return all(x[1].begin_ns <= y[1].begin_ns for x, y in pairwise(ordered))


def _end(call: Exchange) -> float:
    """When a call was over; one without an answer never is."""
    return float("inf") if call.end_ns is None else call.end_ns


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

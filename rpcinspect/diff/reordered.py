"""Calls that stand elsewhere in the other run: in another order, or once more beside themselves.

In: aligned calls. Out: groups of calls that have changed places; calls without a partner that repeat one that
has. Two calls have an order only if the same worker certainly sent both while it served the same request, or
of its own, and one was over before the other began. Calls that overlap have none, so their order is never a
difference.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence

from rpcinspect.diff.order import Lane
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
    placed = Lane(ordered)
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
    """Calls without a partner whose neighbour in their lane has one and says the same."""
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

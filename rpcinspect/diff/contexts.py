"""Which autograd context of one run is which of the other.

In: two runs, and the keys of their calls. Out: numbers that both runs have in common. A context is an
iteration in most programs. Those that one worker opened are paired by what all their calls say, then by most
of it, by their first call, by which calls they have, and by their order.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Sequence

from msgspec import Struct, field

from rpcinspect.diff.keys import Keys
from rpcinspect.diff.order import in_time
from rpcinspect.diff.sequences import Level, align, overlapping, unpaired
from rpcinspect.diff.side import DiffSide
from rpcinspect.rpc.questions import HOUSEKEEPING
from rpcinspect.run.exchanges import Exchange

OUTSIDE = -1


class ContextCalls(Struct, eq=False):
    """A context with its calls, in the order in which they began."""

    job: int
    owner: str
    """Who sent its first message."""
    id: int
    calls: list[int] = field(default_factory=list)
    """Those that code sends."""
    begin_ns: int = 0
    end_ns: int | None = 0
    """When the last of its calls was over; None where one never was."""


class ContextGroups:
    """The contexts of one run."""

    def __init__(self, side: DiffSide, keys: Keys) -> None:
        self.side = side
        self.keys = keys
        self._found: dict[tuple[int, int], ContextCalls] = {}
        self.numbers: dict[tuple[int, int], int] = {}
        """(job, context) → its number; set by `match_contexts`."""
        general = {call.index for call in keys.general}
        for call in side.calls.values():
            if call.context is None or call.control or call.kind in HOUSEKEEPING:
                continue
            group = self._found.get((call.job, call.context))
            if group is None:
                group = ContextCalls(
                    call.job, side.signs[call.index].caller, call.context, begin_ns=call.begin_ns
                )
                self._found[call.job, call.context] = group
            if group.end_ns is not None:
                group.end_ns = None if call.end_ns is None else max(group.end_ns, call.end_ns)
            if call.index in general:
                group.calls.append(call.index)

    def of_owners(self) -> dict[Hashable, list[ContextCalls]]:
        """The contexts by who opened them."""
        found: dict[Hashable, list[ContextCalls]] = defaultdict(list)
        for group in self._found.values():
            found[group.job, group.owner].append(group)
        return found

    def number(self, call: Exchange) -> Hashable:
        """Gives the number of a call's context: the same in both runs for paired contexts, else one of this
        run alone; `OUTSIDE` for a call in no context.
        """
        if call.context is None:
            return OUTSIDE
        return self.numbers.get((call.job, call.context), (id(self), call.job, call.context))

    def says(self, group: ContextCalls) -> Hashable:
        """Returns the content of all calls of a context, whatever their order."""
        return frozenset(Counter(self.requests(group)).items())

    def requests(self, group: ContextCalls) -> list[int]:
        """Returns the content of each call of a context."""
        return [self.keys.request[index] for index in group.calls]

    def begins(self, group: ContextCalls) -> Hashable:
        """Returns the first call of a context with its content."""
        return self._first(group, lambda index: (self.side.signs[index], self.side.says(index)))

    def shape(self, group: ContextCalls) -> Hashable:
        """Returns which calls a context has, whatever their content."""
        return frozenset(Counter(self.side.signs[index] for index in group.calls).items())

    def kind(self, group: ContextCalls) -> Hashable:
        """What the first call of a context is."""
        return self._first(group, self.side.signs.__getitem__)

    def ends(self, group: ContextCalls) -> Hashable:
        """Who sends the first call of a context to whom."""
        return self._first(group, lambda index: self.side.signs[index][1:3])

    @staticmethod
    def _first(group: ContextCalls, look: Callable[[int], Hashable]) -> Hashable:
        return look(group.calls[0]) if group.calls else None


def match_contexts(a: ContextGroups, b: ContextGroups) -> tuple[dict[int, Hashable], dict[int, Hashable]]:
    """Pairs the contexts of two runs; returns, for each run, request index → number of its context."""
    groups_a, groups_b = a.of_owners(), b.of_owners()
    number = 0
    for owner, lane_a in groups_a.items():
        for i, j in _pairs(a, b, lane_a, groups_b.get(owner, [])):
            one, other = lane_a[i], groups_b[owner][j]
            a.numbers[one.job, one.id] = b.numbers[other.job, other.id] = number
            number += 1
    found_a, found_b = (
        {call.index: groups.number(call) for call in groups.side.calls.values()} for groups in (a, b)
    )
    return found_a, found_b


def _pairs(
    a: ContextGroups, b: ContextGroups, lane_a: Sequence[ContextCalls], lane_b: Sequence[ContextCalls]
) -> list[tuple[int, int]]:
    counts = len(lane_a), len(lane_b)

    def level(look: Callable[[ContextGroups, ContextCalls], Hashable]) -> Level:
        return Level([look(a, one) for one in lane_a], [look(b, one) for one in lane_b])

    pairs = align(*counts, [level(ContextGroups.says)])
    left = unpaired(*counts, pairs)
    if left[0] and left[1]:
        some_a = [place for place in left[0] if len(lane_a[place].calls) > 1]
        some_b = [place for place in left[1] if len(lane_b[place].calls) > 1]
        alike = overlapping(
            [a.requests(lane_a[place]) for place in some_a], [b.requests(lane_b[place]) for place in some_b]
        )
        pairs += [(some_a[i], some_b[j]) for i, j in alike]
        pairs = align(*counts, [level(ContextGroups.begins)], pairs)
    for look in (ContextGroups.shape, ContextGroups.kind, ContextGroups.ends):
        if len(pairs) < min(counts):
            pairs = in_time(lane_a, lane_b, pairs, level(look))
    return pairs

"""Two runs → which call of the one is which call of the other.

In: two runs whose workers are recognised. Out: pairs of calls, and what has no partner. Calls at once have no
order, so they are paired as a set: by what they are (workers, kind, function), by their autograd context, and
by what they say, use and are answered; what is left by its order, where it has one. An RRef is what the call
is that made it, or the message that brought it; so calls are paired after those that they build on. Gradients
go with the forward message that they go back along, housekeeping with the message that carried the fork.
Causes, time, ports and ids decide nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable
from itertools import islice

from msgspec import Struct, field

from rpcinspect.diff.contexts import ContextGroups, match_contexts
from rpcinspect.diff.keys import Keys
from rpcinspect.diff.order import ThreadKeys, in_place, in_time, overlap, repeated
from rpcinspect.diff.sequences import IndexPairs, Level, align, overlapping, unpaired
from rpcinspect.diff.side import DiffSide, JobId, MessagePlace
from rpcinspect.rpc.message import MessageType
from rpcinspect.rpc.questions import GENERAL, HOUSEKEEPING
from rpcinspect.run.exchanges import Exchange

Candidates = tuple[list[int], list[int]]
"""Messages of both runs that may be each other's partners."""


class Alignment(Struct):
    """Maps calls of one run to the same calls of the other, by the indexes of their requests."""

    pairs: dict[int, int] = field(default_factory=dict)
    """Request of the first run → request of the second."""
    orphans: dict[int, int] = field(default_factory=dict)
    """The same for answers whose request was not captured."""
    repeated_a: set[int] = field(default_factory=set)
    """Calls without a partner that say again what a call with one says just before or after them."""
    repeated_b: set[int] = field(default_factory=set)
    unrelated: bool = False
    """No call of one run is like any of the other: no function is called in both, nor is one called in the
    place of another with the same arguments."""


def align_runs(a: DiffSide, b: DiffSide) -> Alignment:
    """The whole alignment. It is made in one direction, whichever way round it is asked for, so that it is
    the same the other way round."""
    if _comes_first(b, a):
        found = _align(b, a)
        return Alignment(
            {j: i for i, j in found.pairs.items()},
            {j: i for i, j in found.orphans.items()},
            found.repeated_b,
            found.repeated_a,
            found.unrelated,
        )
    return _align(a, b)


def _comes_first(a: DiffSide, b: DiffSide) -> bool:
    """By the first call that differs. Numbers of hash() only say whether it does: they are others in every
    process, as an order made of them would be."""
    if len(a.calls) != len(b.calls):
        return len(a.calls) < len(b.calls)
    for one, other in zip(a.calls, b.calls, strict=True):
        if (a.signs[one], a.says(one)) == (b.signs[other], b.says(other)):
            continue
        told = a.travelled(one), b.travelled(other)
        if told[0] != told[1]:
            return told[0] < told[1]
    return False


def _align(a: DiffSide, b: DiffSide) -> Alignment:
    aligner = _Aligner(a, b)
    found = aligner.found
    aligner.calls()
    aligner.left_over()
    aligner.replaced()
    if aligner.unrelated():
        return Alignment(unrelated=True)
    aligner.follow()
    orphans = [orphan.index for orphan in a.orphans], [orphan.index for orphan in b.orphans]
    for lane in aligner.lanes(orphans, lambda side, index: aligner.sides[side].signs[index]):
        found.orphans.update(aligner.by_content(lane))
    found.repeated_a = repeated(a, set(found.pairs))
    found.repeated_b = repeated(b, set(found.pairs.values()))
    return found


TORCHS = ("torch.distributed.", "__torch__.torch.distributed.", "_remote_module_non_scriptable.")
"""How functions of torch begin that proxies, RemoteModule and DistributedOptimizer call."""
MAX_ALIKE = 64
"""Calls with a wanted answer that are tried for one call."""


class _Aligner:
    """Pairs what belongs together, step by step."""

    def __init__(self, a: DiffSide, b: DiffSide) -> None:
        self.sides = a, b
        self.found = Alignment()
        self.keys = Keys(a), Keys(b)
        self._number: tuple[dict[int, int], dict[int, int]] = ({}, {})
        """Of each run: call → what it has in common with its partner, the index of the first run's call."""
        self._groups = ContextGroups(a, self.keys[0]), ContextGroups(b, self.keys[1])
        self._context = match_contexts(*self._groups)
        """Of each run: call → its context, by a number that both runs have in common; -1 outside of all."""

    # Calls that code sends.

    def calls(self) -> None:
        """Pairs calls of paired contexts and those outside of all."""
        deepest = max((max(keys.depth.values(), default=-1) for keys in self.keys), default=-1)
        by_depth: list[Candidates] = [([], []) for _ in range(deepest + 1)]
        for side, keys in enumerate(self.keys):
            for call in keys.general:
                by_depth[keys.depth[call.index]][side].append(call.index)
        for some in by_depth:
            for lane in self.lanes(some, self._place):
                self._add(self._matched(lane))

    def _place(self, side: int, index: int) -> Hashable:
        return self.sides[side].signs[index], self._context[side].get(index, (side, index))

    def _matched(self, lane: Candidates) -> dict[int, int]:
        """Pairs calls that are the same but for their content."""
        if len(lane[0]) == len(lane[1]) == 1:
            return {lane[0][0]: lane[1][0]}
        counts = len(lane[0]), len(lane[1])
        levels = [
            self._level(lane, lambda side, index: (self.keys[side].request[index], self._uses(side, index))),
            self._level(lane, self._said),
        ]
        pairs = align(*counts, levels)
        self._by_answers(lane, pairs)
        for weaker in (self._by_some, self._by_values, self._in_time):
            if len(pairs) < min(counts):
                pairs = weaker(lane, pairs)
        return {lane[0][i]: lane[1][j] for i, j in pairs}

    def _by_answers(self, lane: Candidates, pairs: IndexPairs) -> None:
        """Pairs equal requests that were under way at once, in both runs, by their answers."""
        a, b = (self.keys[side].exchange for side in (0, 1))
        alike: dict[Hashable, list[int]] = defaultdict(list)
        for at, (i, _) in enumerate(pairs):
            alike[self._said(0, lane[0][i])].append(at)
        for group in alike.values():
            if len(group) < 2:
                continue
            wanting: dict[int, deque[int]] = defaultdict(deque)
            for at in group:
                if a[lane[0][pairs[at][0]]] != b[lane[1][pairs[at][1]]]:
                    wanting[b[lane[1][pairs[at][1]]]].append(at)
            for at in group:
                wanted, has = a[lane[0][pairs[at][0]]], b[lane[1][pairs[at][1]]]
                if wanted == has:
                    continue
                having = wanting[wanted]
                other = next(
                    (one for one in islice(having, MAX_ALIKE) if self._together(lane, pairs[at], pairs[one])),
                    None,
                )
                if other is None:
                    continue
                having.remove(other)
                wanting[has].remove(at)
                (i, j), (k, m) = pairs[at], pairs[other]
                pairs[at], pairs[other] = (i, m), (k, j)
                if a[lane[0][k]] != has:
                    wanting[has].append(other)

    def _together(self, lane: Candidates, one: tuple[int, int], other: tuple[int, int]) -> bool:
        """Says whether two calls were under way at the same time, in both runs."""
        return all(
            overlap(run.calls[its[one[side]]], run.calls[its[other[side]]])
            for side, (run, its) in enumerate(zip(self.sides, lane, strict=True))
        )

    def _by_some(self, lane: Candidates, pairs: IndexPairs) -> IndexPairs:
        """Pairs by all but the tensors, or by nothing but the tensors. Content that only one call of each run
        has needs no order."""

        def tensors(side: int, index: int) -> Hashable:
            told = self.sides[side].content(index).tensors
            return (told, self._uses(side, index)) if told else (side, index)

        def plain(side: int, index: int) -> Hashable:
            return self.sides[side].content(index).plain, self._uses(side, index)

        for look in (plain, tensors):
            level = self._level(lane, look)
            more = sorted(set(align(len(lane[0]), len(lane[1]), [level], pairs)) - set(pairs))
            said = Counter(level.a), Counter(level.b)
            alone = [(i, j) for i, j in more if said[0][level.a[i]] == said[1][level.b[j]] == 1]
            rest = sorted(set(more) - set(alone))
            pairs = in_place(*self._calls(lane), [*pairs, *alone], rest, self._threads(lane))
        return pairs

    def _by_values(self, lane: Candidates, pairs: IndexPairs) -> IndexPairs:
        """Pairs calls that have most values of their arguments in common."""
        left = unpaired(len(lane[0]), len(lane[1]), pairs)
        sets = [
            [self.sides[side].values(lane[side][place]) for place in left[side]] if all(left) else []
            for side in (0, 1)
        ]
        found = [(left[0][i], left[1][j]) for i, j in overlapping(*sets)]
        return in_place(*self._calls(lane), pairs, found, self._threads(lane))

    def _in_time(self, lane: Candidates, pairs: IndexPairs) -> IndexPairs:
        return in_time(*self._calls(lane), pairs, threads=self._threads(lane))

    def _threads(self, lane: Candidates) -> ThreadKeys:
        """Calls that were certainly sent for one request come one after the other, as those of a worker's own
        program do. Of others nothing is known."""
        a, b = ([self.sides[side].thread(index) for index in lane[side]] for side in (0, 1))
        return a, b

    def _calls(self, lane: Candidates) -> tuple[list[Exchange], list[Exchange]]:
        a, b = ([self.sides[side].calls[index] for index in lane[side]] for side in (0, 1))
        return a, b

    def _said(self, side: int, index: int) -> Hashable:
        return self.sides[side].says(index), self._uses(side, index)

    def _uses(self, side: int, index: int) -> Hashable:
        """The RRefs that a request uses, as both runs know them."""
        run = self.sides[side]
        job = run.calls[index].job
        return tuple(self._rref(side, (job, rref)) for rref in run.content(index).rrefs)

    def _rref(self, side: int, rref: JobId) -> Hashable:
        place = self.sides[side].origins.get(rref)
        return None if place is None else self._known(side, place)

    def _known(self, side: int, place: MessagePlace) -> Hashable:
        """A message as both runs know it; one without a partner is like nothing in the other run."""
        number = self._number[side].get(place.request)
        return (number if number is not None else (side, place.request)), place.is_answer, place.position

    def left_over(self) -> None:
        """Pairs calls with the same content in another context, or in none."""
        lists = self._general()
        for lane in self.lanes(self._left(lists), lambda side, index: self.sides[side].signs[index]):
            pairs = align(len(lane[0]), len(lane[1]), [self._level(lane, self._said)])
            self._add({lane[0][i]: lane[1][j] for i, j in pairs})

    def replaced(self) -> None:
        """Calls of other functions with the same arguments, or in the same place."""
        lists = self._general()

        def place(side: int, index: int) -> Hashable:
            return self.sides[side].signs[index][:4], self._context[side].get(index, (side, index))

        def arguments(side: int, index: int) -> Hashable:
            run = self.sides[side]
            told = run.arguments(index), run.content(index).tensors, self._uses(side, index)
            return told if any(told) else (side, index)

        for lane in self.lanes(lists, place):
            left = self._left(lane)
            if not all(left):
                continue
            both = set(lane[1])
            known = [one for one in lane[0] if self.found.pairs.get(one) in both]
            some = [*known, *left[0]], [*(self.found.pairs[one] for one in known), *left[1]]
            pairs = [(n, n) for n in range(len(known))]
            more = align(len(left[0]), len(left[1]), [self._level(left, arguments)])
            more = [(len(known) + n, len(known) + m) for n, m in more]
            pairs = in_place(*self._calls(some), pairs, more, self._threads(some))
            rest = [len(its) - len(pairs) for its in some]
            if self.found.pairs and rest[0] == rest[1] > 0:
                pairs = self._in_time(some, pairs)
            self._add({some[0][n]: some[1][m] for n, m in pairs})

    def unrelated(self) -> bool:
        """Says whether the runs call no function in common. Fetches have no function and are in every job
        with RRefs, and so are torch's own functions: they count for nothing. Who calls one does not matter.
        """
        functions = [
            {function for call in keys.general if (function := self._own_function(side, call.index))}
            for side, keys in enumerate(self.keys)
        ]
        if not all(functions):
            return not self.found.pairs and all(keys.general for keys in self.keys)
        if functions[0] & functions[1]:
            return False
        return not any(self._own_function(0, index) for index in self.found.pairs)

    def _own_function(self, side: int, index: int) -> str | None:
        """The function of a call, if it is not one of torch's for RPC."""
        function = self.sides[side].signs[index].function
        return None if function is None or function.startswith(TORCHS) else function

    # What follows from them.

    def follow(self) -> None:
        """Gradients, cleanups, housekeeping of RRefs, and the agents' own calls."""
        for wanted, key in (
            (lambda call: call.kind == MessageType.BACKWARD_AUTOGRAD_REQ, self._back),
            (lambda call: call.kind == MessageType.CLEANUP_AUTOGRAD_CONTEXT_REQ, self._cleaned),
            (lambda call: call.kind in HOUSEKEEPING, self._carried),
            (lambda call: call.control, lambda side, index: self.sides[side].signs[index]),
        ):
            lists = self._those(wanted)
            for lane in self.lanes(lists, key):
                self._add(self.by_content(lane))
        # where the forward message or the carrier was not captured, or has no partner; types nobody knows
        lists = self._those(self._lasts)
        for lane in self.lanes(self._left(lists), lambda side, index: self.sides[side].signs[index]):
            self._add(self.by_content(lane))

    @staticmethod
    def _lasts(call: Exchange) -> bool:
        return not call.control and call.kind not in GENERAL

    def _back(self, side: int, index: int) -> Hashable:
        run = self.sides[side]
        place = run.forward(run.calls[index])
        return run.signs[index], (side, index) if place is None else self._known(side, place)

    def _cleaned(self, side: int, index: int) -> Hashable:
        run = self.sides[side]
        return run.signs[index], self._groups[side].number(run.calls[index])

    def _carried(self, side: int, index: int) -> Hashable:
        run = self.sides[side]
        place = run.carrier(run.calls[index])
        return run.signs[index], (side, index) if place is None else self._known(side, place)

    # Tools.

    def lanes(self, both: Candidates, key: Callable[[int, int], Hashable]) -> list[Candidates]:
        """The messages of both runs by a key; only keys that both have."""
        lanes: tuple[dict[Hashable, list[int]], dict[Hashable, list[int]]]
        lanes = defaultdict(list), defaultdict(list)
        for side, items in enumerate(both):
            for item in items:
                lanes[side][key(side, item)].append(item)
        return [(lane, lanes[1][found]) for found, lane in lanes[0].items() if found in lanes[1]]

    def by_content(self, lane: Candidates) -> dict[int, int]:
        """Pairs by the content of messages, then by their order."""
        if len(lane[0]) == len(lane[1]) == 1:
            return {lane[0][0]: lane[1][0]}
        levels = [
            self._level(lane, lambda side, index: self.sides[side].says(index)),
            self._level(lane, lambda side, index: 0),
        ]
        return {lane[0][i]: lane[1][j] for i, j in align(len(lane[0]), len(lane[1]), levels)}

    def _level(self, lane: Candidates, key: Callable[[int, int], Hashable]) -> Level:
        a, b = ([key(side, index) for index in lane[side]] for side in (0, 1))
        return Level(a, b)

    def _general(self) -> Candidates:
        """Returns all calls that code sends."""
        a, b = ([call.index for call in keys.general] for keys in self.keys)
        return a, b

    def _those(self, wanted: Callable[[Exchange], bool]) -> Candidates:
        """Returns all requests of a kind."""
        a, b = ([call.index for call in run.calls.values() if wanted(call)] for run in self.sides)
        return a, b

    def _left(self, both: Candidates) -> Candidates:
        """The messages that have no partner yet."""
        a, b = ([index for index in its if index not in self._number[side]] for side, its in enumerate(both))
        return a, b

    def _add(self, pairs: dict[int, int]) -> None:
        self.found.pairs.update(pairs)
        for one, other in pairs.items():
            self._number[0][one] = self._number[1][other] = one

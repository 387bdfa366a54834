"""Two runs → which call of the one is which call of the other.

In: two runs whose workers are recognised. Out: pairs of calls, and what has no partner. Calls are paired by
what they are (workers, kind, function), by their autograd context and by their place in the causal order:
units first, then the calls of paired units, then what lies inside of paired calls. Where several fit, what
they say decides, then their order. Time, ports and ids decide nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from msgspec import Struct, field

from rpcinspect.diff.repeated import repeated
from rpcinspect.diff.sequences import Level, align, between, overlapping, unpaired
from rpcinspect.diff.side import DiffSide
from rpcinspect.diff.units import Unit, units_of
from rpcinspect.rpc.questions import GENERAL, HOUSEKEEPING
from rpcinspect.run.exchanges import Call

T = TypeVar("T")


class Alignment(Struct):
    """Which call is which; by the indexes of requests."""

    pairs: dict[int, int] = field(default_factory=dict)
    """Call of the first run → call of the second."""
    orphans: dict[int, int] = field(default_factory=dict)
    """The same for answers whose request was not captured."""
    repeated_a: set[int] = field(default_factory=set)
    """Calls without a partner that say again what a call with one says just before or after them."""
    repeated_b: set[int] = field(default_factory=set)


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
        )
    return _align(a, b)


def _comes_first(a: DiffSide, b: DiffSide) -> bool:
    """By the first call that differs. Numbers of hash() only say whether it does: they are others in every
    process, as an order made of them would be."""
    if len(a.calls) != len(b.calls):
        return len(a.calls) < len(b.calls)
    for one, other in zip(a.calls, b.calls, strict=True):
        if (a.signs[one], a.content(one)) == (b.signs[other], b.content(other)):
            continue
        said = a.said(one), b.said(other)
        if said[0] != said[1]:
            return said[0] < said[1]
    return False


def _align(a: DiffSide, b: DiffSide) -> Alignment:
    aligner = _Aligner(a, b)
    aligner.units()
    aligner.left_over()
    aligner.housekeeping()
    found = aligner.found
    orphans = [[orphan.index for orphan in run.orphans] for run in (a, b)]
    for lane_a, lane_b in aligner.by_sign(*orphans):
        found.orphans.update(aligner.matched(lane_a, lane_b))
    found.repeated_a = repeated(a, set(found.pairs))
    found.repeated_b = repeated(b, set(found.pairs.values()))
    return found


class _Aligner:
    def __init__(self, a: DiffSide, b: DiffSide) -> None:
        self.a = a
        self.b = b
        self.found = Alignment()
        self.back: dict[int, int] = {}
        self._units = units_of(a), units_of(b)
        self._inside: tuple[dict[int, list[Unit]], dict[int, list[Unit]]] = ({}, {})
        for units, inside in zip(self._units, self._inside, strict=True):
            for unit in units:
                if unit.parent is not None:
                    inside.setdefault(unit.parent, []).append(unit)
        self._settled: set[int] = set()
        """Units that have a partner, by id()."""

    # Units.

    def units(self) -> None:
        """From the workers' own units inwards."""
        top = [[unit for unit in units if unit.parent is None] for units in self._units]
        todo: list[tuple[Sequence[Unit], Sequence[Unit]]] = [(top[0], top[1])]
        while todo:
            for one, other in self._matched_units(*todo.pop()):
                for x, y in self._unit(one, other):
                    inside = self._inside[0].get(x), self._inside[1].get(y)
                    if inside[0] and inside[1]:
                        todo.append((inside[0], inside[1]))

    def _matched_units(self, a: Sequence[Unit], b: Sequence[Unit]) -> list[tuple[Unit, Unit]]:
        """Units that lie in the same place: for each owner a sequence."""
        found: list[tuple[Unit, Unit]] = []
        for lane_a, lane_b in _lanes(a, b, _owner, _owner):
            said = self._level(lane_a, lane_b, Unit.said, crossing=True)
            pairs = align(len(lane_a), len(lane_b), [said])
            left = unpaired(len(lane_a), len(lane_b), pairs)
            if left[0] and left[1]:
                pairs += self._overlapping(lane_a, lane_b, *left)
                levels = [
                    self._level(lane_a, lane_b, Unit.begin, crossing=True),
                    self._level(lane_a, lane_b, Unit.shape),
                    self._level(lane_a, lane_b, Unit.kind),
                ]
                pairs = align(len(lane_a), len(lane_b), levels, pairs)
            left = unpaired(len(lane_a), len(lane_b), pairs)
            for gap_a, gap_b in between(pairs, *left):
                if len(gap_a) == len(gap_b):
                    pairs += [
                        (i, j)
                        for i, j in zip(gap_a, gap_b, strict=True)
                        if self._ends(lane_a[i], self.a) == self._ends(lane_b[j], self.b)
                    ]
            found += self._told_apart([(lane_a[i], lane_b[j]) for i, j in pairs])
        self._settled |= {id(unit) for pair in found for unit in pair}
        return found

    def _overlapping(
        self, a: Sequence[Unit], b: Sequence[Unit], left_a: Sequence[int], left_b: Sequence[int]
    ) -> list[tuple[int, int]]:
        """Units that have most of what they say in common; single calls have all or nothing."""
        some_a, some_b = (
            [place for place in left if len(units[place].calls) > 1]
            for units, left in ((a, left_a), (b, left_b))
        )
        found = overlapping(
            [a[place].requests(self.a) for place in some_a], [b[place].requests(self.b) for place in some_b]
        )
        return [(some_a[i], some_b[j]) for i, j in found]

    def _told_apart(self, pairs: list[tuple[Unit, Unit]]) -> list[tuple[Unit, Unit]]:
        """Equal calls at once, outside of contexts, by their answers."""
        loose = {
            a.calls[0]: b.calls[0]
            for a, b in pairs
            if self._is_loose(a, self.a) and self._is_loose(b, self.b)
        }
        before = dict(loose)
        self._by_answers(loose)
        if loose == before:
            return pairs
        units_b = {b.calls[0]: b for _, b in pairs if b.calls}
        return [(a, units_b[loose[a.calls[0]]] if a.calls and a.calls[0] in loose else b) for a, b in pairs]

    @staticmethod
    def _is_loose(unit: Unit, run: DiffSide) -> bool:
        first = unit.first()
        return first is not None and run.calls[first].context is None

    def _level(
        self,
        a: Sequence[Unit],
        b: Sequence[Unit],
        look: Callable[[Unit, DiffSide], Hashable],
        *,
        crossing: bool = False,
    ) -> Level:
        keys_a, keys_b = ([look(unit, run) for unit in units] for units, run in ((a, self.a), (b, self.b)))
        return Level(keys_a, keys_b, crossing)

    @staticmethod
    def _ends(unit: Unit, run: DiffSide) -> Hashable:
        kind = unit.kind(run)
        return None if kind is None else (kind.caller, kind.callee)

    def _unit(self, a: Unit, b: Unit) -> list[tuple[int, int]]:
        """Pairs the calls of two units; gives the pairs of those that run code."""
        found: list[tuple[int, int]] = []
        for lane_a, lane_b in self._by_cause(a, b):
            found += self._add(self.matched(lane_a, lane_b))
        left_a, left_b = self.left(a.calls, b.calls)
        for lane_a, lane_b in self.by_sign(left_a, left_b):
            found += self._add(self.matched(lane_a, lane_b))
        found += self._add(self._replaced(a.calls, b.calls))
        for lane_a, lane_b in _lanes(a.others, b.others, self._back_a, self._back_b):
            self._add(self.matched(lane_a, lane_b))
        left_a, left_b = self.left(a.others, b.others)
        for lane_a, lane_b in self.by_sign(left_a, left_b):
            self._add(self.matched(lane_a, lane_b))
        return found

    def _by_cause(self, a: Unit, b: Unit) -> Iterable[tuple[list[int], list[int]]]:
        """Calls that are the same and have the same cause: those without one inside the unit first, then what
        was sent while serving them, and so on."""
        depths_a, depths_b = _depths(a.calls, self.a), _depths(b.calls, self.b)
        for level_a, level_b in zip(depths_a, depths_b, strict=False):
            yield from _lanes(level_a, level_b, self._cause_a, self._cause_b)

    def _cause_a(self, index: int) -> Hashable:
        parent = self.a.parents.get(index)
        return self.a.signs[index], self.found.pairs.get(parent) if parent is not None else None

    def _cause_b(self, index: int) -> Hashable:
        parent = self.b.parents.get(index)
        return self.b.signs[index], parent if parent in self.back else None

    def _replaced(self, a: Sequence[int], b: Sequence[int]) -> dict[int, int]:
        """Calls of other functions that stand between the same calls: as many of one run as of the other."""
        found: dict[int, int] = {}
        ends_a, ends_b = (lambda index, run=run: run.signs[index][:3] for run in (self.a, self.b))
        left_a, left_b = (set(left) for left in self.left(a, b))
        if not left_a or not left_b:
            return found
        for lane_a, lane_b in _lanes(a, b, ends_a, ends_b):
            places = {index: j for j, index in enumerate(lane_b)}
            pairs = [
                (i, places[self.found.pairs[index]])
                for i, index in enumerate(lane_a)
                if self.found.pairs.get(index) in places
            ]
            free_a = [i for i, index in enumerate(lane_a) if index in left_a]
            free_b = [j for j, index in enumerate(lane_b) if index in left_b]
            for gap_a, gap_b in between(pairs, free_a, free_b):
                if len(gap_a) == len(gap_b):
                    found |= {lane_a[i]: lane_b[j] for i, j in zip(gap_a, gap_b, strict=True)}
        return found

    def _back_a(self, index: int) -> Hashable:
        """Along which edge a gradient goes back, named by the forward message's partner."""
        place = self.a.forward(self.a.calls[index])
        if place is None:
            return self.a.signs[index], None
        return self.a.signs[index], (self.found.pairs.get(place.request, -1), place.is_answer)

    def _back_b(self, index: int) -> Hashable:
        place = self.b.forward(self.b.calls[index])
        if place is None:
            return self.b.signs[index], None
        known = place.request if place.request in self.back else -2
        return self.b.signs[index], (known, place.is_answer)

    # What is left.

    def left_over(self) -> None:
        """What lies in another place, since its cause was judged in another way: only what says the same."""
        left = [[unit for unit in units if id(unit) not in self._settled] for units in self._units]
        for lane_a, lane_b in _lanes(left[0], left[1], _owner, _owner):
            levels = [
                self._level(lane_a, lane_b, Unit.said, crossing=True),
                self._level(lane_a, lane_b, Unit.begin, crossing=True),
            ]
            for i, j in align(len(lane_a), len(lane_b), levels):
                self._unit(lane_a[i], lane_b[j])
        free_a, free_b = (
            [call.index for call in run.calls.values() if call.context is None and _runs_code(call)]
            for run in (self.a, self.b)
        )
        for calls_a, calls_b in self.by_sign(*self.left(free_a, free_b)):
            self._add(self.matched(calls_a, calls_b, in_order=False))

    def housekeeping(self) -> None:
        """What agents send of their own: for RRefs, by the call that made the RRef; and for the group."""
        for is_it, say in ((_keeps_rrefs, DiffSide.rref), (_is_control, DiffSide.content)):
            its_a, its_b = (
                [call.index for call in run.calls.values() if is_it(call)] for run in (self.a, self.b)
            )
            for lane_a, lane_b in self.by_sign(its_a, its_b):
                self._add(self.matched(lane_a, lane_b, say))

    # Calls.

    def left(self, a: Iterable[int], b: Iterable[int]) -> tuple[list[int], list[int]]:
        """Those without a partner."""
        pairs, back = self.found.pairs, self.back
        return [index for index in a if index not in pairs], [index for index in b if index not in back]

    def by_sign(self, a: Iterable[int], b: Iterable[int]) -> list[tuple[list[int], list[int]]]:
        """Messages that are the same, whatever they say."""
        return _lanes(a, b, self.a.signs.__getitem__, self.b.signs.__getitem__)

    def matched(
        self,
        a: Sequence[int],
        b: Sequence[int],
        say: Callable[[DiffSide, int], Hashable] = DiffSide.content,
        *,
        in_order: bool = True,
    ) -> dict[int, int]:
        """Pairs of messages that are the same but for what they say: by that, then by their order."""
        if len(a) == len(b) == 1 and in_order:
            return {a[0]: b[0]}
        said = [say(self.a, index) for index in a], [say(self.b, index) for index in b]
        levels = [Level(*said, crossing=True)]
        if in_order:
            levels.append(Level([0] * len(a), [0] * len(b)))
        found = {a[i]: b[j] for i, j in align(len(a), len(b), levels)}
        if len(found) > 1:
            self._by_answers(found)
        return found

    def _by_answers(self, pairs: dict[int, int]) -> None:
        """Equal requests that were under way at the same time, in both runs, are told apart by their
        answers."""
        alike: dict[Hashable, list[int]] = defaultdict(list)
        for index in pairs:
            if index in self.a.calls and self.a.calls[index].kind in GENERAL:
                alike[self.a.content(index)].append(index)
        for group in alike.values():
            if len(group) < 2:
                continue
            wanting: dict[Hashable, list[int]] = defaultdict(list)
            for index in group:
                if self._answer(self.a, index) != self._answer(self.b, pairs[index]):
                    wanting[self._answer(self.b, pairs[index])].append(index)
            for index in group:
                answer = self._answer(self.a, index)
                if answer == self._answer(self.b, pairs[index]):
                    continue
                for other in wanting.get(answer, ())[:MAX_ALIKE]:
                    if self._answer(self.b, pairs[other]) == answer and self._together(index, other, pairs):
                        pairs[index], pairs[other] = pairs[other], pairs[index]
                        wanting[self._answer(self.b, pairs[other])].append(other)
                        break

    def _together(self, one: int, other: int, pairs: dict[int, int]) -> bool:
        """Whether two calls overlapped, in both runs."""
        return overlap(self.a.calls[one], self.a.calls[other]) and overlap(
            self.b.calls[pairs[one]], self.b.calls[pairs[other]]
        )

    @staticmethod
    def _answer(run: DiffSide, index: int) -> Hashable:
        answer = run.calls[index].answer
        return None if answer is None else run.content(answer)

    def _add(self, pairs: dict[int, int]) -> list[tuple[int, int]]:
        self.found.pairs.update(pairs)
        self.back.update({b: a for a, b in pairs.items()})
        return list(pairs.items())


MAX_ALIKE = 64
"""Calls with a wanted answer that are tried for one call."""


def overlap(one: Call, other: Call) -> bool:
    """Whether neither was over when the other began."""
    first, second = (one, other) if one.begin_ns <= other.begin_ns else (other, one)
    return first.end_ns is None or first.end_ns >= second.begin_ns


def _lanes(
    a: Iterable[T], b: Iterable[T], key_a: Callable[[T], Hashable], key_b: Callable[[T], Hashable]
) -> list[tuple[list[T], list[T]]]:
    """The items of both runs by a key; only keys that both have."""
    lanes_a: dict[Hashable, list[T]] = defaultdict(list)
    lanes_b: dict[Hashable, list[T]] = defaultdict(list)
    for item in a:
        lanes_a[key_a(item)].append(item)
    for item in b:
        lanes_b[key_b(item)].append(item)
    return [(lane, lanes_b[key]) for key, lane in lanes_a.items() if key in lanes_b]


def _depths(calls: Sequence[int], run: DiffSide) -> list[list[int]]:
    """Calls by how deep they are nested inside the unit."""
    depth: dict[int, int] = {}
    levels: list[list[int]] = []
    for index in calls:
        parent = run.parents.get(index)
        depth[index] = 0 if parent is None or parent not in depth else depth[parent] + 1
        if depth[index] == len(levels):
            levels.append([])
        levels[depth[index]].append(index)
    return levels


def _owner(unit: Unit) -> Hashable:
    return unit.job, unit.owner


def _runs_code(call: Call) -> bool:
    return call.kind in GENERAL and not call.control


def _keeps_rrefs(call: Call) -> bool:
    return call.kind in HOUSEKEEPING


def _is_control(call: Call) -> bool:
    return call.control

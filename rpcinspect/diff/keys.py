"""Keys of calls that are equal in two runs for calls which are the same, however concurrent the job is.

In: one side of a diff. Out: for each call that code sends numbers that follow from what it says, with its
answer and without, and from what the RRefs are that it uses: which call made each, and what else it is used
for. Time, ids and order decide nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable

from rpcinspect.diff.side import DiffSide, JobId
from rpcinspect.rpc.questions import GENERAL, created
from rpcinspect.run.exchanges import Exchange

ROUNDS = 2
"""How far the uses of an RRef are followed: to what else those calls use, and once more."""
MASK = (1 << 64) - 1


class Keys:
    """The keys of one run, by which calls are matched."""

    def __init__(self, side: DiffSide) -> None:
        self._side = side
        self.general = [c for c in side.calls.values() if c.kind in GENERAL and not c.control]
        """Calls that code sends, in the order in which they began."""
        self.depth: dict[int, int] = {}
        """How many calls after each other have made or brought what a call uses."""
        self._find_depths()
        self._uses: dict[JobId, list[int]] = defaultdict(list)
        for call in self.general:
            for rref in self.rrefs(call.index):
                self._uses[call.job, rref].append(call.index)
        self.request = self._refined({call.index: self._said(call.index) for call in self.general})
        """By the index of the request; without what is answered."""
        self.exchange = self._refined(
            {call.index: hash((self._said(call.index), self.answer(call.index))) for call in self.general}
        )
        """With what is answered."""

    def _refined(self, base: dict[int, int]) -> dict[int, int]:
        found = base
        for _ in range(ROUNDS if self._uses else 0):
            labels = {
                key: hash((self._origin(key, found), sum(found[index] for index in its) & MASK))
                for key, its in self._uses.items()
            }
            found = {
                call.index: hash((base[call.index], *(labels[call.job, r] for r in self.rrefs(call.index))))
                for call in self.general
            }
        return found

    def rrefs(self, index: int) -> tuple[tuple[int, int], ...]:
        """The RRefs that a call and its answer use, and the one that it makes."""
        call = self._side.calls[index]
        its = self._side.content(index).rrefs
        if call.answer is not None:
            its = (*its, *self._side.content(call.answer).rrefs)
        made = created(call.request)
        return its if made is None or made[0] in its else (*its, made[0])

    def answer(self, index: int) -> Hashable:
        """Returns the content of the answer to a call."""
        answer = self._side.calls[index].answer
        return None if answer is None else self._side.says(answer)

    def _said(self, index: int) -> int:
        return hash((self._side.signs[index], self._side.says(index)))

    def _origin(self, key: JobId, found: dict[int, int]) -> Hashable:
        place = self._side.origins.get(key)
        if place is None or place.request not in found:
            return None
        return found[place.request], place.is_answer, place.position

    def _find_depths(self) -> None:
        """What a call builds on may come after it on the wire, on another pipe: so not in their order."""
        builds = {call.index: self._builds_on(call) for call in self.general}
        seen: set[int] = set()
        for start in builds:
            todo = [start]
            while todo:
                index = todo[-1]
                first = [one for one in builds[index] if one in builds and one not in seen]
                seen.add(index)
                if first:
                    todo += first
                    continue
                todo.pop()
                if index not in self.depth:
                    self.depth[index] = (
                        max((self.depth.get(one, -1) for one in builds[index]), default=-1) + 1
                    )

    def _builds_on(self, call: Exchange) -> list[int]:
        """The calls that made or brought what it uses."""
        places = (self._side.origins.get((call.job, r)) for r in self._side.content(call.index).rrefs)
        return [place.request for place in places if place is not None and place.request != call.index]

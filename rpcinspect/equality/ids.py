"""Ids of one run against those of another: they are equal if the same pairs meet every time.

In: ids as messages carry them, one of each run. Out: whether they can be the same thing. What is a worker,
a context, an RRef … in one run has another number in the next, so the first pair that meets is learned, and
from then on neither of the two may meet a third.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, TypeAlias

from rpcinspect.rpc.types import GloballyUniqueId, unpack_id

WORKER: Final = "worker"
CONTEXT: Final = "context"
AUTOGRAD_MESSAGE: Final = "autograd-message"
RREF: Final = "rref"
FORK: Final = "fork"
PROFILING: Final = "profiling"

Carried: TypeAlias = GloballyUniqueId | int
"""An id as messages have it; contexts and autograd messages have their creator in the upper bits."""

NO_ID = -1
"""Stands for no worker, no context, no autograd message; it is equal to itself only."""


class IdMap:
    """Learns pairs of ids by kind and refuses what contradicts them."""

    __slots__ = ("_backward", "_forward", "_journal", "refused")

    def __init__(self) -> None:
        self._forward: dict[tuple[str, Hashable], Hashable] = {}
        self._backward: dict[tuple[str, Hashable], Hashable] = {}
        self._journal: list[tuple[str, Hashable, Hashable]] = []
        self.refused = 0
        """How many pairs contradicted others."""

    def __len__(self) -> int:
        return len(self._journal)

    def same(self, kind: str, a: Hashable, b: Hashable) -> bool:
        """Whether `a` and `b` are the same; a pair of which neither was seen is learned."""
        known_a, known_b = self._forward.get((kind, a)), self._backward.get((kind, b))
        if known_a is None and known_b is None:
            self._forward[kind, a] = b
            self._backward[kind, b] = a
            self._journal.append((kind, a, b))
            return True
        if known_a == b and known_b == a:
            return True
        self.refused += 1
        return False

    def translate(self, kind: str, a: Hashable) -> Hashable | None:
        """The partner of an id of the first run; None if none was learned."""
        return self._forward.get((kind, a))

    def translate_back(self, kind: str, b: Hashable) -> Hashable | None:
        """The partner of an id of the second run; None if none was learned."""
        return self._backward.get((kind, b))

    def mark(self) -> tuple[int, int]:
        """The state now, for `rollback`."""
        return len(self._journal), self.refused

    def rollback(self, mark: tuple[int, int]) -> None:
        """Forgets what was learned and refused since `mark`: the pair of messages was no pair."""
        learned, self.refused = mark
        for kind, a, b in self._journal[learned:]:
            del self._forward[kind, a]
            del self._backward[kind, b]
        del self._journal[learned:]

    def carried(self, kind: str, a: Carried, b: Carried) -> bool:
        """Returns whether two ids can be the same; the creators in them must be the same worker."""
        if NO_ID in (a, b):
            return a == b
        if kind != WORKER and not self.carried(WORKER, _creator(a), _creator(b)):
            return False
        return self.same(kind, a, b)


def _creator(carried: Carried) -> int:
    return carried.created_on if isinstance(carried, GloballyUniqueId) else unpack_id(carried)[0]

"""Ids of one run against those of another: they are equal if the same pairs meet every time.

In: ids as messages carry them, one of each run. Out: whether they can be the same thing. What is a worker,
a context, an RRef … in one run has another number in the next, so the first pair that meets is learned, and
from then on neither of the two may meet a third.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from msgspec import Struct

from rpcinspect.rpc.types import GloballyUniqueId, unpack_id

WORKER: Final = "worker"
CONTEXT: Final = "context"
AUTOGRAD_MESSAGE: Final = "autograd-message"
RREF: Final = "rref"
FORK: Final = "fork"
PROFILING: Final = "profiling"

NO_ID = -1
"""Stands for no worker, no context, no autograd message; it is equal to itself only."""


class Contradiction(Struct, frozen=True):
    """A pair that can't be, since one of the two belongs to another already."""

    kind: str
    a: Hashable
    b: Hashable
    a_partner: Hashable
    """What `a` was paired with before; None if it is `b` that was paired."""
    b_partner: Hashable


class IdMap:
    """Learns pairs of ids by kind and reports what contradicts them."""

    __slots__ = ("_backward", "_forward", "_journal", "contradictions")

    def __init__(self) -> None:
        self._forward: dict[tuple[str, Hashable], Hashable] = {}
        self._backward: dict[tuple[str, Hashable], Hashable] = {}
        self._journal: list[tuple[str, Hashable, Hashable]] = []
        self.contradictions: list[Contradiction] = []

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
        self.contradictions.append(Contradiction(kind, a, b, known_a, known_b))
        return False

    def translate(self, kind: str, a: Hashable) -> Hashable | None:
        """The partner of an id of the first run; None if none was learned."""
        return self._forward.get((kind, a))

    def translate_back(self, kind: str, b: Hashable) -> Hashable | None:
        """The partner of an id of the second run; None if none was learned."""
        return self._backward.get((kind, b))

    def mark(self) -> tuple[int, int]:
        """The state now, for `rollback`."""
        return len(self._journal), len(self.contradictions)

    def rollback(self, mark: tuple[int, int]) -> None:
        """Forgets what was learned and contradicted since `mark`: the pair of messages was no pair."""
        learned, contradicted = mark
        for kind, a, b in self._journal[learned:]:
            del self._forward[kind, a]
            del self._backward[kind, b]
        del self._journal[learned:]
        del self.contradictions[contradicted:]

    def mirrored(self) -> IdMap:
        """The same pairs seen from the other run."""
        other = IdMap()
        for kind, a, b in self._journal:
            other.same(kind, b, a)
        return other

    # What messages carry.

    def worker(self, a: int, b: int) -> bool:
        """Worker ids."""
        return a == b if NO_ID in (a, b) else self.same(WORKER, a, b)

    def packed(self, kind: str, a: int, b: int) -> bool:
        """Ids of contexts and autograd messages: the same worker must have made them."""
        if NO_ID in (a, b):
            return a == b
        return self.worker(unpack_id(a)[0], unpack_id(b)[0]) and self.same(kind, a, b)

    def unique(self, kind: str, a: GloballyUniqueId, b: GloballyUniqueId) -> bool:
        """Ids of RRefs, forks and profilings: the same worker must have made them."""
        return self.worker(a.created_on, b.created_on) and self.same(kind, a, b)

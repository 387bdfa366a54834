"""What requests may have been sent for, and which of several explanations is the likeliest.

In: cases with the candidates that evidence has left. Out: `CauseColumn` by row, the likeliest request first:
for whoever must act on one, never as a fact. A call that was over before a request was answered was rather
sent for that than one that went on; one whose arguments have values of a request rather for that; a call that
other workers send of their own, and nobody while serving, rather of the sender's own.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from msgspec import Struct

from rpcinspect.rpc.questions import REMOTE
from rpcinspect.run.requests import Case, Requests, TypeAndFunction
from rpcinspect.session.uncaptured import NEVER

OWN, UNJUDGED, DOUBTFUL = -1, -2, -3


class PossibleCauses(Struct, eq=False):
    """What a request may have been sent for."""

    rows: tuple[int, ...]
    """Requests, the likeliest first."""
    own: bool = False
    """Its sender's own program."""
    own_likely: bool = False
    unseen: bool = False
    """Or a request that was not captured."""

    @property
    def certain(self) -> bool:
        """Returns whether exactly one explanation is left."""
        return len(self.rows) + self.own == 1 and not self.unseen


class CauseColumn:
    """The possible causes of `count` rows, each set once: a column for the certain ones, objects for the
    others."""

    def __init__(self, count: int) -> None:
        self.parent = array("q", [UNJUDGED]) * count
        """Of each row the one that it was certainly sent for, or one of the numbers above. Who is certain may
        write it, too."""
        self.doubtful: dict[int, PossibleCauses] = {}

    def __setitem__(self, row: int, one: PossibleCauses) -> None:
        if one.certain:
            self.parent[row] = one.rows[0] if one.rows else OWN
        else:
            self.parent[row], self.doubtful[row] = DOUBTFUL, one

    def of(self, row: int, other: PossibleCauses) -> PossibleCauses:
        """Returns the possible causes of a row; `other` where it was not judged."""
        parent = self.parent[row]
        if parent >= 0:
            return PossibleCauses((parent,))
        if parent == UNJUDGED:
            return other
        return self.doubtful[row] if parent == DOUBTFUL else PossibleCauses((), True, True)


class Likelihood:
    """Judges by what is certain in the whole run."""

    def __init__(
        self, requests: Requests, cases: Iterable[Case], values: Mapping[int, Collection[int]]
    ) -> None:
        self._requests = requests
        self._values = values
        self._own: Counter[TypeAndFunction] = Counter()
        self._nested: Counter[TypeAndFunction] = Counter()
        self._drivers: set[tuple[int, str]] = set()
        """Workers that certainly sent something of their own, or likely did."""
        left = []
        for case in cases:
            if case.certain and case.rows:
                self._nested[self._kind(case)] += 1
            elif not self._any_waits(case):
                self._own[self._kind(case)] += 1
                self._drivers.add(self._sender(case))
            else:
                left.append(case)
        for case in left:
            if len(case.rows) == 1 and self._sender(case) not in self._drivers:
                self._nested[self._kind(case)] += 1

    def _sender(self, case: Case) -> tuple[int, str]:
        return self._requests.session.job(case.row), self._requests.session.source(case.row)

    def _kind(self, case: Case) -> TypeAndFunction:
        return self._requests.sign(case.row)

    def _waiting(self, case: Case, rows: Iterable[int]) -> Iterator[bool]:
        """Whether the call was over before each request was answered, as it is where a function waits for it;
        nobody has to wait for a remote call. Code that sends in another context than its request's is in a
        thread or a callback.
        """
        requests, row = self._requests, case.row
        kind, context = requests.kind(row), requests.context(row)
        over = -NEVER if kind.type in REMOTE else requests.over(row)
        for one in rows:
            inside = None if kind.builtin else requests.context(one)
            if inside is not None and inside != context:
                yield requests.kind(one).asynchronous
            else:
                yield over <= requests.answered(one)

    def _any_waits(self, case: Case) -> bool:
        return any(self._waiting(case, case.rows))

    def order(self, case: Case) -> tuple[int, ...]:
        """The candidates, the likeliest first; of those that are alike the one that arrived last."""
        own, none = frozenset(self._values.get(case.row, ())), frozenset[int]()
        rows = case.rows[::-1]
        waited = dict(zip(rows, self._waiting(case, rows), strict=True))
        shared = {row: len(own.intersection(self._values.get(row, none))) for row in rows} if own else {}
        rows.sort(key=lambda row: (waited[row], shared.get(row, 0)), reverse=True)
        return tuple(rows)

    def own(self, case: Case) -> bool:
        """Returns whether the request is more likely the sender's own."""
        if not case.own or not self._any_waits(case):
            return case.own
        kind = self._kind(case)
        return self._sender(case) in self._drivers and bool(self._own[kind]) and not self._nested[kind]

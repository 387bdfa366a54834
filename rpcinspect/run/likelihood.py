"""Which of several explanations of a request is the likeliest: for whoever must act on one, never as a fact.

In: cases with the candidates that evidence has left. Out: verdicts, the likeliest candidate first. A call
that was over before a request was answered was rather sent for that than one that went on; one whose
arguments have values of a request rather for that; a call that other workers send of their own, and nobody
while serving, rather of the sender's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from rpcinspect.rpc.questions import REMOTE
from rpcinspect.run.coincidence import Sign, sign_of
from rpcinspect.run.requests import NEVER, Case, Requests


class Likelihood:
    """Judges by what is certain in the whole run."""

    def __init__(
        self, requests: Requests, cases: Iterable[Case], values: Mapping[int, Collection[int]]
    ) -> None:
        self._requests = requests
        self._values = values
        self._own: Counter[Sign] = Counter()
        self._nested: Counter[Sign] = Counter()
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
        return self._requests.job(case.row), self._requests.caller(case.row)

    def _kind(self, case: Case) -> Sign:
        return sign_of(self._requests, case.row)

    def _waiting(self, case: Case, rows: Iterable[int]) -> Iterator[bool]:
        """Whether the call was over before each request was answered, as it is where a function waits for it;
        nobody has to wait for a remote call. Code that sends in another context than its request's is in a
        thread or a callback.
        """
        requests, row = self._requests, case.row
        kind, context = requests.kind(row), requests.context(row)
        over = -NEVER if kind.type in REMOTE else requests.over(row)
        for one in rows:
            inside = None if kind.builtin else requests.inside(one)
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
        """Whether it is rather the sender's own."""
        if not case.own or not self._any_waits(case):
            return case.own
        kind = self._kind(case)
        return self._sender(case) in self._drivers and bool(self._own[kind]) and not self._nested[kind]

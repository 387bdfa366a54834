"""Which of several explanations of a request is the likeliest: for whoever must act on one, never as a fact.

In: cases with the candidates that evidence has left. Out: verdicts, the likeliest candidate first. A call
that was over before a request was answered was rather sent for that than one that went on; one whose
arguments have values of a request rather for that; a call that other workers send of their own, and nobody
while serving, rather of the sender's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from rpcinspect.rpc.questions import REMOTE
from rpcinspect.run.requests import Requests

if TYPE_CHECKING:
    from rpcinspect.run.evidence import Case

Kinds = tuple[int, str | None]
"""Type and function of a call."""


class Likelihood:
    """Judges by what is certain in the whole run."""

    def __init__(
        self, requests: Requests, cases: Iterable[Case], values: Mapping[int, Collection[int]]
    ) -> None:
        self._requests = requests
        self._values = values
        self._own: Counter[Kinds] = Counter()
        self._nested: Counter[Kinds] = Counter()
        self._drivers: set[tuple[int, str]] = set()
        """Workers that certainly sent something of their own, or likely did."""
        left = []
        for case in cases:
            if case.certain and case.rows:
                self._nested[self._kind(case)] += 1
            elif not any(self.waited(case, row) for row in case.rows):
                self._own[self._kind(case)] += 1
                self._drivers.add(self._sender(case))
            else:
                left.append(case)
        for case in left:
            if len(case.rows) == 1 and self._sender(case) not in self._drivers:
                self._nested[self._kind(case)] += 1

    def _sender(self, case: Case) -> tuple[int, str]:
        return self._requests.job(case.row), self._requests.caller(case.row)

    def _kind(self, case: Case) -> Kinds:
        kind = self._requests.kind(case.row)
        return kind.type, kind.function

    def waited(self, case: Case, row: int) -> bool:
        """Whether the call was over before the request was answered, as it is where a function waits for it;
        nobody has to wait for a remote call. Code that sends in another context than its request's is in a
        thread or a callback.
        """
        requests = self._requests
        inside = requests.inside(row)
        if (
            inside is not None
            and inside != requests.context(case.row)
            and not requests.kind(case.row).builtin
        ):
            return requests.kind(row).asynchronous
        return requests.kind(case.row).type in REMOTE or requests.over(case.row) <= requests.answered(row)

    def order(self, case: Case) -> tuple[int, ...]:
        """The candidates, the likeliest first."""
        requests, own = self._requests, self._values.get(case.row, frozenset())

        def rank(row: int) -> tuple[int, int, int, int]:
            shared = sum(mark in self._values.get(row, ()) for mark in own)
            # rows are others in a log of the same run
            return self.waited(case, row), shared, requests.arrived[row], int(requests.session.index[row])

        return tuple(sorted(case.rows, key=rank, reverse=True))

    def own(self, case: Case) -> bool:
        """Whether it is rather the sender's own."""
        if not case.own or not any(self.waited(case, row) for row in case.rows):
            return case.own
        kind = self._kind(case)
        return self._sender(case) in self._drivers and bool(self._own[kind]) and not self._nested[kind]

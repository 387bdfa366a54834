"""What a worker has open at a moment: requests that had arrived, were not answered, and run code.

In: the requests that it received; then moments, in the order of time. Out: the open requests, as many as are
looked at, by the autograd context that they run in. A worker that is asked thousands of things at once costs
each question no more than that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from heapq import heappop, heappush
from itertools import islice

from rpcinspect.run.requests import Requests

MAX_OPEN = 256
"""Open requests, of one context or all, that are looked at: the latest."""


class Serving:
    """See the module's text; go on with `at`."""

    def __init__(self, requests: Requests, received: Iterable[int]) -> None:
        self._requests = requests
        code = (row for row in received if requests.runs_code(row))
        self._waiting = sorted(code, key=requests.arrived.__getitem__)
        self._next = 0
        self._open: dict[int, None] = {}
        """In the order in which they arrived."""
        self._inside: dict[int | None, dict[int, None]] = defaultdict(dict)
        """The same, by the context of their envelope."""
        self._ends: list[tuple[int, int]] = []
        """(when it was answered, row), the earliest first."""

    def at(self, time_ns: int) -> None:
        """Goes on to this moment, none before the last one."""
        requests = self._requests
        while self._next < len(self._waiting) and requests.arrived[self._waiting[self._next]] <= time_ns:
            row = self._waiting[self._next]
            self._open[row] = self._inside[requests.inside(row)][row] = None
            heappush(self._ends, (requests.answered(row), row))
            self._next += 1
        while self._ends and self._ends[0][0] < time_ns:
            row = heappop(self._ends)[1]
            del self._open[row], self._inside[requests.inside(row)][row]

    def __contains__(self, row: int) -> bool:
        """Whether a request is open."""
        return row in self._open

    def __bool__(self) -> bool:
        """Whether any is."""
        return bool(self._open)

    def latest(self, context: int | None) -> list[int]:
        """Open requests in a context, or all of them, in the order in which they arrived."""
        group = self._open if context is None else self._inside.get(context, {})
        return list(islice(reversed(group), MAX_OPEN))[::-1]

    def first_in(self, context: int) -> int | None:
        """The open request in a context that arrived first."""
        return next(iter(self._inside.get(context, {})), None)

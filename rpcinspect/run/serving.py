"""What a worker has open at a moment: requests that had arrived, were not answered, and run code.

In: the requests that it received; then moments, in the order of time. Out: the open requests, as many as are
looked at, by the autograd context that they run in. A worker that is asked thousands of things at once costs
each question no more than that.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from itertools import accumulate, islice

from rpcinspect.rpc.questions import CALLS, is_builtin
from rpcinspect.run.exchanges import Call

MAX_OPEN = 256
"""Open requests of one context, or of none, that are looked at: the latest."""


class Serving:
    """See the module's text; go on with `at`."""

    def __init__(self, received: Iterable[Call]) -> None:
        code = (c for c in received if c.kind in CALLS and not is_builtin(c.request.rpc.command))
        self._waiting = sorted(code, key=lambda call: call.arrived_ns)
        self._arrived = 0
        self._open: dict[int, Call] = {}
        """By the order in which they arrived."""
        self._inside: dict[int | None, dict[int, Call]] = defaultdict(dict)
        """The same, by the context of their envelope."""
        self._numbers: dict[int, int] = {}
        """Index of an open request → its number in that order."""
        self._ends: list[tuple[int, int]] = []
        """(when it was answered, number), the earliest first."""

    def at(self, time_ns: int) -> None:
        """Goes on to this moment, none before the last one."""
        while self._arrived < len(self._waiting) and self._waiting[self._arrived].arrived_ns <= time_ns:
            call, number = self._waiting[self._arrived], self._arrived
            self._open[number] = self._inside[context_inside(call)][number] = call
            self._numbers[call.index] = number
            if call.answered_ns is not None:
                heappush(self._ends, (call.answered_ns, number))
            self._arrived += 1
        while self._ends and self._ends[0][0] < time_ns:
            call = self._open.pop(heappop(self._ends)[1])
            del self._inside[context_inside(call)][self._numbers.pop(call.index)]

    def __contains__(self, index: int) -> bool:
        """Whether the request of that index is open."""
        return index in self._numbers

    def latest(self, contexts: Sequence[int | None] | None, call: Call) -> list[Call]:
        """Open requests in these contexts (None is outside of all), or all of them, in the order in which
        they arrived; without the call itself, which may be its sender's own request.
        """
        groups = [self._open] if contexts is None else [self._inside.get(one, {}) for one in contexts]
        found = {
            number: one
            for group in groups
            for number, one in islice(reversed(group.items()), MAX_OPEN)
            if one is not call
        }
        return [found[number] for number in sorted(found)]

    def first_in(self, context: int) -> Call | None:
        """The open request in a context that arrived first."""
        return next(iter(self._inside.get(context, {}).values()), None)


class Arrivals:
    """Requests by when they had arrived at their callee."""

    def __init__(self, requests: Sequence[Call]) -> None:
        order = sorted(range(len(requests)), key=lambda place: requests[place].arrived_ns)
        self._requests = requests
        self._order = order
        self._times = [requests[place].arrived_ns for place in order]
        self._highest = list(accumulate(order, max))
        """The last place in `requests` of those that had arrived with each, or before it."""

    def latest(self, call: Call) -> Call | None:
        """Of those that had arrived when the call began, the one that arrived last."""
        end = bisect_right(self._times, call.begin_ns)
        return self._requests[self._order[bisect_left(self._times, self._times[end - 1])]] if end else None

    def last(self, call: Call) -> Call | None:
        """Of these, the one that is last in the order that was given."""
        end = bisect_right(self._times, call.begin_ns)
        return self._requests[self._highest[end - 1]] if end else None


def context_inside(request: Call) -> int | None:
    """The autograd context in which the function of a request runs."""
    return request.context if request.wrapped else None

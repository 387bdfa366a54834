"""How long a replay waits: for an answer, and for what live workers should send by themselves.

In: the captured exchanges, and what the user says. Out: seconds, always finite. The captured times are the
measure; a replay may be several times slower than its run was.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

from rpcinspect.causes.calls import HOUSEKEEPING, Call

TIMES = 10.0
"""A replay may take so many times as long as the run did."""
LEAST_S = 5.0
"""For an answer."""
SILENCE_S = 2.0
"""For an answer that the capture has not, or of a function that did not answer before."""
QUIET_S = 2.0
"""For a request of a live worker, while nothing else happens; and the captured pause, several times."""
HOUSEKEEPING_S = 0.3
"""For one that Python sends when it drops something, which may be at any time."""


class Patience:
    """The waits of one session."""

    def __init__(
        self,
        calls: Mapping[int, Call],
        timeout_s: float | None = None,
        silent: set[str] | None = None,
    ) -> None:
        """`calls` of the session's job; `timeout_s`: the longest wait that the user allows; `silent`: the
        functions that did not answer in earlier sessions, to which those of this one are added.
        """
        self._timeout_s = timeout_s
        self._silent = set() if silent is None else silent
        self._calls = calls
        moments = {call.begin_ns for call in calls.values()}
        moments |= {call.end_ns for call in calls.values() if call.end_ns is not None}
        self._moments = sorted(moments)

    def for_answer(self, call: Call) -> float:
        """Seconds for the answer to a request that is sent."""
        if call.end_ns is None:
            return SILENCE_S if self._timeout_s is None else min(self._timeout_s, SILENCE_S)
        if self._timeout_s is not None:
            return self._timeout_s
        least = SILENCE_S if call.function in self._silent else LEAST_S
        return least + TIMES * max(call.end_ns - call.begin_ns, 0) / 1e9

    def disappointed(self, call: Call) -> None:
        """The wait for its answer was in vain: the next one for the same function is shorter."""
        if call.function is not None:
            self._silent.add(call.function)

    def for_request(self, index: int) -> float:
        """Seconds without any event after which a live worker's request is given up."""
        call = self._calls[index]
        if call.kind in HOUSEKEEPING:
            return HOUSEKEEPING_S
        place = bisect_left(self._moments, call.begin_ns)
        before = self._moments[place - 1] if place else call.begin_ns
        seconds = QUIET_S + TIMES * (call.begin_ns - before) / 1e9
        return seconds if self._timeout_s is None else min(seconds, self._timeout_s)

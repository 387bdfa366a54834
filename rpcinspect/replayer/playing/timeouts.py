"""How long a replay waits: for an answer, and for what live workers should send by themselves.

In: the captured exchanges, and what the user says. Out: seconds, always finite. The captured times are the
measure; a replay may be several times slower than its run was.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import TypeAlias

from rpcinspect.checks.evidence import TIMES, due_s, usual_s
from rpcinspect.rpc.questions import HOUSEKEEPING
from rpcinspect.run.exchanges import Exchange

LEAST_S = 5.0
"""For an answer."""
LONGEST_S = 3600.0
"""For anything, unless the user says otherwise: a capture may tell of a year."""
SILENCE_S = 2.0
"""For an answer that the capture has not."""
SILENT_S = 1.0
"""For one of a function that did not answer before, in this replay."""
QUIET_S = 2.0
"""For a request of a live worker, while nothing else happens; and the captured pause, several times."""
HOUSEKEEPING_S = 0.3
"""For one that Python sends when it drops something, which may be at any time."""
OVER_S = 0.05
"""For one that came, in the capture, while something was served that is answered by now."""
AGAIN_S = 0.01
"""The same, after its like has not come before."""


WaitSignature: TypeAlias = tuple[str, str, int, int | None, str | None]


class Timeouts:
    """The timeouts of one session."""

    def __init__(
        self,
        calls: Mapping[int, Exchange],
        timeout_s: float | None = None,
        silent: set[str] | None = None,
    ) -> None:
        """`calls` of the session's job; `timeout_s`: the longest wait that the user allows; `silent`: the
        functions that did not answer in earlier sessions, to which those of this one are added.
        """
        self._timeout_s = timeout_s
        self._silent = set() if silent is None else silent
        self._calls = calls
        in_order = sorted(calls.values(), key=lambda call: (call.begin_ns, call.index))
        self._captured = _Served(in_order)
        self._open: dict[str, dict[int, Exchange]] = defaultdict(dict)
        """Worker → requests to it that are not over here, by index, in captured order."""
        for call in in_order:
            self._open[call.callee][call.index] = call
        self._missed: set[WaitSignature] = set()
        """Requests that live workers did not send, by what they are like."""
        moments = {call.begin_ns for call in calls.values()}
        moments |= {call.end_ns for call in calls.values() if call.end_ns is not None}
        self._moments = sorted(moments)
        took = sorted(call.end_ns - call.begin_ns for call in calls.values() if call.end_ns is not None)
        self._usual_s = usual_s(took)

    @property
    def bounded(self) -> bool:
        """Returns whether the user says how long to wait: no wait begins anew then."""
        return self._timeout_s is not None

    def for_answer(self, call: Exchange) -> float:
        """Seconds for the answer to a request that is sent."""
        if call.end_ns is None:
            return SILENCE_S if self._timeout_s is None else min(self._timeout_s, SILENCE_S)
        if self._timeout_s is not None:
            return self._timeout_s
        took_s = max(call.end_ns - call.begin_ns, 0) / 1e9
        wait_s = SILENT_S + took_s if call.function in self._silent else LEAST_S + TIMES * took_s
        return min(wait_s, LONGEST_S)

    def disappointed(self, call: Exchange) -> None:
        """Notes that the answer to a call did not come: the next wait for the same function is shorter."""
        if call.function is not None:
            self._silent.add(call.function)

    def over(self, call: Exchange) -> None:
        """Notes that a request that was sent is answered, or given up: its function has come to its end."""
        self._open[call.callee].pop(call.index, None)

    def missed(self, index: int) -> None:
        """Notes that a live worker's request did not come: the next wait for its like is shorter."""
        self._missed.add(_sign(self._calls[index]))

    def for_request(self, index: int) -> float:
        """Seconds without any event after which a live worker's request is given up."""
        call = self._calls[index]
        if call.kind in HOUSEKEEPING:
            return HOUSEKEEPING_S
        if self._served_before(call):
            return AGAIN_S if _sign(call) in self._missed else OVER_S
        place = bisect_left(self._moments, call.begin_ns)
        before = self._moments[place - 1] if place else call.begin_ns
        seconds = QUIET_S + TIMES * (call.begin_ns - before) / 1e9
        return min(seconds, LONGEST_S if self._timeout_s is None else self._timeout_s)

    def _served_before(self, call: Exchange) -> bool:
        """Returns whether all that the sender served at that time in the capture, if it did, is over here."""
        if not self._captured.any(call):
            return False
        for one in self._open[call.caller].values():
            if one.begin_ns > call.begin_ns:
                break
            if _serves(one, call):
                return False
        return True

    def cut_off(self, call: Exchange) -> bool:
        """Returns whether the capture ended before an answer was due, so that a missing one means nothing."""
        if call.end_ns is not None:
            return False
        left_s = (self._moments[-1] - call.begin_ns) / 1e9
        return left_s <= due_s(self._usual_s)


def _sign(call: Exchange) -> WaitSignature:
    return call.caller, call.callee, call.kind, call.context, call.function


class _Served:
    """Knows which workers served something when, in the capture; fast for thousands of calls."""

    def __init__(self, in_order: Iterable[Exchange]) -> None:
        spans: dict[tuple[str, int | str | None], list[tuple[int, float]]] = defaultdict(list)
        for one in in_order:
            answered = float("inf") if one.answered_ns is None else one.answered_ns
            for context in (one.context, ANY):
                spans[one.callee, context].append((one.begin_ns, answered))
        self._begins = {key: [begin for begin, _ in its] for key, its in spans.items()}
        self._latest = {key: list(accumulate((end for _, end in its), max)) for key, its in spans.items()}
        """When the last answer was given to anything that had begun by then."""

    def any(self, call: Exchange) -> bool:
        """Whether the sender of a call served anything when it sent it."""
        contexts = (ANY,) if call.context is None else (call.context, None)
        for key in [(call.caller, context) for context in contexts]:
            place = bisect_right(self._begins.get(key, ()), call.begin_ns)
            if place and self._latest[key][place - 1] >= call.begin_ns:
                return True
        return False


def _serves(one: Exchange, call: Exchange) -> bool:
    """Whether a request to the sender of a call was not answered when that was sent, and may have caused it:
    a function runs in the context of its request."""
    if one.answered_ns is not None and one.answered_ns < call.begin_ns:
        return False
    return one.context == call.context or call.context is None or one.context is None


ANY = "any"
"""Stands for all contexts, and none."""

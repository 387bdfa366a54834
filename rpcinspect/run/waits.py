"""Which request waits for each call: the one whose answer its callee can't give before that call is over.

In: exchanges and what explains them. Out: request → the request that waits for it. That is its parent in
`causes`, but for gradients. What a worker sends in a pass follows from the gradient that came last, yet it is
the first one that waits for it: torch/csrc/distributed/autograd/engine/dist_engine.cpp runs the worker's
whole part of the pass for that one, and answers it when all that was sent has been answered. Later ones only
hand in what they bring.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from itertools import accumulate

from rpcinspect.rpc.message import MessageType
from rpcinspect.rpc.questions import PASSES
from rpcinspect.run.causes import Causes
from rpcinspect.run.exchanges import Call
from rpcinspect.session.model import NONE

Pass = tuple[int, int | None, str]
"""(job, context, worker): one worker's part of the passes of a context."""


def waiting_requests(calls: Sequence[Call], causes: Causes) -> dict[int, int]:
    """Request → the request that waits for it; what nobody waits for is not in it."""
    by_index = {call.index: call for call in calls}
    received: dict[Pass, list[Call]] = defaultdict(list)
    for call in calls:
        if call.kind in PASSES:
            received[call.job, call.context, call.callee].append(call)
    firsts = {key: _Firsts(its) for key, its in received.items()}
    waiting = dict(causes.parents)
    for call in calls:
        parent = by_index.get(causes.parents.get(call.index, NONE))
        if parent is None or call.kind != MessageType.BACKWARD_AUTOGRAD_REQ or parent.kind not in PASSES:
            continue
        its = firsts.get((call.job, call.context, call.caller))
        first = None if its is None else its.before(call)
        if first is not None and _answered(first) >= _over(call):
            waiting[call.index] = first.index
    return waiting


class _Firsts:
    """The requests that carried a pass to a worker."""

    def __init__(self, requests: list[Call]) -> None:
        requests.sort(key=lambda call: call.arrived_ns)
        self._times = [request.arrived_ns for request in requests]
        self._firsts = list(accumulate(requests, _later))
        """Of those that had arrived with each, or before it, the one that was answered last."""

    def before(self, call: Call) -> Call | None:
        """That of those which had arrived when a call began."""
        end = bisect_right(self._times, call.begin_ns)
        return self._firsts[end - 1] if end else None


def _later(one: Call, other: Call) -> Call:
    """The one that was answered later; the first of two that were answered at once."""
    return other if _answered(other) > _answered(one) else one


def _answered(call: Call) -> float:
    return float("inf") if call.answered_ns is None else call.answered_ns


def _over(call: Call) -> float:
    return float("inf") if call.end_ns is None else call.end_ns

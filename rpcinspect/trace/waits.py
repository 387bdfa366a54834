"""Which request waits for each call: the one whose answer its callee can't give before that call is over.

In: exchanges and what explains them. Out: request → the request that waits for it. That is its parent in
`causes`, but for gradients. What a worker sends in a pass follows from the gradient that came last, yet it is
the first one that waits for it: torch/csrc/distributed/autograd/engine/dist_engine.cpp runs the worker's
whole part of the pass for that one, and answers it when all that was sent has been answered. Later ones only
hand in what they bring.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from rpcinspect.causes.calls import Call
from rpcinspect.causes.causality import PASSES, Causes
from rpcinspect.rpc.message import MessageType
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
    for its in received.values():
        its.sort(key=lambda call: (-_answered(call), call.arrived_ns))
    waiting = dict(causes.parents)
    for call in calls:
        parent = by_index.get(causes.parents.get(call.index, NONE))
        if parent is None or call.kind != MessageType.BACKWARD_AUTOGRAD_REQ or parent.kind not in PASSES:
            continue
        came = (
            one for one in received[call.job, call.context, call.caller] if one.arrived_ns <= call.begin_ns
        )
        first = next(came, None)
        if first is not None and _answered(first) >= _over(call):
            waiting[call.index] = first.index
    return waiting


def _answered(call: Call) -> float:
    return float("inf") if call.answered_ns is None else call.answered_ns


def _over(call: Call) -> float:
    return float("inf") if call.end_ns is None else call.end_ns

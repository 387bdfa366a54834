"""Which answers of a live worker may come only at the end of a backward pass, though they came before in the
capture.

In: the captured calls. Out: of such requests the autograd context of the pass. A played worker that waited
for these answers before it sends its own gradients of that context would wait for ever, since the pass waits
for those. Two cases were seen:

- of the gradients that a worker is sent together, it answers the one that it takes up first when its whole
  part of the pass is done, the others at once. Which one that is, its threads decide.
- `RRef.backward` may begin in the thread that has just made the remote object. That thread answers the
  request for the object when the pass is done.

Mirrors `DistEngine::executeSendFunctionAsync` of torch/csrc/distributed/autograd/engine/dist_engine.cpp, and
`processRRefBackward` of torch/csrc/distributed/rpc/request_callback_no_python.cpp.
"""

from __future__ import annotations

from collections.abc import Mapping

from rpcinspect.rpc.command import (
    PropagateGradientsReq,
    PropagateGradientsResp,
    RRefBackwardReq,
)
from rpcinspect.rpc.questions import created
from rpcinspect.run.exchanges import Exchange


def late_answers(calls: Mapping[int, Exchange]) -> Mapping[int, int]:
    """Index of a request → the context of the pass that its answer may come after."""
    passes: dict[tuple[int, int], int] = {}
    """RRef → the context in which a backward pass begins at it."""
    for call in calls.values():
        command = call.request.rpc.command
        if isinstance(command, RRefBackwardReq):
            passes[command.rref_id.to_value()] = command.autograd_context_id
    found: dict[int, int] = {}
    for index, call in calls.items():
        made = created(call.request)
        context = gradient_context(call) if made is None else passes.get(made[0])
        if context is not None:
            found[index] = context
    return found


def gradient_context(call: Exchange) -> int | None:
    """The context of a gradient; None: the request is none."""
    return call.context if isinstance(call.request.rpc.command, PropagateGradientsReq) else None


def takes_gradient(call: Exchange) -> bool:
    """Whether a request is a gradient that is taken; such an answer waits for nothing."""
    return call.response is not None and isinstance(call.response.rpc.command, PropagateGradientsResp)

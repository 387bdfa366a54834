"""The wrapping rule: which RPC message travels in an envelope, and in which order.

In: facts about a call (is the sender inside an autograd context, what kind of call is it, does a tensor
require grad, is the profiler on). Out: the types of the envelopes, outermost first. The one place where this
rule is written down: the plan predicts the envelope of every live message with it, and the finding
`unexpected-envelope` judges every captured one.

Mirrors `getMessageWithAutograd` and `sendMessageWithAutograd` of torch/csrc/distributed/autograd/utils.cpp,
their callers (python_functions.cpp, torchscript_functions.cpp, rref_impl.cpp: who forces the recording, who
may be profiled) and `processForwardAutogradReq`, `processRunWithProfilingReq` of
request_callback_no_python.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from rpcinspect.rpc.message import MessageType
from rpcinspect.rpc.questions import CALLS, FETCHES
from rpcinspect.rpc.record import RpcRecord

WRAPPED = CALLS | FETCHES
"""Requests that may travel in an envelope; those of the agent, of RRefs and of autograd itself go as they
are."""


def wrap_request(
    kind: int, *, builtin: bool, in_context: bool, requires_grad: bool, profiling: bool
) -> tuple[int, ...]:
    """Returns the envelopes of a request with a command of type `kind`.

    `requires_grad`: any of its tensors does, and grad mode is on. Inside a context all but `builtin`
    operators are wrapped even if none does. Where the profiler is on, it wraps calls, and no fetches.
    """
    types: tuple[int, ...] = ()
    if kind in WRAPPED and in_context and (requires_grad or not builtin):
        types = (MessageType.FORWARD_AUTOGRAD_REQ,)
    return (MessageType.RUN_WITH_PROFILING_REQ, *types) if kind in CALLS and profiling else types


def wrap_answer(request: Sequence[int], *, requires_grad: bool, failed: bool) -> tuple[int, ...]:
    """The envelopes of an answer, from those of its request.

    `failed`: the answer is an EXCEPTION, which no envelope ever holds; a pickled RemoteException is no
    failure to this rule. Nobody forces an answer: it is wrapped for autograd if one of its tensors requires
    grad.
    """
    types: list[int] = []
    for envelope in () if failed else request:
        if envelope == MessageType.RUN_WITH_PROFILING_REQ:
            types.append(MessageType.RUN_WITH_PROFILING_RESP)
        elif envelope == MessageType.FORWARD_AUTOGRAD_REQ and requires_grad:
            types.append(MessageType.FORWARD_AUTOGRAD_RESP)
    return tuple(types)


def envelope_types(record: RpcRecord) -> tuple[int, ...]:
    """The captured envelopes of a message, outermost first."""
    return tuple(envelope.message_type for envelope in record.rpc.envelopes)


@lru_cache(maxsize=1024)
def wrong_request(kind: int, builtin: bool, types: tuple[int, ...], grads: bool) -> str | None:
    """How a captured request breaks the rule, in a sentence; None if it does not.

    Whether its sender was inside a context, and whether the profiler was on, is taken from the envelopes
    themselves; everything else is predicted.
    """
    predicted = wrap_request(
        kind,
        builtin=builtin,
        in_context=MessageType.FORWARD_AUTOGRAD_REQ in types,
        requires_grad=grads,
        profiling=MessageType.RUN_WITH_PROFILING_REQ in types,
    )
    if predicted == types:
        return None
    return f"the request travels in {_names(types)}, where PyTorch uses {_names(predicted)}"


@lru_cache(maxsize=1024)
def wrong_answer(request: tuple[int, ...], types: tuple[int, ...], grads: bool, failed: bool) -> str | None:
    """Returns how a captured answer breaks the rule of `wrap_answer`; None where it follows the rule.
    `request`: the envelopes of its request."""
    predicted = wrap_answer(request, requires_grad=grads, failed=failed)
    if predicted == types:
        return None
    return f"the answer travels in {_names(types)}, where PyTorch uses {_names(predicted)}"


def _names(types: Sequence[int]) -> str:
    return " > ".join(MessageType(kind).name for kind in types) or "no envelope"

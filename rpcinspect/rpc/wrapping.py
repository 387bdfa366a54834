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

from msgspec import Struct

from rpcinspect.rpc.message import MessageType
from rpcinspect.rpc.record import RpcRecord


class Habit(Struct, frozen=True):
    """What the sender of one kind of request does, whatever is in it."""

    records: bool
    """May be wrapped for autograd at all."""
    forced: bool
    """Is wrapped inside a context even if no tensor requires grad."""
    profiled: bool
    """Is wrapped for the profiler where it is on."""


def habit(kind: int, *, builtin: bool = False) -> Habit:
    """The habit of a request by the type of its command."""
    found = HABITS.get(kind, PLAIN)
    return Habit(found.records, False, found.profiled) if builtin else found


def wrap_request(habit: Habit, *, in_context: bool, requires_grad: bool, profiling: bool) -> tuple[int, ...]:
    """The envelopes of a request. `requires_grad`: any of its tensors does, and grad mode is on."""
    types: tuple[int, ...] = ()
    if habit.records and in_context and (habit.forced or requires_grad):
        types = (MessageType.FORWARD_AUTOGRAD_REQ,)
    return (MessageType.RUN_WITH_PROFILING_REQ, *types) if habit.profiled and profiling else types


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
        habit(kind, builtin=builtin),
        in_context=MessageType.FORWARD_AUTOGRAD_REQ in types,
        requires_grad=grads,
        profiling=MessageType.RUN_WITH_PROFILING_REQ in types,
    )
    if predicted == types:
        return None
    return f"the request travels in {_names(types)}, where PyTorch uses {_names(predicted)}"


@lru_cache(maxsize=1024)
def wrong_answer(request: tuple[int, ...], types: tuple[int, ...], grads: bool, failed: bool) -> str | None:
    """How a captured answer breaks the rule; `request`: the envelopes of its request. See `wrap_answer`."""
    predicted = wrap_answer(request, requires_grad=grads, failed=failed)
    if predicted == types:
        return None
    return f"the answer travels in {_names(types)}, where PyTorch uses {_names(predicted)}"


def _names(types: Sequence[int]) -> str:
    return " > ".join(MessageType(kind).name for kind in types) or "no envelope"


PLAIN = Habit(records=False, forced=False, profiled=False)
"""Messages of the agent, of RRefs and of autograd itself: they go to the agent as they are."""

HABITS: dict[int, Habit] = {
    MessageType.PYTHON_CALL: Habit(records=True, forced=True, profiled=True),
    MessageType.PYTHON_REMOTE_CALL: Habit(records=True, forced=True, profiled=True),
    MessageType.SCRIPT_CALL: Habit(records=True, forced=True, profiled=True),
    MessageType.SCRIPT_REMOTE_CALL: Habit(records=True, forced=True, profiled=True),
    MessageType.PYTHON_RREF_FETCH_CALL: Habit(records=True, forced=True, profiled=False),
    MessageType.SCRIPT_RREF_FETCH_CALL: Habit(records=True, forced=True, profiled=False),
}
"""By the type of the command; an operator is not forced, see `habit`."""

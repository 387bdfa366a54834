"""What a session does about messages that the capture has nothing for: it acknowledges, refuses, or tells.

In: a live message without a captured counterpart. Out: the answer for a request, the outcome of a step for an
answer. Nothing here guesses at what a worker would have answered: that a gradient has come says nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping

from rpcinspect.equality.difference import Difference
from rpcinspect.replay.peers.control_calls import NO_TENSORS
from rpcinspect.replay.planning.model import Step
from rpcinspect.replay.planning.steps import NO_ANSWER
from rpcinspect.replay.playing.outcome import StepOutcome
from rpcinspect.rpc.command import (
    CleanupAutogradContextResp,
    Command,
    ExceptionResponse,
    PropagateGradientsResp,
    RRefAck,
)
from rpcinspect.rpc.command_codec import message_type_of, to_payload
from rpcinspect.rpc.message import Message, MessageType, type_name
from rpcinspect.rpc.questions import failed
from rpcinspect.rpc.record import RpcRecord

NOT_THERE = b"rpcinspect: nothing was captured that could answer this"


def acknowledgement(request: RpcRecord) -> Message | None:
    """What torch's agent answers to a request that comes when Python drops something; None for others."""
    command = ACKNOWLEDGED.get(message_type_of(request.rpc.command))
    return None if command is None else _message(command)


def receipt(request: RpcRecord) -> Message | None:
    """The answer to a gradient, which is the same for all; None for others."""
    if message_type_of(request.rpc.command) != MessageType.BACKWARD_AUTOGRAD_REQ:
        return None
    return _message(PropagateGradientsResp())


def refused_here(answer: RpcRecord) -> bool:
    """Whether an answer reports an error that comes from a refusal of ours."""
    return failed(answer) and NOT_THERE in answer.rpc.message.payload


def refusal() -> Message:
    """For a request that nothing captured can answer: its sender goes on instead of waiting."""
    return _message(ExceptionResponse(NOT_THERE))


def too_much(step: Step, live: RpcRecord, latency_s: float, *, cut_off: bool) -> StepOutcome:
    """An answer where the capture has none; `cut_off`: it ended before one was due."""
    if step.one_way:
        return StepOutcome(step=step, result=None, text=NO_ANSWER, latency_s=latency_s)
    if cut_off:
        text = "the capture ends before its answer, with which this one can't be compared"
        return StepOutcome(step=step, result=None, text=text, latency_s=latency_s)
    got = type_name(live.rpc.message.type)
    return StepOutcome(
        step=step,
        result="different",
        differences=(Difference(code="extra", path="answer", a_value=None, b_value=got),),
        text="in the capture it was never answered",
        latency_s=latency_s,
    )


def _message(command: Command) -> Message:
    return Message(message_type_of(command), 0, to_payload(command), NO_TENSORS)


ACKNOWLEDGED: Mapping[int, Command] = {
    MessageType.RREF_USER_DELETE: RRefAck(),
    MessageType.RREF_FORK_REQUEST: RRefAck(),
    MessageType.RREF_CHILD_ACCEPT: RRefAck(),
    MessageType.CLEANUP_AUTOGRAD_CONTEXT_REQ: CleanupAutogradContextResp(),
}

"""What a session sends and tells that no capture has: answers to uncaptured requests, and the messages that
take back what it has made in live workers.

In: a live message without a captured counterpart. Out: the answer for a request, the outcome of a step for an
answer. Nothing here guesses at what a worker would have answered: that a gradient has come says nothing else.

`Leftovers`: the captured messages that were sent and the live ones that came → those after which no autograd
context and no fork is left. A group that goes on running needs them: an owner waits for its users when it
shuts down, and a context holds tensors. A captured program may have cleaned up itself, or not, or only after
the capture.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias, cast

from rpcinspect.equality.difference import Difference
from rpcinspect.equality.ids import CONTEXT, FORK, RREF, IdMap
from rpcinspect.replayer.planning.model import Step
from rpcinspect.replayer.planning.steps import NO_ANSWER
from rpcinspect.replayer.playing.outcome import StepOutcome
from rpcinspect.rpc.command import (
    CleanupAutogradContextReq,
    CleanupAutogradContextResp,
    Command,
    ExceptionResponse,
    PropagateGradientsResp,
    PythonRemoteCall,
    RRefAck,
    RRefForkRequest,
    RRefUserDelete,
    ScriptRemoteCall,
)
from rpcinspect.rpc.command_codec import message_type_of, to_message
from rpcinspect.rpc.message import MessageType, RpcMessage, type_name
from rpcinspect.rpc.questions import context_of, failed
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.types import GloballyUniqueId, unpack_id

NOT_THERE = b"rpcinspect: nothing was captured that could answer this"


def acknowledgement(request: RpcRecord) -> RpcMessage | None:
    """The answer of torch's agent to a request that is sent when Python drops something; None for others."""
    command = ACKNOWLEDGED.get(message_type_of(request.rpc.command))
    return None if command is None else to_message(command)


def receipt(request: RpcRecord) -> RpcMessage | None:
    """The answer to a gradient, which is the same for all; None for others."""
    if message_type_of(request.rpc.command) != MessageType.BACKWARD_AUTOGRAD_REQ:
        return None
    return to_message(PropagateGradientsResp())


def refused_here(answer: RpcRecord) -> bool:
    """Whether an answer reports an error that comes from a refusal of ours."""
    return failed(answer) and NOT_THERE in answer.rpc.message.payload


def refusal() -> RpcMessage:
    """The answer to a request that nothing captured can answer: its sender goes on instead of waiting."""
    return to_message(ExceptionResponse(NOT_THERE))


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


ACKNOWLEDGED: Mapping[int, Command] = {
    MessageType.RREF_USER_DELETE: RRefAck(),
    MessageType.RREF_FORK_REQUEST: RRefAck(),
    MessageType.RREF_CHILD_ACCEPT: RRefAck(),
    MessageType.CLEANUP_AUTOGRAD_CONTEXT_REQ: CleanupAutogradContextResp(),
}


Release: TypeAlias = tuple[str, str, RpcMessage]
"""Who sends it, to whom, what."""


class Leftovers:
    """Keeps what a session has made in live workers and not taken back. Names are captured ones, ids
    those of the live group."""

    def __init__(self, ids: IdMap, live_ids: Mapping[str, int]) -> None:
        self._ids = ids
        self._live_ids = live_ids
        self._contexts: dict[tuple[str, str, int], None] = {}
        """(role, live worker, context)"""
        self._forks: dict[tuple[str, GloballyUniqueId], tuple[str, GloballyUniqueId]] = {}
        """(role, fork) → (owner, RRef)"""

    def sent(self, role: str, to: str, record: RpcRecord) -> None:
        """A captured request has gone to a live worker; its ids are known."""
        command, context = record.rpc.command, context_of(record)
        live = None if context is None else cast("int | None", self._ids.translate(CONTEXT, context))
        if live is not None and isinstance(command, CleanupAutogradContextReq):
            self._contexts.pop((role, to, live), None)
        elif live is not None and unpack_id(live)[0] == self._live_ids.get(role):
            self._contexts[role, to, live] = None
        if isinstance(command, (PythonRemoteCall, ScriptRemoteCall)):
            self._note(role, to, command.ret_rref_id, command.ret_fork_id)
        elif isinstance(command, RRefForkRequest):
            self._note(role, to, command.rref_id, command.fork_id)
        elif isinstance(command, RRefUserDelete):
            fork = self._ids.translate(FORK, command.fork_id)
            self._forks.pop((role, cast("GloballyUniqueId", fork)), None)

    def came(self, role: str, sender: str, record: RpcRecord) -> None:
        """Takes a message from a live worker; the role becomes a user of the sender's own RRefs in it."""
        owner = self._live_ids.get(sender)
        for fork in record.facts.forks:
            if fork.owner_id == owner:
                self._forks[role, GloballyUniqueId(*fork.fork_id)] = sender, GloballyUniqueId(*fork.rref_id)

    def releases(self) -> Iterator[Release]:
        """Yields the messages after which nothing is left."""
        for role, fork in list(self._forks):
            owner, rref = self._forks.pop((role, fork))
            yield role, owner, to_message(RRefUserDelete(rref, fork))
        for role, to, context in list(self._contexts):
            yield role, to, to_message(CleanupAutogradContextReq(context))
        self._contexts.clear()

    def _note(self, role: str, owner: str, rref: GloballyUniqueId, fork: GloballyUniqueId) -> None:
        live_rref, live_fork = self._ids.translate(RREF, rref), self._ids.translate(FORK, fork)
        if isinstance(live_rref, GloballyUniqueId) and isinstance(live_fork, GloballyUniqueId):
            self._forks[role, live_fork] = owner, live_rref

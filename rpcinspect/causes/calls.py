"""Captured messages → exchanges: each request with its answer, its ends and its times.

In: a decoded session and its records in the order of time. Out: `Call`s by the index of their request, and
the answers whose request was not captured. What later modules need of a message's content is read off here
once.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from rpcinspect.rpc.command import (
    CleanupAutogradContextReq,
    Command,
    PropagateGradientsReq,
    PythonRemoteCall,
    PythonRRefFetchCall,
    RRefBackwardReq,
    RRefChildAccept,
    RRefForkRequest,
    RRefUserDelete,
    ScriptCall,
    ScriptRemoteCall,
    ScriptRRefFetchCall,
)
from rpcinspect.rpc.command_codec import message_type_of
from rpcinspect.rpc.envelope import RpcWithAutograd
from rpcinspect.rpc.message import MessageType, type_name
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.model import NONE, CallFailure, Session


class Call(Struct, eq=False, kw_only=True):
    """A request and, where one was captured, its answer. Times are those of the capture, in nanoseconds."""

    index: int
    """Of the request, in the order of time."""
    answer: int | None
    job: int
    caller: str
    callee: str
    kind: int
    """Message type of the command, envelopes off."""
    context: int | None
    """The autograd context that the request belongs to."""
    wrapped: bool
    """The request travels in an autograd envelope."""
    function: str | None
    control: bool
    begin_ns: int
    """First byte of the request."""
    arrived_ns: int
    """Last byte of the request."""
    answered_ns: int | None
    """First byte of the answer."""
    end_ns: int | None
    """Last byte of the answer."""
    request: RpcRecord
    response: RpcRecord | None
    failure: CallFailure | None = None
    """Why its caller gave it up, where a log tells; an answer may have come after that."""

    @property
    def gave_up_ns(self) -> int | None:
        """When its caller gave it up."""
        return None if self.failure is None else self.failure.time_ns

    @property
    def type(self) -> str:
        """The outermost type's name, as `decode` shows it."""
        return type_name(self.request.rpc.message.type)


class Orphan(Struct, frozen=True):
    """An answer whose request was not captured."""

    index: int
    job: int
    source: str
    destination: str
    record: RpcRecord


class Exchanges(Struct, frozen=True):
    """All messages of a session."""

    calls: tuple[Call, ...]
    """In the order in which they began."""
    orphans: tuple[Orphan, ...]

    def by_index(self) -> dict[int, Call]:
        """Calls by the index of the request."""
        return {call.index: call for call in self.calls}


def read_exchanges(session: Session, messages: Sequence[RpcRecord]) -> Exchanges:
    """The exchanges of a session; `messages` in the order of time, so that a place is an index."""
    columns = session.messages
    calls: list[Call] = []
    orphans: list[Orphan] = []
    for index, record in enumerate(messages):
        row = record.row
        job = session.jobs[columns.pipe[row]]
        partner = columns.partner[row]
        if not columns.from_client[row]:
            if partner == NONE:
                orphans.append(Orphan(index, job, session.source(row), session.destination(row), record))
            continue
        answer = None if partner == NONE else int(session.index[partner])
        response = None if answer is None else messages[answer]
        calls.append(
            Call(
                index=index,
                answer=answer,
                job=job,
                caller=session.source(row),
                callee=session.destination(row),
                kind=message_type_of(record.rpc.command),
                context=context_of(record),
                wrapped=any(isinstance(e, RpcWithAutograd) for e in record.rpc.envelopes),
                function=function_of(record),
                control=bool(columns.control[row]),
                begin_ns=record.tp.first_ns,
                arrived_ns=record.tp.last_ns,
                answered_ns=None if response is None else response.tp.first_ns,
                end_ns=None if response is None else response.tp.last_ns,
                request=record,
                response=response,
                failure=session.failures.get(row),
            )
        )
    return Exchanges(tuple(calls), tuple(orphans))


def function_of(record: RpcRecord) -> str | None:
    """The function that a request calls: `module.name`, `aten::add.Tensor` or `__torch__.module.name`."""
    command = record.rpc.command
    if isinstance(command, (ScriptCall, ScriptRemoteCall)):
        return command.function
    return record.facts.function


def is_builtin(command: Command) -> bool:
    """Whether a request calls an operator, not a TorchScript function: only those may stay without an
    autograd envelope inside a context."""
    return isinstance(command, (ScriptCall, ScriptRemoteCall)) and command.schema is not None


def context_of(record: RpcRecord) -> int | None:
    """The autograd context that a message belongs to."""
    command = record.rpc.command
    if isinstance(command, PropagateGradientsReq):
        return command.autograd_metadata.autograd_context_id
    if isinstance(command, CleanupAutogradContextReq):
        return command.context_id
    if isinstance(command, RRefBackwardReq):
        return command.autograd_context_id
    for envelope in record.rpc.envelopes:
        if isinstance(envelope, RpcWithAutograd):
            return envelope.autograd_metadata.autograd_context_id
    return None


def rref_of(record: RpcRecord) -> tuple[int, int] | None:
    """The RRef that a request is about: fetched, differentiated, forked or deleted."""
    command = record.rpc.command
    if isinstance(command, RRefBackwardReq):
        return command.rref_id.to_value()
    if isinstance(command, (PythonRRefFetchCall, ScriptRRefFetchCall, RRefForkRequest, RRefUserDelete)):
        return command.rref_id.to_value()
    return None


def fork_of(record: RpcRecord) -> tuple[int, int] | None:
    """The fork that a request of RRef housekeeping is about."""
    command = record.rpc.command
    if isinstance(command, (RRefForkRequest, RRefUserDelete, RRefChildAccept)):
        return command.fork_id.to_value()
    return None


def created(record: RpcRecord) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """(RRef, its first fork) that a remote call makes."""
    command = record.rpc.command
    if isinstance(command, (PythonRemoteCall, ScriptRemoteCall)):
        return command.ret_rref_id.to_value(), command.ret_fork_id.to_value()
    return None


def missing_bytes(record: RpcRecord) -> int:
    """Bytes of payloads and tensors that the capture does not hold."""
    tp = record.tp
    return sum(tp.payload_missing or ()) + sum(tensor.missing_bytes for tensor in tp.tensors)


def uncertain(record: RpcRecord) -> bool:
    """Whether bytes of a tensor may be another tensor's, or belong nowhere."""
    return any(tensor.extent is None and tensor.descriptor.length for tensor in record.tp.tensors)


CALLS = frozenset(
    {
        MessageType.PYTHON_CALL,
        MessageType.SCRIPT_CALL,
        MessageType.PYTHON_REMOTE_CALL,
        MessageType.SCRIPT_REMOTE_CALL,
    }
)
"""Requests that run something at the callee."""

FETCHES = frozenset({MessageType.PYTHON_RREF_FETCH_CALL, MessageType.SCRIPT_RREF_FETCH_CALL})

HOUSEKEEPING = frozenset(
    {MessageType.RREF_USER_DELETE, MessageType.RREF_FORK_REQUEST, MessageType.RREF_CHILD_ACCEPT}
)
"""What agents send for RRefs without being asked to."""

CLEAN_UP = HOUSEKEEPING | {MessageType.CLEANUP_AUTOGRAD_CONTEXT_REQ}
"""What a worker sends only so that others may free something."""

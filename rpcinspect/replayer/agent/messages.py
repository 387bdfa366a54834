"""Messages as the process of a played worker takes them apart, and as they are put together of what it tells.

In: a captured message with live ids, or commands and facts that the process tells. Out: its command, context
and edge; or a message. Nothing is written in another way than torch would. What torch's agent does not show
is taken from the capture: the captured question that a live one looks like tells its sender and whether its
function is asynchronous, captured gradients tell `retain_graph`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rpcinspect.equality.ids import FORK, RREF, IdMap
from rpcinspect.errors import DecodeError, ReplayError
from rpcinspect.replayer.agent.values import RRefPlace, read_value, told_value
from rpcinspect.replayer.playing.translate import LiveRecords, translate
from rpcinspect.replayer.workers.worker_protocol import Object
from rpcinspect.rpc.command import (
    Command,
    PropagateGradientsReq,
    PythonCall,
    PythonRemoteCall,
    PythonResp,
    PythonRRefFetchCall,
    PythonRRefFetchRet,
    RemoteRet,
    ScriptCall,
    ScriptRemoteCall,
    ScriptResp,
    ScriptRRefFetchCall,
    ScriptRRefFetchRet,
)
from rpcinspect.rpc.command_codec import from_message, message_type_of, to_payload
from rpcinspect.rpc.envelope import AutogradMetadata, RpcWithAutograd, peel, wrap
from rpcinspect.rpc.message import NO_TENSORS, MessageType, RpcMessage, type_name
from rpcinspect.rpc.pickle_facts import FactsReader
from rpcinspect.rpc.types import GloballyUniqueId, WorkerId
from rpcinspect.run.exchanges import Exchange


def read_message(message: RpcMessage) -> tuple[Command, int | None, int | None]:
    """Returns the command of a message, with the context and the autograd message id of its envelope. Raises
    `ReplayError` for an unreadable message."""
    try:
        envelopes, kind, payload = peel(message.type, message.payload)
        command = from_message(kind, payload)
    except DecodeError as error:
        raise ReplayError(f"{type_name(message.type)}: {error}") from error
    for envelope in envelopes:
        if isinstance(envelope, RpcWithAutograd):
            metadata = envelope.autograd_metadata
            return command, metadata.autograd_context_id, metadata.autograd_message_id
    return command, None, None


def autograd_envelope(
    context: int, edge: int, sender: WorkerId, command: Command, *, answer: bool
) -> RpcWithAutograd:
    """The envelope in which a worker sends a command in a context."""
    kind = MessageType.FORWARD_AUTOGRAD_RESP if answer else MessageType.FORWARD_AUTOGRAD_REQ
    return RpcWithAutograd(
        message_type=int(kind),
        autograd_metadata=AutogradMetadata(context, edge),
        from_worker_id=sender,
        device_map={},
        wrapped_message_type=int(message_type_of(command)),
    )


def made(
    command: Command, envelopes: Sequence[RpcWithAutograd] = (), table: bytes = NO_TENSORS
) -> RpcMessage:
    """Returns a message with message id 0."""
    kind = envelopes[0].message_type if envelopes else message_type_of(command)
    return RpcMessage(int(kind), 0, wrap(envelopes, to_payload(command)), table)


def call_of(command: Command, rref: RRefPlace) -> tuple[Object, bytes]:
    """Returns what the process needs to make a call, and the pickle of the call; `rref`: maps the ids of an
    RRef to those in the process. Raises `ReplayError` where an argument can't be sent."""
    remote = isinstance(command, (PythonRemoteCall, ScriptRemoteCall))
    if isinstance(command, (PythonCall, PythonRemoteCall)):
        told = {"kind": "python", "remote": remote, "async": command.is_async_execution}
        return told, command.serialized_py_obj
    assert isinstance(command, (ScriptCall, ScriptRemoteCall))
    builtin = command.schema is not None
    told = {
        "kind": "builtin" if builtin else "script",
        "remote": remote,
        "function": command.schema if builtin else command.qualified_name,
        "args": [told_value(one, rref) for one in command.args],
        "async": command.is_async_execution,
    }
    return told, b""


def answer_command(asked: Command, what: Object, pickle: bytes) -> Command:
    """Returns the answer to a request, from the report of the process."""
    if isinstance(asked, (PythonRemoteCall, ScriptRemoteCall)):
        return RemoteRet(asked.ret_rref_id, asked.ret_fork_id)
    if isinstance(asked, PythonRRefFetchCall):
        tops = [row["part_of"] for row in what["tensors"]].count(None)
        return PythonRRefFetchRet(tuple(range(tops)), pickle)
    if isinstance(asked, ScriptRRefFetchCall):
        return ScriptRRefFetchRet((read_value(what["value"]),))
    return ScriptResp(read_value(what["value"])) if "value" in what else PythonResp(pickle)


class ExpectedQuestions:
    """Captured questions in Python that have not come yet, in order."""

    def __init__(self, asked: Iterable[Exchange]) -> None:
        """Keeps the Python calls among captured requests: torch's agent shows no others."""
        self._asked = [
            (call, command.serialized_py_obj)
            for call in asked
            if isinstance(command := call.request.rpc.command, PythonCall)
        ]

    def take(self, pickle: bytes, sender: str | None) -> tuple[Exchange | None, bool]:
        """Removes and returns the first question with these bytes, otherwise the first of all, and whether
        another worker may have asked it; `sender`: of this worker only, if it is known."""
        same = [one for one in self._asked if sender is None or one[0].caller == sender]
        exact = [one for one in same if one[1] == pickle]
        possible = exact or same
        for one in possible[:1]:
            self._asked.remove(one)
        doubtful = len({call.caller for call, _ in possible}) > 1
        return next((call for call, _ in possible), None), doubtful


def is_async_call(call: Exchange) -> bool:
    """Whether a function is marked as asynchronous."""
    command = call.request.rpc.command
    return isinstance(command, PythonCall) and command.is_async_execution


def retained(calls: Iterable[Exchange], metadata: AutogradMetadata, number: int) -> bool:
    """`retain_graph` of the gradients that came for an edge as the `number`th, from 0."""
    found = [
        call.request.rpc.command.retain_graph
        for call in calls
        if isinstance(call.request.rpc.command, PropagateGradientsReq)
        and call.request.rpc.command.autograd_metadata == metadata
    ]
    return found[min(number, len(found) - 1)] if found else False


class OwnRRefs:
    """Maps the captured RRef ids of one played worker to those that torch gave. Live workers' messages have
    none of the captured ids."""

    def __init__(self) -> None:
        self._real: dict[tuple[int, int], tuple[int, int]] = {}
        self._records = LiveRecords()

    def made(self, captured: tuple[int, int], real: Sequence[int]) -> None:
        """Maps a captured RRef to the one that torch made."""
        self._real[captured] = int(real[0]), int(real[1])

    def brought(self, pickle: bytes) -> list[list[int | str]]:
        """The RRefs that an answer brings, as torch takes them; from now on they can be used under their
        ids."""
        found: list[list[int | str]] = []
        if b"_py_rref_receiver" in pickle or b"_remote_module_receiver" in pickle:
            for one in FactsReader().read(PythonResp(pickle)).forks:
                self.made(one.rref_id, one.rref_id)
                found.append([one.owner_id, *one.rref_id, *one.fork_id, one.parent, one.type_str])
        return found

    def real(self, captured: tuple[int, int]) -> tuple[int, int]:
        """torch's id. Raises `ReplayError` for one that was not made here."""
        found = self._real.get(captured)
        if found is None:
            raise ReplayError("the RRef {}:{} was not made here".format(*captured))
        return found

    def with_own_ids(
        self, message: RpcMessage, tensors: Sequence[bytes], fork: Callable[[Sequence[int]], tuple[int, int]]
    ) -> RpcMessage:
        """The message with torch's ids in its arguments; `fork`: makes one more fork of an RRef of
        torch's."""
        record = self._records.decode(message, tensors).record
        if not record.facts.forks:
            return message
        ids = IdMap()
        for one in record.facts.forks:
            real = self.real(one.rref_id)
            ids.same(RREF, GloballyUniqueId(*one.rref_id), GloballyUniqueId(*real))
            ids.same(FORK, GloballyUniqueId(*one.fork_id), GloballyUniqueId(*fork(real)))
        return translate(record, ids)

"""Messages as the process of a played worker takes them apart, and as they are put together of what it tells.

In: a captured message with live ids, or commands and facts that the process tells. Out: its command, context
and edge; or a message. Nothing is written in another way than torch would. What torch's agent does not show
is taken from the capture: the captured question that a live one looks like tells its sender and whether its
function is asynchronous, captured gradients tell `retain_graph`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rpcinspect.errors import DecodeError, ReplayError
from rpcinspect.replay.agent.values import RRefPlace, read_value, told_value
from rpcinspect.replay.workers.worker_protocol import Object
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
from rpcinspect.rpc.message import NO_TENSORS, Message, MessageType, type_name
from rpcinspect.rpc.types import WorkerId
from rpcinspect.run.exchanges import Exchange


def read_message(message: Message) -> tuple[Command, int | None, int | None]:
    """The command of a message, with the context and the autograd message id of its envelope. Raises
    `ReplayError` where it can't be read."""
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


def made(command: Command, envelopes: Sequence[RpcWithAutograd] = (), table: bytes = NO_TENSORS) -> Message:
    """A message without a number of its own."""
    kind = envelopes[0].message_type if envelopes else message_type_of(command)
    return Message(int(kind), 0, wrap(envelopes, to_payload(command)), table)


def split_blob(what: Object, blob: bytes) -> tuple[bytes, list[bytes]]:
    """The pickle and the storages behind what the process tells."""
    start = int(what["pickle"])
    storages, at = [], start
    for length in what["storages"]:
        storages.append(blob[at : at + int(length)])
        at += int(length)
    return blob[:start], storages


def call_of(command: Command, rref: RRefPlace) -> tuple[Object, bytes]:
    """What the process must know to make a call, and the pickle that goes with it; `rref`: the ids of an RRef
    there. Raises `ReplayError` where an argument can't be told."""
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
    """The answer to a request, of what the process tells of it."""
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
        self._asked = list(asked)

    def take(self, pickle: bytes, sender: str | None) -> Exchange | None:
        """The first with these bytes, otherwise the first of all; `sender`: of this worker's only, if it is
        known. It won't be found again."""
        same = [call for call in self._asked if sender is None or call.caller == sender]
        exact = [call for call in same if _pickle(call) == pickle]
        for call in (exact or same)[:1]:
            self._asked.remove(call)
            return call
        return None


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


def _pickle(call: Exchange) -> bytes:
    command = call.request.rpc.command
    return command.serialized_py_obj if isinstance(command, PythonCall) else b""

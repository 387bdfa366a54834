"""What is asked of one message: its function, its context, which RRef and fork it is about, how large it is.

In: a record. Out: plain values. Nothing here knows other messages; what follows from several of them is for
`session` and `run`.
"""

from __future__ import annotations

from collections.abc import Sequence

from rpcinspect.pickles.semantic import PythonUdf, python_udf
from rpcinspect.pickles.tree import Dict, Value
from rpcinspect.rpc import command as commands
from rpcinspect.rpc.command import Command
from rpcinspect.rpc.command_codec import message_type_of
from rpcinspect.rpc.envelope import RpcWithAutograd
from rpcinspect.rpc.message import MessageType
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.tensor import TensorMeta
from rpcinspect.rpc.tensor_values import logical_nbytes


def function_of(record: RpcRecord) -> str | None:
    """The function that a request calls: `module.name`, `aten::add.Tensor` or `__torch__.module.name`."""
    command = record.rpc.command
    if isinstance(command, (commands.ScriptCall, commands.ScriptRemoteCall)):
        return command.function
    return record.facts.function


def is_builtin(command: Command) -> bool:
    """Whether a request calls an operator, not a TorchScript function: only those may stay without an
    autograd envelope inside a context."""
    return (
        isinstance(command, (commands.ScriptCall, commands.ScriptRemoteCall)) and command.schema is not None
    )


def command_context(command: Command) -> int | None:
    """The autograd context that a command names."""
    if isinstance(command, commands.PropagateGradientsReq):
        return command.autograd_metadata.autograd_context_id
    if isinstance(command, commands.CleanupAutogradContextReq):
        return command.context_id
    return command.autograd_context_id if isinstance(command, commands.RRefBackwardReq) else None


def context_of(record: RpcRecord) -> int | None:
    """The autograd context that a message belongs to."""
    found = command_context(record.rpc.command)
    if found is not None:
        return found
    for envelope in record.rpc.envelopes:
        if isinstance(envelope, RpcWithAutograd):
            return envelope.autograd_metadata.autograd_context_id
    return None


def rref_of(record: RpcRecord) -> tuple[int, int] | None:
    """The RRef that a request is about: fetched, differentiated, forked or deleted."""
    command = record.rpc.command
    if isinstance(command, commands.RRefBackwardReq):
        return command.rref_id.to_value()
    if isinstance(
        command,
        (
            commands.PythonRRefFetchCall,
            commands.ScriptRRefFetchCall,
            commands.RRefForkRequest,
            commands.RRefUserDelete,
        ),
    ):
        return command.rref_id.to_value()
    return None


def fork_of(record: RpcRecord) -> tuple[int, int] | None:
    """The fork that a request of RRef housekeeping is about."""
    command = record.rpc.command
    if isinstance(command, (commands.RRefForkRequest, commands.RRefUserDelete, commands.RRefChildAccept)):
        return command.fork_id.to_value()
    return None


def created(record: RpcRecord) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Returns the ids of the RRef and of its first fork that a remote call makes; None for other messages."""
    command = record.rpc.command
    if isinstance(command, (commands.PythonRemoteCall, commands.ScriptRemoteCall)):
        return command.ret_rref_id.to_value(), command.ret_fork_id.to_value()
    return None


def python_udf_of(record: RpcRecord) -> PythonUdf | None:
    """The call in a request's pickle; None where it could not be read whole."""
    pickle = record.facts.pickle
    return None if pickle is None else python_udf(pickle.root)


def arguments_of(record: RpcRecord) -> tuple[Value, Value] | None:
    """What a request gives to the function that it calls, by place and by name; None where it calls none, or
    that can't be read.
    """
    command = record.rpc.command
    if isinstance(command, (commands.ScriptCall, commands.ScriptRemoteCall)):
        return command.args, Dict()
    udf = python_udf_of(record)
    return None if udf is None else (udf.args, udf.kwargs)


def result_of(record: RpcRecord) -> Value:
    """What an answer brings, of a failed call its RemoteException; None also where it brings nothing."""
    command, pickle = record.rpc.command, record.facts.pickle
    if isinstance(command, commands.ScriptResp):
        return command.value
    if isinstance(command, commands.ScriptRRefFetchRet):
        return command.values[0] if len(command.values) == 1 else command.values
    if isinstance(command, (commands.PythonResp, commands.PythonRRefFetchRet)) and pickle is not None:
        return pickle.root
    return None


def missing_bytes(record: RpcRecord) -> int:
    """Bytes of payloads and tensors that the capture does not hold."""
    tp = record.tp
    return sum(tp.payload_missing or ()) + sum(tensor.missing_bytes for tensor in tp.tensors)


def uncertain(record: RpcRecord) -> bool:
    """Returns whether bytes of a tensor could be another tensor's, or no tensor's."""
    return any(tensor.extent is None and tensor.descriptor.length for tensor in record.tp.tensors)


def is_whole(record: RpcRecord) -> bool:
    """Whether all bytes of a message were captured, and each tensor's are certain."""
    return not (missing_bytes(record) or uncertain(record))


def failed(record: RpcRecord) -> bool:
    """Whether a message is an answer that reports an error."""
    return record.facts.failed or message_type_of(record.rpc.command) == MessageType.EXCEPTION


def element_bytes(metas: Sequence[TensorMeta], meta: TensorMeta) -> int:
    """Bytes of a tensor's elements."""
    if meta.layout != "strided":
        parts = [metas[part] for _, part in meta.parts]
        return sum(element_bytes(metas, part) for part in parts if part.layout == "strided")
    return logical_nbytes(meta)


def size_of(record: RpcRecord) -> int:
    """Bytes of a message: descriptor, payloads and tensors."""
    return record.tp.length + sum(tensor.descriptor.length for tensor in record.tp.tensors)


def requires_grad(record: RpcRecord) -> bool:
    """Whether any of the message's own tensors requires grad."""
    return any(meta.requires_grad and meta.part_of is None for meta in record.rpc.tensors)


CALLS: frozenset[MessageType] = frozenset(
    {
        MessageType.PYTHON_CALL,
        MessageType.SCRIPT_CALL,
        MessageType.PYTHON_REMOTE_CALL,
        MessageType.SCRIPT_REMOTE_CALL,
    }
)
"""Requests that run something at the callee."""

FETCHES: frozenset[MessageType] = frozenset(
    {MessageType.PYTHON_RREF_FETCH_CALL, MessageType.SCRIPT_RREF_FETCH_CALL}
)

HOUSEKEEPING = frozenset(
    {MessageType.RREF_USER_DELETE, MessageType.RREF_FORK_REQUEST, MessageType.RREF_CHILD_ACCEPT}
)
"""What agents send for RRefs without being asked to."""

CLEAN_UP = HOUSEKEEPING | {MessageType.CLEANUP_AUTOGRAD_CONTEXT_REQ}
"""What a worker sends only so that others may free something."""

KEEPING = CLEAN_UP | {MessageType.RREF_ACK, MessageType.CLEANUP_AUTOGRAD_CONTEXT_RESP}
"""Messages with which agents keep house, answers too; so are their own calls (`control`)."""

REMOTE = frozenset({MessageType.PYTHON_REMOTE_CALL, MessageType.SCRIPT_REMOTE_CALL})

GENERAL = CALLS | FETCHES | {MessageType.RREF_BACKWARD_REQ}
"""What only code of the user, or of a library in its place, sends."""

PASSES = frozenset({MessageType.BACKWARD_AUTOGRAD_REQ, MessageType.RREF_BACKWARD_REQ})
"""Requests that carry a backward pass to a worker."""

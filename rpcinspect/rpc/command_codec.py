"""Commands ↔ payloads: one row per message type at the foot.

In: the innermost type and payload, whole, with the envelopes off. Out: a command; `UnknownCommand` for types
that we do not know. `to_payload` is the way back. Python pickles are not looked into: `python_pickle` reads
one when it is wanted.
Mirrors `fromMessage` and `toMessageImpl` of torch/csrc/distributed/rpc/{script_call,python_call,…}.cpp.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from rpcinspect.errors import DecodeError
from rpcinspect.limits import DEFAULT_LIMITS, Limits
from rpcinspect.pickles.jit import Forms, read_forms, read_jit
from rpcinspect.pickles.jit_write import OWNED, write_jit
from rpcinspect.pickles.python import PythonPickle, read_python_pickle
from rpcinspect.pickles.render import render
from rpcinspect.pickles.semantic import tensor_index, tensor_reference
from rpcinspect.pickles.tree import Call, Global, Value
from rpcinspect.rpc.command import (
    CleanupAutogradContextReq,
    CleanupAutogradContextResp,
    Command,
    ExceptionResponse,
    PropagateGradientsReq,
    PropagateGradientsResp,
    PythonCall,
    PythonRemoteCall,
    PythonResp,
    PythonRRefFetchCall,
    PythonRRefFetchRet,
    RemoteRet,
    RRefAck,
    RRefBackwardReq,
    RRefBackwardResp,
    RRefChildAccept,
    RRefForkRequest,
    RRefUserDelete,
    ScriptCall,
    ScriptRemoteCall,
    ScriptResp,
    ScriptRRefFetchCall,
    ScriptRRefFetchRet,
    UnknownCommand,
)
from rpcinspect.rpc.envelope import AutogradMetadata
from rpcinspect.rpc.message import NO_TENSORS, Message, MessageType
from rpcinspect.rpc.types import ForkId, RRefId, as_bool, as_int, as_worker_id, describe

BUILTIN_OP_NAMESPACE = "torch.ops.aten."
"""A qualified name that starts so is a builtin operator's, and a schema stands before it."""


def from_message(message_type: int, payload: bytes, limits: Limits = DEFAULT_LIMITS) -> Command:
    """The command in a payload without envelopes.

    Raises DecodeError: layer "pickle" where a JIT pickle is damaged, "rpc" where it says something else than
    this type should. Types that are not in COMMANDS give an UnknownCommand.
    """
    codec = COMMANDS.get(message_type)
    if codec is None:
        return UnknownCommand(message_type, payload)
    if isinstance(codec, JitCodec):
        return codec.read(read_jit(payload, limits))
    return codec.read(payload)


def to_payload(command: Command, like: bytes | None = None) -> bytes:
    """The payload that says `command`, without envelopes: as torch writes it, or in the forms of `like`, a
    payload of the same type that could be read."""
    if isinstance(command, UnknownCommand):
        return command.payload
    codec = COMMANDS[message_type_of(command)]
    if isinstance(codec, JitCodec):
        value = codec.write(command)
        forms = None if like is None else read_forms(like)
        if forms is None and codec.owned is not None:
            parts: list[Forms | None] = [None] * len(value)
            parts[codec.owned] = [OWNED] * len(parts[codec.owned])
            forms = Forms(parts=tuple(parts))
        return write_jit(value, forms)
    return codec.write(command)


def to_message(command: Command, table: bytes = NO_TENSORS) -> Message:
    """The message that says a command, as torch writes it; without envelopes and without a number of its
    own."""
    return Message(int(message_type_of(command)), 0, to_payload(command), table)


def message_type_of(command: Command) -> int:
    """The type of the message that carries `command` when no envelope is around it."""
    if isinstance(command, UnknownCommand):
        return command.message_type
    return _TYPES[type(command)]


def python_pickle(command: Command, limits: Limits = DEFAULT_LIMITS) -> PythonPickle | None:
    """The Python pickle that a command carries, read; None if its kind carries none. Raises DecodeError."""
    if isinstance(command, (PythonCall, PythonResp, PythonRemoteCall, PythonRRefFetchRet)):
        return read_python_pickle(command.serialized_py_obj, limits)
    return None


def parameter_indexes(pickle: PythonPickle, *, trainable: bool = False) -> frozenset[int]:
    """Indexes of the tensors that a Python pickle makes an nn.Parameter of; `trainable`: those that then
    require grad, as (data, requires_grad, hooks) say.
    """
    found = set()
    for call in pickle.calls:
        if call.function in _REBUILD_PARAMETER and type(call.args) is tuple and call.args:
            if trainable and call.args[1:2] != (True,):
                continue
            index = tensor_index(call.args[0])
            if index is not None:
                found.add(index)
    return frozenset(found)


class JitCodec(Struct, frozen=True):
    """A payload that is one JIT pickle."""

    command: type[Any]
    read: Callable[[Value], Command]
    write: Callable[[Any], Value]
    owned: slice | None = None
    """The values of the tuple that upstream memoises, since more than their tuple owns them."""


class RawCodec(Struct, frozen=True):
    """Any other payload."""

    command: type[Any]
    read: Callable[[bytes], Command]
    write: Callable[[Any], bytes]


def _script_call(value: Value) -> ScriptCall:
    """(arg0, …, X, Y): X a schema or whether it runs asynchronously, Y a qualified name."""
    args, schema, name, is_async = _script_parts(_tuple(value, "script call", at_least=2))
    return ScriptCall(args=args, schema=schema, qualified_name=name, is_async_execution=is_async)


def _script_remote_call(value: Value) -> ScriptRemoteCall:
    """As a script call, then the ids of RRef and fork."""
    *call, rref_id, fork_id = _tuple(value, "script remote call", at_least=4)
    args, schema, name, is_async = _script_parts(call)
    return ScriptRemoteCall(
        args=args,
        schema=schema,
        qualified_name=name,
        is_async_execution=is_async,
        ret_rref_id=RRefId.from_value(rref_id, "RRef id"),
        ret_fork_id=ForkId.from_value(fork_id, "fork id"),
    )


def _script_parts(call: Sequence[Value]) -> tuple[tuple[Value, ...], str | None, str, bool]:
    *args, what, name = call
    if type(name) is not str:
        raise DecodeError("rpc", f"qualified name: expected text, found {describe(name)}")
    if not name.startswith(BUILTIN_OP_NAMESPACE):
        return tuple(args), None, name, as_bool(what, "is_async_execution")
    if type(what) is not str:
        raise DecodeError("rpc", f"schema: expected text, found {describe(what)}")
    return tuple(args), what, name, False


def _script_values(command: ScriptCall | ScriptRemoteCall) -> tuple[Value, ...]:
    what = command.is_async_execution if command.schema is None else command.schema
    return (*command.args, what, command.qualified_name)


def _python_call(payload: bytes) -> PythonCall:
    """One byte is_async_execution, then the Python pickle."""
    if payload[:1] not in (b"\0", b"\1"):
        raise DecodeError("rpc", "a Python call starts with neither 00 nor 01 (is_async_execution)", 0)
    return PythonCall(payload[1:], payload[0] == 1)


def _python_remote_call(value: Value) -> PythonRemoteCall:
    """(tensor, …, Python pickle, RRef id, fork id, is_async_execution)"""
    *tensors, pickled, rref_id, fork_id, is_async = _tuple(value, "Python remote call", at_least=4)
    return PythonRemoteCall(
        tensors=_tensor_indexes(tensors),
        serialized_py_obj=_bytes(pickled),
        ret_rref_id=RRefId.from_value(rref_id, "RRef id"),
        ret_fork_id=ForkId.from_value(fork_id, "fork id"),
        is_async_execution=as_bool(is_async, "is_async_execution"),
    )


def _python_remote_values(command: PythonRemoteCall) -> Value:
    return (
        *_tensor_refs(command.tensors),
        command.serialized_py_obj,
        command.ret_rref_id.to_value(),
        command.ret_fork_id.to_value(),
        command.is_async_execution,
    )


def _fetch_codec(cls: type[ScriptRRefFetchCall] | type[PythonRRefFetchCall]) -> JitCodec:
    """(RRef id, from_worker_id)"""

    def read(value: Value) -> Command:
        rref_id, worker_id = _tuple(value, "RRef fetch", exactly=2)
        return cls(as_worker_id(worker_id, "from_worker_id"), RRefId.from_value(rref_id, "RRef id"))

    return JitCodec(cls, read, lambda command: (command.rref_id.to_value(), command.from_worker_id))


def _script_fetch_ret(value: Value) -> ScriptRRefFetchRet:
    return ScriptRRefFetchRet(_tuple(value, "RRef fetch answer", at_least=0))


def _python_fetch_ret(value: Value) -> PythonRRefFetchRet:
    """(tensor, …, Python pickle)"""
    *tensors, pickled = _tuple(value, "RRef fetch answer", at_least=1)
    return PythonRRefFetchRet(_tensor_indexes(tensors), _bytes(pickled))


def _fork_codec(cls: type[RemoteRet] | type[RRefUserDelete] | type[RRefForkRequest]) -> JitCodec:
    """(RRef id, fork id)"""

    def read(value: Value) -> Command:
        rref_id, fork_id = _tuple(value, "RRef and fork", exactly=2)
        return cls(RRefId.from_value(rref_id, "RRef id"), ForkId.from_value(fork_id, "fork id"))

    return JitCodec(cls, read, lambda c: (c.rref_id.to_value(), c.fork_id.to_value()), slice(-2, None))


def _child_accept(value: Value) -> RRefChildAccept:
    (fork_id,) = _tuple(value, "RRef child accept", exactly=1)
    return RRefChildAccept(ForkId.from_value(fork_id, "fork id"))


def _propagate_gradients(value: Value) -> PropagateGradientsReq:
    """(gradient, …, context id, autograd message id, retain_graph)"""
    *grads, context_id, message_id, retain_graph = _tuple(value, "gradients", at_least=3)
    metadata = AutogradMetadata(
        as_int(context_id, "autograd context id"), as_int(message_id, "autograd message id")
    )
    return PropagateGradientsReq(metadata, _tensor_indexes(grads), as_bool(retain_graph, "retain_graph"))


def _propagate_gradients_values(command: PropagateGradientsReq) -> Value:
    metadata = command.autograd_metadata
    return (
        *_tensor_refs(command.grads),
        metadata.autograd_context_id,
        metadata.autograd_message_id,
        command.retain_graph,
    )


def _rref_backward(value: Value) -> RRefBackwardReq:
    """(RRef id, context id, retain_graph)"""
    rref_id, context_id, retain_graph = _tuple(value, "RRef backward", exactly=3)
    return RRefBackwardReq(
        RRefId.from_value(rref_id, "RRef id"),
        as_int(context_id, "autograd context id"),
        as_bool(retain_graph, "retain_graph"),
    )


def _rref_backward_values(command: RRefBackwardReq) -> Value:
    return (command.rref_id.to_value(), command.autograd_context_id, command.retain_graph)


def _empty_codec(cls: type[Any]) -> RawCodec:
    """No payload at all."""
    command: Command = cls()

    def read(payload: bytes) -> Command:
        if payload:
            raise DecodeError(
                "rpc", f"{cls.__name__}: expected an empty payload, found {len(payload)} bytes", 0
            )
        return command

    return RawCodec(cls, read, lambda _: b"")


def _tuple(value: Value, what: str, *, exactly: int | None = None, at_least: int = 0) -> tuple[Value, ...]:
    if type(value) is not tuple:
        raise DecodeError("rpc", f"{what}: expected a tuple, found {describe(value)}")
    if len(value) < at_least or (exactly is not None and len(value) != exactly):
        wanted = f"{at_least} or more" if exactly is None else exactly
        raise DecodeError("rpc", f"{what}: expected {wanted} values, found {len(value)}")
    return value


def _tensor_indexes(nodes: Sequence[Value]) -> tuple[int, ...]:
    indexes = []
    for node in nodes:
        index = tensor_index(node)
        if index is None:
            reference = tensor_reference(node)
            found = describe(node) if reference is None else f"a reference to tensor {render(reference)}"
            raise DecodeError("rpc", f"expected a tensor, found {found}")
        indexes.append(index)
    return tuple(indexes)


def _tensor_refs(indexes: Sequence[int]) -> list[Call]:
    """One node for each tensor: the pickle refers to it where the tensor comes again."""
    nodes = {index: Call(Global("torch.jit._pickle", "build_tensor_from_id"), (index,)) for index in indexes}
    return [nodes[index] for index in indexes]


def _bytes(value: Value) -> bytes:
    """A C++ string that holds bytes; the reader gives text where they happen to be UTF-8."""
    if type(value) is bytes:
        return value
    if type(value) is str:
        return value.encode("utf-8", "surrogatepass")
    raise DecodeError("rpc", f"Python pickle: expected bytes, found {describe(value)}")


COMMANDS: dict[int, JitCodec | RawCodec] = {
    MessageType.SCRIPT_CALL: JitCodec(ScriptCall, _script_call, _script_values),
    MessageType.SCRIPT_RET: JitCodec(ScriptResp, ScriptResp, lambda command: command.value),
    MessageType.PYTHON_CALL: RawCodec(
        PythonCall, _python_call, lambda c: bytes([c.is_async_execution]) + c.serialized_py_obj
    ),
    MessageType.PYTHON_RET: RawCodec(PythonResp, PythonResp, lambda command: command.serialized_py_obj),
    MessageType.SCRIPT_REMOTE_CALL: JitCodec(
        ScriptRemoteCall,
        _script_remote_call,
        lambda c: (*_script_values(c), c.ret_rref_id.to_value(), c.ret_fork_id.to_value()),
    ),
    MessageType.PYTHON_REMOTE_CALL: JitCodec(
        PythonRemoteCall, _python_remote_call, _python_remote_values, slice(-3, -1)
    ),
    MessageType.REMOTE_RET: _fork_codec(RemoteRet),
    MessageType.SCRIPT_RREF_FETCH_CALL: _fetch_codec(ScriptRRefFetchCall),
    MessageType.PYTHON_RREF_FETCH_CALL: _fetch_codec(PythonRRefFetchCall),
    MessageType.SCRIPT_RREF_FETCH_RET: JitCodec(ScriptRRefFetchRet, _script_fetch_ret, lambda c: c.values),
    MessageType.PYTHON_RREF_FETCH_RET: JitCodec(
        PythonRRefFetchRet, _python_fetch_ret, lambda c: (*_tensor_refs(c.tensors), c.serialized_py_obj)
    ),
    MessageType.RREF_USER_DELETE: _fork_codec(RRefUserDelete),
    MessageType.RREF_FORK_REQUEST: _fork_codec(RRefForkRequest),
    MessageType.RREF_CHILD_ACCEPT: JitCodec(
        RRefChildAccept, _child_accept, lambda c: (c.fork_id.to_value(),), slice(None)
    ),
    MessageType.RREF_ACK: _empty_codec(RRefAck),
    MessageType.BACKWARD_AUTOGRAD_REQ: JitCodec(
        PropagateGradientsReq, _propagate_gradients, _propagate_gradients_values
    ),
    MessageType.BACKWARD_AUTOGRAD_RESP: _empty_codec(PropagateGradientsResp),
    MessageType.CLEANUP_AUTOGRAD_CONTEXT_REQ: JitCodec(
        CleanupAutogradContextReq,
        lambda value: CleanupAutogradContextReq(as_int(value, "context id")),
        lambda command: command.context_id,
    ),
    MessageType.CLEANUP_AUTOGRAD_CONTEXT_RESP: _empty_codec(CleanupAutogradContextResp),
    MessageType.RREF_BACKWARD_REQ: JitCodec(RRefBackwardReq, _rref_backward, _rref_backward_values),
    MessageType.RREF_BACKWARD_RESP: _empty_codec(RRefBackwardResp),
    MessageType.EXCEPTION: RawCodec(ExceptionResponse, ExceptionResponse, lambda command: command.text),
}

NEVER_SENT = frozenset({MessageType.UNKNOWN})
"""Members of MessageType that are neither commands nor envelopes."""

_TYPES: dict[type[Any], int] = {codec.command: int(member) for member, codec in COMMANDS.items()}

_REBUILD_PARAMETER = (
    Global("torch._utils", "_rebuild_parameter"),
    Global("torch._utils", "_rebuild_parameter_with_state"),
)

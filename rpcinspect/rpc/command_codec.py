"""Commands ↔ payloads: one row per message type at the foot.

In: the innermost type and payload, whole, with the envelopes off. Out: a command; `UnknownCommand` for types
that we do not know. `to_payload` is the way back. Python pickles are not looked into: `pickle_facts` does.
Mirrors `fromMessage` and `toMessageImpl` of torch/csrc/distributed/rpc/{script_call,python_call,…}.cpp.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from rpcinspect.errors import DecodeError
from rpcinspect.limits import DEFAULT_LIMITS, Limits
from rpcinspect.pickles.jit import Forms, read_forms, read_jit
from rpcinspect.pickles.jit_write import OWNED, write_jit
from rpcinspect.pickles.python import PythonPickle
from rpcinspect.pickles.render import render
from rpcinspect.pickles.semantic import tensor_index, tensor_reference
from rpcinspect.pickles.tree import Global, PickleCall, Value
from rpcinspect.rpc import command as commands
from rpcinspect.rpc.command import Command, UnknownCommand
from rpcinspect.rpc.envelope import AutogradMetadata
from rpcinspect.rpc.message import NO_TENSORS, MessageType, RpcMessage
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
    """Returns the payload of `command`, without envelopes: as torch writes it, or in the forms of `like`, a
    readable payload of the same type."""
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


def to_message(command: Command, table: bytes = NO_TENSORS) -> RpcMessage:
    """Returns a command as a message, as torch writes it; without envelopes, with message id 0."""
    return RpcMessage(int(message_type_of(command)), 0, to_payload(command), table)


def message_type_of(command: Command) -> int:
    """The type of the message that carries `command` when no envelope is around it."""
    if isinstance(command, UnknownCommand):
        return command.message_type
    return _TYPES[type(command)]


def parameter_indexes(pickle: PythonPickle, *, trainable: bool = False) -> frozenset[int]:
    """Returns the indexes of tensors that a Python pickle wraps in an nn.Parameter; `trainable`: of those
    with requires_grad."""
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
    """A payload that is no JIT pickle as a whole."""

    command: type[Any]
    read: Callable[[bytes], Command]
    write: Callable[[Any], bytes]


class TupleField(NamedTuple):
    """A value of the tuple in a JIT pickle, and the field of the command that has it."""

    field: str
    read: Callable[[Value], Any]
    write: Callable[[Any], Value]


def _tuple_codec(
    command: type[Any],
    what: str,
    *parts: TupleField,
    before: TupleField | None = None,
    owned: slice | None = None,
) -> JitCodec:
    """Returns a codec for a tuple of these parts; `before`: the form of all values before them."""
    count = len(parts)

    def read(value: Value) -> Command:
        values = _tuple(value, what, at_least=count, exactly=count if before is None else None)
        begin = len(values) - count
        fields = {part.field: part.read(values[begin + i]) for i, part in enumerate(parts)}
        if before is not None:
            fields[before.field] = before.read(values[:begin])
        found: Command = command(**fields)
        return found

    def write(its: Any) -> Value:
        values = () if before is None else before.write(getattr(its, before.field))
        return (*values, *(part.write(getattr(its, part.field)) for part in parts))

    return JitCodec(command, read, write, owned)


def _fork_codec(command: type[Any]) -> JitCodec:
    return _tuple_codec(command, "RRef and fork", _RREF, _FORK, owned=slice(-2, None))


def _plain(value: Any) -> Any:
    return value


def _script_call(value: Value) -> commands.ScriptCall:
    """(arg0, …, X, Y): X a schema or whether it runs asynchronously, Y a qualified name."""
    args, schema, name, is_async = _script_parts(_tuple(value, "script call", at_least=2))
    return commands.ScriptCall(args=args, schema=schema, qualified_name=name, is_async_execution=is_async)


def _script_remote_call(value: Value) -> commands.ScriptRemoteCall:
    """Reads a script call, then the ids of RRef and fork."""
    *call, rref_id, fork_id = _tuple(value, "script remote call", at_least=4)
    args, schema, name, is_async = _script_parts(call)
    return commands.ScriptRemoteCall(
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


def _script_values(command: commands.ScriptCall | commands.ScriptRemoteCall) -> tuple[Value, ...]:
    what = command.is_async_execution if command.schema is None else command.schema
    return (*command.args, what, command.qualified_name)


def _python_call(payload: bytes) -> commands.PythonCall:
    """Reads one byte is_async_execution, then the Python pickle."""
    if payload[:1] not in (b"\0", b"\1"):
        raise DecodeError("rpc", "a Python call starts with neither 00 nor 01 (is_async_execution)", 0)
    return commands.PythonCall(payload[1:], payload[0] == 1)


def _propagate_gradients(value: Value) -> commands.PropagateGradientsReq:
    """Reads (gradient, …, context id, autograd message id, retain_graph)."""
    *grads, context_id, message_id, retain_graph = _tuple(value, "gradients", at_least=3)
    metadata = AutogradMetadata(
        as_int(context_id, "autograd context id"), as_int(message_id, "autograd message id")
    )
    return commands.PropagateGradientsReq(
        metadata, _tensor_indexes(grads), as_bool(retain_graph, "retain_graph")
    )


def _propagate_gradients_values(command: commands.PropagateGradientsReq) -> Value:
    metadata = command.autograd_metadata
    return (
        *_tensor_refs(command.grads),
        metadata.autograd_context_id,
        metadata.autograd_message_id,
        command.retain_graph,
    )


def _empty_codec(cls: type[Any]) -> RawCodec:
    """Reads and writes commands whose payload is empty."""
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


def _tensor_refs(indexes: Sequence[int]) -> list[PickleCall]:
    """Returns one node for each tensor: the pickle refers to it where the tensor repeats."""
    nodes = {
        index: PickleCall(Global("torch.jit._pickle", "build_tensor_from_id"), (index,)) for index in indexes
    }
    return [nodes[index] for index in indexes]


def _bytes(value: Value) -> bytes:
    """A C++ string that holds bytes; the reader gives text where they happen to be UTF-8."""
    if type(value) is bytes:
        return value
    if type(value) is str:
        return value.encode("utf-8", "surrogatepass")
    raise DecodeError("rpc", f"Python pickle: expected bytes, found {describe(value)}")


_RREF = TupleField("rref_id", lambda value: RRefId.from_value(value, "RRef id"), RRefId.to_value)
_FORK = TupleField("fork_id", lambda value: ForkId.from_value(value, "fork id"), ForkId.to_value)
_MADE = _RREF._replace(field="ret_rref_id"), _FORK._replace(field="ret_fork_id")
_OWNER = TupleField("from_worker_id", lambda value: as_worker_id(value, "from_worker_id"), _plain)
_ASYNC = TupleField("is_async_execution", lambda value: as_bool(value, "is_async_execution"), _plain)
_CONTEXT = TupleField("autograd_context_id", lambda value: as_int(value, "autograd context id"), _plain)
_RETAIN = TupleField("retain_graph", lambda value: as_bool(value, "retain_graph"), _plain)
_PICKLE = TupleField("serialized_py_obj", _bytes, _plain)
_TENSORS = TupleField("tensors", _tensor_indexes, _tensor_refs)
_VALUES = TupleField("values", _plain, _plain)

COMMANDS: dict[int, JitCodec | RawCodec] = {
    MessageType.SCRIPT_CALL: JitCodec(commands.ScriptCall, _script_call, _script_values),
    MessageType.SCRIPT_RET: JitCodec(commands.ScriptResp, commands.ScriptResp, lambda command: command.value),
    MessageType.PYTHON_CALL: RawCodec(
        commands.PythonCall, _python_call, lambda c: bytes([c.is_async_execution]) + c.serialized_py_obj
    ),
    MessageType.PYTHON_RET: RawCodec(
        commands.PythonResp, commands.PythonResp, lambda command: command.serialized_py_obj
    ),
    MessageType.SCRIPT_REMOTE_CALL: JitCodec(
        commands.ScriptRemoteCall,
        _script_remote_call,
        lambda c: (*_script_values(c), c.ret_rref_id.to_value(), c.ret_fork_id.to_value()),
    ),
    MessageType.PYTHON_REMOTE_CALL: _tuple_codec(
        commands.PythonRemoteCall,
        "Python remote call",
        *(_PICKLE, *_MADE, _ASYNC),
        before=_TENSORS,
        owned=slice(-3, -1),
    ),
    MessageType.REMOTE_RET: _fork_codec(commands.RemoteRet),
    MessageType.SCRIPT_RREF_FETCH_CALL: _tuple_codec(
        commands.ScriptRRefFetchCall, "RRef fetch", _RREF, _OWNER
    ),
    MessageType.PYTHON_RREF_FETCH_CALL: _tuple_codec(
        commands.PythonRRefFetchCall, "RRef fetch", _RREF, _OWNER
    ),
    MessageType.SCRIPT_RREF_FETCH_RET: _tuple_codec(
        commands.ScriptRRefFetchRet, "RRef fetch answer", before=_VALUES
    ),
    MessageType.PYTHON_RREF_FETCH_RET: _tuple_codec(
        commands.PythonRRefFetchRet, "RRef fetch answer", _PICKLE, before=_TENSORS
    ),
    MessageType.RREF_USER_DELETE: _fork_codec(commands.RRefUserDelete),
    MessageType.RREF_FORK_REQUEST: _fork_codec(commands.RRefForkRequest),
    MessageType.RREF_CHILD_ACCEPT: _tuple_codec(
        commands.RRefChildAccept, "RRef child accept", _FORK, owned=slice(None)
    ),
    MessageType.RREF_ACK: _empty_codec(commands.RRefAck),
    MessageType.BACKWARD_AUTOGRAD_REQ: JitCodec(
        commands.PropagateGradientsReq, _propagate_gradients, _propagate_gradients_values
    ),
    MessageType.BACKWARD_AUTOGRAD_RESP: _empty_codec(commands.PropagateGradientsResp),
    MessageType.CLEANUP_AUTOGRAD_CONTEXT_REQ: JitCodec(
        commands.CleanupAutogradContextReq,
        lambda value: commands.CleanupAutogradContextReq(as_int(value, "context id")),
        lambda command: command.context_id,
    ),
    MessageType.CLEANUP_AUTOGRAD_CONTEXT_RESP: _empty_codec(commands.CleanupAutogradContextResp),
    MessageType.RREF_BACKWARD_REQ: _tuple_codec(
        commands.RRefBackwardReq, "RRef backward", _RREF, _CONTEXT, _RETAIN
    ),
    MessageType.RREF_BACKWARD_RESP: _empty_codec(commands.RRefBackwardResp),
    MessageType.EXCEPTION: RawCodec(
        commands.ExceptionResponse, commands.ExceptionResponse, lambda command: command.text
    ),
}

_TYPES: dict[type[Any], int] = {codec.command: int(member) for member, codec in COMMANDS.items()}

_REBUILD_PARAMETER = (
    Global("torch._utils", "_rebuild_parameter"),
    Global("torch._utils", "_rebuild_parameter_with_state"),
)

"""The agents' own calls that a played worker makes or answers: joining, leaving, devices.

In: names and ids, or a request. Out: bytes of the few fixed pickles that these calls need, or the call that
a request is. Nothing is loaded: requests are read as inert trees, and the pickles are put together here,
value by value.

Mirrors `_update_group_membership` of torch/distributed/rpc/_utils.py, `_get_device_infos` of
torch/distributed/rpc/backend_registry.py, and how torch/distributed/rpc/internal.py pickles a call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from msgspec import Struct

from rpcinspect.errors import DecodeError
from rpcinspect.pickles.python import read_python_pickle
from rpcinspect.pickles.semantic import python_udf, worker_info
from rpcinspect.pickles.tree import Global, Value
from rpcinspect.rpc.message import NO_TENSORS, MessageType, RpcMessage

_PROTO, _STOP = b"\x80\x04", b"."
_NONE, _TRUE, _FALSE = b"N", b"\x88", b"\x89"
_EMPTY_TUPLE, _EMPTY_LIST, _EMPTY_DICT = b")", b"]", b"}"
_MARK, _TUPLE, _TUPLE1, _TUPLE2, _TUPLE3 = b"(", b"t", b"\x85", b"\x86", b"\x87"
_REDUCE = b"R"
_STACK_GLOBAL, _NEWOBJ, _BUILD = b"\x93", b"\x81", b"b"


class GetDeviceInfos(Struct, frozen=True):
    """Request for another worker's devices and device maps."""


class UpdateGroupMembership(Struct, frozen=True):
    """A worker joins or leaves the group."""

    name: str
    worker_id: int
    is_join: bool


ControlCall: TypeAlias = GetDeviceInfos | UpdateGroupMembership


def read_control_call(message: RpcMessage) -> ControlCall | None:
    """The call that a request is; None: it is none of those that are answered here."""
    call = python_udf(_small(message.payload[1:])) if message.type == MessageType.PYTHON_CALL else None
    if call is None or type(call.args) is not tuple:
        return None
    if call.func == _GET_DEVICE_INFOS:
        return GetDeviceInfos()
    if call.func == _UPDATE_GROUP_MEMBERSHIP and len(call.args) == 4:
        who = worker_info(call.args[0])
        return None if who is None else UpdateGroupMembership(who.name, who.id, call.args[3] is True)
    return None


def membership_call(name: str, worker_id: int, *, is_join: bool) -> RpcMessage:
    """Tells a member that the worker joins or leaves; no devices, no device map, as of a CPU worker."""
    state = _text(name) + _integer(worker_id) + _TUPLE2
    info = _global(_WORKER_INFO) + _EMPTY_TUPLE + _NEWOBJ + state + _BUILD
    args = _MARK + info + _EMPTY_LIST + _EMPTY_DICT + (_TRUE if is_join else _FALSE) + _TUPLE
    return _call(_UPDATE_GROUP_MEMBERSHIP, args)


def own_info_call() -> RpcMessage:
    """Returns a request for a worker's own name and id."""
    return _call(_GET_WORKER_INFO, _EMPTY_TUPLE)


def read_own_info(answer: RpcMessage) -> str | None:
    """The name in the answer to `own_info_call`; None: there is none in it."""
    info = worker_info(_small(answer.payload)) if answer.type == MessageType.PYTHON_RET else None
    return None if info is None else info.name


def control_answer(call: ControlCall) -> RpcMessage:
    """The answer of a worker without devices and device maps."""
    if isinstance(call, GetDeviceInfos):
        value = _integer(0) + _EMPTY_DICT + _EMPTY_LIST + _TUPLE3
    else:
        value = _NONE
    return RpcMessage(int(MessageType.PYTHON_RET), 0, _PROTO + value + _STOP, NO_TENSORS)


def cast_pickle(value: bytes) -> bytes:
    """PythonUDF(typing.cast, (None, value), {}), which returns the value; `value`: opcodes that push it."""
    return _udf(_CAST, _NONE + value + _TUPLE2)


def object_call(function: str, *args: bytes) -> RpcMessage:
    """Calls a function of the module `objects` in a live worker; `args`: opcodes that push its arguments."""
    return _call(Global(OBJECTS, function), _MARK + b"".join(args) + _TUPLE)


def object_pickle(name: str) -> bytes:
    """PythonUDF(objects.take, (name,), {}), which returns the object that was made for an RRef."""
    return _udf(Global(OBJECTS, "take"), _MARK + push(name) + _TUPLE)


def read_told(answer: RpcMessage) -> tuple[str | None, str | None]:
    """Returns what a function of `objects` tells: (error, qualified name of a TorchScript function)."""
    told = _small(answer.payload) if answer.type == MessageType.PYTHON_RET else None
    if type(told) is tuple and len(told) == 2 and all(one is None or type(one) is str for one in told):
        return told
    return "the live worker's answer can't be read", None


def push(value: str | int | Sequence[str | int]) -> bytes:
    """Returns opcodes that push a text, a number or a list of them."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int):
        return b"\x8a\x09" + value.to_bytes(9, "little", signed=True)
    return _MARK + b"".join(map(push, value)) + b"l"


def push_tensor(index: int) -> bytes:
    """Returns opcodes that push a tensor of the message, as torch's pickler of calls refers to it."""
    receiver = _global(_GETATTR) + (_global(_PICKLER) + _text("_tensor_receiver") + _TUPLE2) + _REDUCE
    return receiver + (_integer(index) + _TUPLE1) + _REDUCE


def _small(pickle: bytes) -> Value:
    """Returns what a pickle of a control call or of its answer says; None for what can't be one."""
    try:
        return read_python_pickle(pickle).root if len(pickle) <= MAX_CALL_BYTES else None
    except DecodeError:
        return None


def _call(function: Global, args: bytes) -> RpcMessage:
    """PythonUDF(function, args, {}), not to be run asynchronously."""
    return RpcMessage(int(MessageType.PYTHON_CALL), 0, b"\0" + _udf(function, args), NO_TENSORS)


def _udf(function: Global, args: bytes) -> bytes:
    udf = _global(_PYTHON_UDF) + _global(function) + args + _EMPTY_DICT + _TUPLE3 + _NEWOBJ
    return _PROTO + udf + _STOP


def _global(what: Global) -> bytes:
    return _text(what.module) + _text(what.name) + _STACK_GLOBAL


def _text(text: str) -> bytes:
    raw = text.encode("utf-8", "surrogatepass")
    return b"X" + len(raw).to_bytes(4, "little") + raw


def _integer(number: int) -> bytes:
    return b"J" + number.to_bytes(4, "little", signed=True)


MAX_CALL_BYTES = 1 << 16
"""A longer request is no control call."""

OBJECTS = "rpcinspect.replayer.workers.objects"
_GETATTR = Global("builtins", "getattr")
_PICKLER = Global("torch.distributed.rpc.internal", "_InternalRPCPickler")
_CAST = Global("typing", "cast")
_PYTHON_UDF = Global("torch.distributed.rpc.internal", "PythonUDF")
_WORKER_INFO = Global("torch._C._distributed_rpc", "WorkerInfo")
_UPDATE_GROUP_MEMBERSHIP = Global("torch.distributed.rpc._utils", "_update_group_membership")
_GET_WORKER_INFO = Global("torch.distributed.rpc.api", "get_worker_info")
_GET_DEVICE_INFOS = Global("torch.distributed.rpc.backend_registry", "_get_device_infos")

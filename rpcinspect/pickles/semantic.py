"""What nodes of the inert tree mean to torch.distributed.rpc: tensors, RRefs, type tags, device maps, calls.

Mirrors torch/distributed/rpc/internal.py (the reducers of _InternalRPCPickler), RRefForkData in
torch/csrc/distributed/rpc/types.h and the names that the C++ Pickler calls. Every function takes any value of
either dialect and answers None for what is something else, or only looks alike: an id that is no integer of
64 bits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from rpcinspect.late_pattern import late
from rpcinspect.pickles.tree import Dict, Global, PickleCall, Value, children


class RRefForkData(NamedTuple):
    """An RRef as it is sent; ids are (created on worker, local id)."""

    owner_id: int
    rref_id: tuple[int, int]
    fork_id: tuple[int, int]
    parent: int
    type_str: str

    @property
    def text(self) -> str:
        """Returns `RRef(0:2 fork 0:11 owner 2)`, with ids as everywhere else."""
        return "RRef({}:{} fork {}:{} owner {})".format(*self.rref_id, *self.fork_id, self.owner_id)


class PickledRemoteModule(NamedTuple):
    attributes: tuple[Value, ...]
    """All but the RRef, in the order in which they travel."""
    rref: RRefForkData
    """To the module itself, as a plain tuple of its numbers."""


class PythonUdf(NamedTuple):
    func: Value
    """A Global for a plain function, a PickleCall for a bound method or any other callable object."""
    args: Value
    kwargs: Value


class RemoteException(NamedTuple):
    message: str
    exception_type: Global | None


class WorkerInfo(NamedTuple):
    name: str
    id: int


def tensor_index(node: Value) -> int | None:
    """Index into the message's tensor list of a reference to a tensor; None also for one that no list has."""
    index = tensor_reference(node)
    return index if index is not None and 0 <= index < MAX_TENSORS else None


def tensor_reference(node: Value) -> int | None:
    """Returns the index in a reference to a tensor, whatever number that is; None for other nodes."""
    if type(node) is not PickleCall:
        return None
    function, args = node.function, node.args
    if function != _BUILD_TENSOR and not (
        type(function) is PickleCall and receiver(function) == "_tensor_receiver"
    ):
        return None
    if type(args) is tuple and len(args) == 1 and type(args[0]) is int:
        return args[0]
    return None


def rref_fork(node: Value) -> RRefForkData | None:
    """The RRef that a node stands for."""
    if type(node) is not PickleCall:
        return None
    args = node.args
    if type(node.function) is PickleCall and receiver(node.function) == "_py_rref_receiver":
        args = args[0] if type(args) is tuple and len(args) == 1 else None
    elif node.function != _JIT_RREF:
        return None
    return _fork_data(args)


def is_fork(node: Value) -> bool:
    """Whether an RRef of either dialect is as torch writes it: ids that fit, and a type that can be
    parsed.
    """
    fork = rref_fork(node)
    if fork is None or not is_type_text(fork.type_str):
        return False
    workers = (fork.owner_id, fork.rref_id[0], fork.fork_id[0], fork.parent)
    return all(-(1 << 15) <= worker < 1 << 15 for worker in workers)


def remote_module(node: Value) -> PickledRemoteModule | None:
    """The RemoteModule that a node stands for: `_remote_module_reducer` of torch/distributed/nn/api."""
    if type(node) is not PickleCall or node.function != _REMOTE_MODULE or type(node.args) is not tuple:
        return None
    rref = _fork_data(node.args[-1]) if node.args else None
    return None if rref is None else PickledRemoteModule(node.args[:-1], rref)


def brought_fork(node: Value) -> RRefForkData | None:
    """The RRef that a node makes at whoever loads it: an RRef's, or a RemoteModule's."""
    module = remote_module(node)
    return rref_fork(node) if module is None else module.rref


def beside_fork(node: Value) -> Iterable[Value]:
    """The children of a node but for the numbers of the RRef that it stands for."""
    module = remote_module(node)
    if type(node) is PickleCall and module is not None:
        return [*module.attributes, *(child for child in children(node) if child is not node.args)]
    return () if rref_fork(node) is not None else children(node)


def _fork_data(args: Value) -> RRefForkData | None:
    if type(args) is not tuple or [type(part) for part in args] != [int] * 6 + [str]:
        return None
    if not all(map(_fits, args[:6])):
        return None
    owner, rref_on, rref_local, fork_on, fork_local, parent, type_str = args
    return RRefForkData(owner, (rref_on, rref_local), (fork_on, fork_local), parent, type_str)


def script_module(node: Value) -> bytes | None:
    """The archive of torch.jit.save in a pickled ScriptModule."""
    if type(node) is not PickleCall or receiver(node.function) != "_script_module_receiver":
        return None
    if type(node.args) is tuple and len(node.args) == 1 and type(node.args[0]) is bytes:
        return node.args[0]
    return None


def receiver(node: Value) -> str | None:
    """The name of the class method of _InternalRPCPickler that a `getattr` call stands for."""
    if type(node) is not PickleCall or node.function != GETATTR:
        return None
    args = node.args
    if type(args) is not tuple or len(args) != 2 or args[0] != PICKLER or type(args[1]) is not str:
        return None
    return args[1] if args[1] in RECEIVERS else None


def untag(node: Value) -> Value:
    """JIT: the plain list or Dict inside restore_type_tag or build_*list; any other value as it is."""
    if type(node) is PickleCall and node.function in TAGS and type(node.args) is tuple and node.args:
        tag = node.args[1] if len(node.args) > 1 else ""
        return node.args[0] if not tag or (type(tag) is str and is_type_text(tag)) else node
    return node


def is_type_text(text: str) -> bool:
    """Whether a type's text is of the grammar that torch writes: its parser in C++ recurses without a
    limit.
    """
    if len(text) > MAX_TYPE_TEXT or not _TYPE_TEXT.fullmatch(text):
        return False
    level = deepest = 0
    for sign in text:
        level += (sign == "[") - (sign == "]")
        deepest = max(deepest, level)
        if level < 0:
            return False
    return level == 0 and deepest <= MAX_TYPE_DEPTH


def device_map(node: Value) -> dict[str, str] | None:
    """Source device -> target device; the integers of PyTorch 1.8 are CUDA device indices."""
    plain = untag(node)
    if type(plain) is not Dict:
        return None
    out = {}
    for source, target in plain.pairs:
        if type(source) is str and type(target) is str:
            out[source] = target
        elif type(source) is int and type(target) is int and _fits(source) and _fits(target):
            out[f"cuda:{source}"] = f"cuda:{target}"
        else:
            return None
    return out


def device(node: Value) -> str | None:
    """The string of a torch.device: one argument in JIT pickles, kind and index in Python's."""
    if type(node) is not PickleCall or node.function != _DEVICE or type(node.args) is not tuple:
        return None
    if [type(part) for part in node.args] not in ([str], [str, int]) or not _fits(*node.args[1:]):
        return None
    return ":".join(str(part) for part in node.args)


def python_udf(root: Value) -> PythonUdf | None:
    """The call in a PythonUDF."""
    args = _namedtuple(root, _PYTHON_UDF, 3)
    return PythonUdf(*args) if args is not None else None


def remote_exception(root: Value) -> RemoteException | None:
    """The failure in a RemoteException; the type is None where the pickle does not simply name it."""
    args = _namedtuple(root, _REMOTE_EXCEPTION, 2)
    if args is None or type(args[0]) is not str:
        return None
    return RemoteException(args[0], args[1] if type(args[1]) is Global else None)


def worker_info(node: Value) -> WorkerInfo | None:
    """Name and id in a WorkerInfo."""
    if type(node) is not PickleCall or node.function != _WORKER_INFO or type(node.state) is not tuple:
        return None
    if [type(part) for part in node.state] != [str, int] or not _fits(node.state[1]):
        return None
    return WorkerInfo(*node.state)


def _fits(*numbers: int) -> bool:
    """Returns whether all are integers of 64 bits."""
    return all(-1 << 63 <= number < 1 << 63 for number in numbers)


def _namedtuple(node: Value, cls: Global, size: int) -> tuple[Value, ...] | None:
    if (
        type(node) is PickleCall
        and node.function == cls
        and type(node.args) is tuple
        and len(node.args) == size
    ):
        return node.args
    return None


SCRIPT_PREFIX = "__torch__."
"""In front of the names of TorchScript's functions and classes."""

MAX_TENSORS = 1 << 31
"""No message has more, by far; indexes from here on, and those below 0, are none."""

RECEIVERS = frozenset({"_tensor_receiver", "_py_rref_receiver", "_script_module_receiver"})
"""The class methods by which a Python pickle of rpc gets its tensors, RRefs and ScriptModules."""

MAX_TYPE_TEXT = 1_000
MAX_TYPE_DEPTH = 16
"""Of the text of a type, which torch's parser reads by recursion without a limit."""
_TYPE_TEXT = late(r"[A-Za-z_][A-Za-z0-9_.]*([A-Za-z0-9_., \[\]()]*)", re.ASCII)
GETATTR = Global("builtins", "getattr")
"""How pickles write bound methods, and torch its receivers of tensors and RRefs."""
PICKLER = Global("torch.distributed.rpc.internal", "_InternalRPCPickler")
"""The class whose receivers `getattr` names."""
_PYTHON_UDF = Global("torch.distributed.rpc.internal", "PythonUDF")
_REMOTE_EXCEPTION = Global("torch.distributed.rpc.internal", "RemoteException")
_WORKER_INFO = Global("torch._C._distributed_rpc", "WorkerInfo")
_DEVICE = Global("torch", "device")
_JIT_RREF = Global("torch.distributed.rpc", "rref")
_REMOTE_MODULE = Global("torch.distributed.nn.api.remote_module", "_remote_module_receiver")
_BUILD_TENSOR = Global("torch.jit._pickle", "build_tensor_from_id")
TAGS = tuple(
    Global("torch.jit._pickle", name)
    for name in (
        "restore_type_tag",
        "build_tensorlist",
        "build_intlist",
        "build_doublelist",
        "build_boollist",
    )
)

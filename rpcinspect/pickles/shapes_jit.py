"""What torch writes into JIT pickles of rpc beside plain values: a closed list of calls, with their forms.

In: a call. Out: whether torch's pickler writes them so; its unpickler trusts most of them.
Tensors and storages, which it knows besides, stand in tensor tables only, see `rpc.tensor`. Mirrors
torch/csrc/jit/serialization/{pickler,unpickler}.cpp and torch/csrc/jit/frontend/script_type_parser.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

from rpcinspect.pickles import semantic
from rpcinspect.pickles.semantic import is_type_text
from rpcinspect.pickles.tree import Call, Dict, Global, Value

MAX_JIT_DEPTH = 64
"""Values and types of torch's C++, whose parsers and destructors recurse without a limit."""

SCRIPT_PREFIX = "__torch__."
"""In front of the names of TorchScript's functions and classes."""


def is_fork(node: Value) -> bool:
    """Whether an RRef of either dialect is as torch writes it: ids that fit, and a type that can be
    parsed.
    """
    fork = semantic.rref_fork(node)
    if fork is None or not is_type_text(fork.type_str):
        return False
    workers = (fork.owner_id, fork.rref_id[0], fork.fork_id[0], fork.parent)
    return all(-(1 << 15) <= worker < 1 << 15 for worker in workers)


_Form: TypeAlias = Callable[[Call], bool]


def _is_tensor(node: Value) -> bool:
    index = semantic.tensor_reference(node) if type(node) is Call and node.function == _TENSOR else None
    return index is not None and index >= 0


def _list_of(one: Callable[[Value], bool]) -> _Form:
    return lambda call: len(call.args) == 1 and type(call.args[0]) is list and all(map(one, call.args[0]))


def _tagged(call: Call) -> bool:
    args = call.args
    if len(args) != 2 or type(args[1]) is not str or not is_type_text(args[1]):
        return False
    return type(args[0]) is (Dict if args[1].startswith("Dict[") else list)


def _device(call: Call) -> bool:
    args = call.args
    return len(args) == 1 and type(args[0]) is str and _DEVICE.fullmatch(args[0]) is not None


def _complex(call: Call) -> bool:
    return len(call.args) == 2 and all(type(part) in (int, float) for part in call.args)


_TENSOR = Global("torch.jit._pickle", "build_tensor_from_id")
_DEVICE = re.compile(r"(cpu|cuda|meta|mps|xla|xpu|hpu|ipu|mtia|privateuseone)(:\d{1,3})?", re.ASCII)

JIT_CALLS: dict[Global, _Form] = {
    _TENSOR: _is_tensor,
    Global("torch.jit._pickle", "build_intlist"): _list_of(lambda one: type(one) is int),
    Global("torch.jit._pickle", "build_doublelist"): _list_of(lambda one: type(one) is float),
    Global("torch.jit._pickle", "build_boollist"): _list_of(lambda one: type(one) is bool),
    Global("torch.jit._pickle", "build_tensorlist"): _list_of(_is_tensor),
    Global("torch.jit._pickle", "restore_type_tag"): _tagged,
    Global("torch", "device"): _device,
    Global("builtins", "complex"): _complex,
    Global("torch.distributed.rpc", "rref"): is_fork,
}
"""All that torch writes into payloads of rpc beside plain values; arguments are a tuple. What else the
unpickler knows (tensors, storages) stands in tensor tables only."""

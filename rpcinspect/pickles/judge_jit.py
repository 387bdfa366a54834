"""What loading a JIT pickle would come to: a closed list of calls, with the arguments that torch writes.

In: the value of a JIT pickle, and the `Judge` of its message. Out: in the judge's `found` what is refused,
and the names of TorchScript, which its policy knows. torch's unpickler trusts most of what it is given.
Tensors and storages, which it knows besides, stand in tensor tables only, see `rpc.tensor`. Mirrors
torch/csrc/jit/serialization/{pickler,unpickler}.cpp and torch/csrc/jit/frontend/script_type_parser.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TypeAlias

from rpcinspect.late_pattern import late
from rpcinspect.pickles.judge import Judge
from rpcinspect.pickles.semantic import SCRIPT_PREFIX, is_fork, is_type_text, tensor_reference
from rpcinspect.pickles.tree import SCALARS, Dict, Global, PickleCall, Value, children, is_deeper
from rpcinspect.pickles.verdicts import Named, title

MAX_JIT_DEPTH = 64
"""Values and types of torch's C++, whose parsers and destructors recurse without a limit."""


def judge_jit(judge: Judge, root: Value) -> None:
    """Judges the value of a JIT pickle."""
    _JitJudge(judge).value(root)


class _JitJudge:
    """Judges one value."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self._forms: dict[tuple[Value, tuple[int, ...]], bool] = {}

    def value(self, root: Value) -> None:
        """Judges a value and everything in it, each node once."""
        seen: set[int] = set()
        stack: list[Value] = [root]
        parts = 1
        while stack:
            node = stack.pop()
            kind = type(node)
            if kind in SCALARS or id(node) in seen:
                continue
            seen.add(id(node))
            before = len(stack)
            if kind is tuple or kind is list:
                stack += node
            elif kind is Dict:
                stack += children(node)
            elif kind is PickleCall:
                self.judge.effort.call(node)
                stack += self._call(node)
            else:
                self._name(node)
            parts += len(stack) - before
        if self.judge.effort.is_too_much(len(seen), parts):
            self.judge.refuse("a value", "shared by too many calls to be judged")
        if len(seen) > MAX_JIT_DEPTH and is_deeper(root, MAX_JIT_DEPTH):
            self.judge.refuse("a value", f"nested more than {MAX_JIT_DEPTH} levels deep")

    def _call(self, call: PickleCall) -> Iterable[Value]:
        args, function = call.args, call.function
        if type(function) is Global and str(function).startswith(SCRIPT_PREFIX):
            self._name(function)
            return list(children(call))[1:]
        plain = call.how == "reduce" and not call.is_changed
        if type(function) is not Global or type(args) is not tuple or not plain:
            self.judge.refuse("a call", "in a form that torch never writes")
            return ()
        form = JIT_CALLS.get(function)
        if form is None:
            self._name(function)
        elif not self._has_form(form, call):
            self.judge.refuse(title(function), "with arguments that torch never writes")
        elif function.module == "torch.jit._pickle" and args:
            return args[:1]
        return ()

    def _has_form(self, form: Callable[[PickleCall], bool], call: PickleCall) -> bool:
        """Whether a call is as torch writes it; of the same arguments once."""
        key = (call.function, tuple(map(id, call.args)))
        if key not in self._forms:
            self._forms[key] = form(call)
        return self._forms[key]

    def _name(self, node: Value) -> None:
        if type(node) is Global and str(node).startswith(SCRIPT_PREFIX):
            own = Global(node.module.removeprefix(SCRIPT_PREFIX), node.name)
            standing = self.judge.standing_of(own)
            self.judge.say(Named(str(node), standing.allowed, standing.reason, standing.allow))
        else:
            self.judge.refuse(title(node), "a name that no JIT pickle of rpc holds; torch itself refuses it")


_Form: TypeAlias = Callable[[PickleCall], bool]


def _is_tensor(node: Value) -> bool:
    index = tensor_reference(node) if type(node) is PickleCall and node.function == _TENSOR else None
    return index is not None and index >= 0


def _list_of(one: Callable[[Value], bool]) -> _Form:
    return lambda call: len(call.args) == 1 and type(call.args[0]) is list and all(map(one, call.args[0]))


def _tagged(call: PickleCall) -> bool:
    args = call.args
    if len(args) != 2 or type(args[1]) is not str or not is_type_text(args[1]):
        return False
    return type(args[0]) is (Dict if args[1].startswith("Dict[") else list)


def _device(call: PickleCall) -> bool:
    args = call.args
    return len(args) == 1 and type(args[0]) is str and _DEVICE.fullmatch(args[0]) is not None


def _complex(call: PickleCall) -> bool:
    return len(call.args) == 2 and all(type(part) in (int, float) for part in call.args)


_TENSOR = Global("torch.jit._pickle", "build_tensor_from_id")
_DEVICE = late(r"(cpu|cuda|meta|mps|xla|xpu|hpu|ipu|mtia|privateuseone)(:\d{1,3})?", re.ASCII)

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

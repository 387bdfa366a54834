"""What can be got from a value: everything in it that can be called is harmless, or the plan named it."""

from __future__ import annotations

import collections
import contextlib
import functools
import types
from typing import Any

import numpy as np
import torch
from torch.distributed.rpc import internal

from tests.fuzz.model.watch import FROM_TYPE, RECONSTRUCTOR, Watch, said

LEAVES = frozenset({int, float, complex, str, bytes, bytearray, bool, type(None)})
CALLED = (
    *(types.BuiltinFunctionType, types.MethodWrapperType, types.MethodDescriptorType),
    *(types.WrapperDescriptorType, types.ClassMethodDescriptorType),
)
"""Functions in C."""
GENERATED = "_remote_module_non_scriptable"
"""Where torch writes methods of a RemoteModule."""
MANY = 20_000
LARGE = 1_000


def reach(watch: Watch, root: Any, function: Any = None) -> None:
    """Goes through all that a value holds. `function`: what stands in the function's place of a request."""
    seen: set[int] = set()
    stack = [root]
    while stack:
        value = stack.pop()
        if id(value) in seen or type(value) in LEAVES or (value is function and hasattr(value, "__name__")):
            continue
        seen.add(id(value))
        if len(seen) > MANY:
            raise watch.fault("oracle", "a value of too many parts")
        _look(watch, value)
        stack += _inside(value)


def _look(watch: Watch, value: Any) -> None:
    if type(value) is types.MethodType and value.__self__ is watch:
        raise watch.fault("value", f"Python's {value.__name__}")
    if type(value) is types.FunctionType:
        code = value.__code__
        if code in watch.called_by_rpc:
            raise watch.fault("value", watch.called_by_rpc[code])
        judged = code in (RECONSTRUCTOR, FROM_TYPE)
        if judged or not (code in watch.permitted or value.__module__ == GENERATED):
            raise watch.fault("value", said(value))
    elif type(value) in CALLED:
        arithmetic = getattr(value, "__module__", "") == "_operator"
        names = {f"operator.{value.__name__}", f"_operator.{value.__name__}"}
        if not arithmetic or watch.named.isdisjoint(names):
            raise watch.fault("value", said(value))


def _inside(value: Any) -> list[Any]:
    """What a value holds."""
    if isinstance(value, (type, types.ModuleType, types.FunctionType, internal._InternalRPCPickler)):
        return []
    if type(value) is types.MethodType:
        return [value.__self__] if not isinstance(value.__self__, Watch) else []
    found: list[Any] = []
    if isinstance(value, functools.partial):
        found += [value.func, *value.args, value.keywords]
    elif isinstance(value, dict):
        found += [*dict.keys(value), *dict.values(value)]
        if isinstance(value, collections.defaultdict):
            found.append(value.default_factory)
    elif isinstance(value, (tuple, list, set, frozenset, collections.deque)):
        found += list(type(value).__iter__(value))
    elif isinstance(value, BaseException):
        found += [value.args, value.__cause__, value.__context__]
    elif isinstance(value, torch.Tensor):
        found += [value._backward_hooks]
    elif isinstance(value, np.ndarray) and value.dtype == object and value.size < LARGE:
        found += value.ravel().tolist()
    for cls in type(value).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        found += [getattr(value, slot, None) for slot in slots if isinstance(slot, str)]
    with contextlib.suppress(AttributeError):
        found.append(object.__getattribute__(value, "__dict__"))
    return found

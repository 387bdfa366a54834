"""Keys of dicts and items of sets, for which order does not count: a form that can be looked up.

In: captured values. Out: hashable tuples, equal for values that are equal but for ids of workers, RRefs and
tensors, which are compared later. Nesting beyond a few levels is not looked at.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TypeAlias, TypeVar

from rpcinspect.pickles import semantic
from rpcinspect.pickles.tree import Dict, Global, PickleCall, Set, Value

MAX_DEPTH = 6
MAX_ITEMS = 64

StructuralKey: TypeAlias = Hashable
T = TypeVar("T")


def key_of(value: Value, translate: Callable[[str], str] | None = None, depth: int = 0) -> StructuralKey:
    """The key of a value; `translate` is applied to names of workers, that is to every text."""
    kind = type(value)
    if kind is str:
        return value if translate is None else translate(value)
    if kind is float:
        return ("float", struct.pack("<d", value))
    if value is None or kind in (bool, int, bytes):
        return (kind.__name__, value)
    if kind is bytearray:
        return ("bytearray", bytes(value))
    if kind is Global:
        return ("global", one_module(value.module), value.name)
    if depth >= MAX_DEPTH:
        return (kind.__name__,)
    if kind in (tuple, list):
        items = tuple(key_of(item, translate, depth + 1) for item in value[:MAX_ITEMS])
        return (kind.__name__, len(value), items)
    if kind is Set:
        found = {key_of(item, translate, depth + 1) for item in value.items[:MAX_ITEMS]}
        return ("set", value.frozen, tuple(sorted(found, key=repr)))  # in one order in every process
    if kind is Dict:
        return ("dict", len(value.pairs))
    if kind is PickleCall and semantic.tensor_index(value) is None and semantic.rref_fork(value) is None:
        worker = semantic.worker_info(value)
        if worker is not None:
            return ("worker", worker.name if translate is None else translate(worker.name))
        module = semantic.remote_module(value)
        if module is not None:
            return ("remote module", key_of(module.attributes, translate, depth + 1))
        return ("call", *(key_of(part, translate, depth + 1) for part in (value.function, value.args)))
    return (kind.__name__,)


def one_module(name: str) -> str:
    """Returns the canonical name of a module that has two."""
    return _MODULES.get(name, name)


def by_key(
    items: Iterable[T], value_of: Callable[[T], Value], translate: Callable[[str], str] | None = None
) -> dict[StructuralKey, T]:
    """Items by the key of what `value_of` gives. Of plain keys that come again the last counts, as in Python;
    others, which may look alike without being equal, are numbered."""
    found: dict[StructuralKey, T] = {}
    numbers: Counter[StructuralKey] = Counter()
    for item in items:
        value = value_of(item)
        key = key_of(value, translate)
        if type(value) in _OPAQUE:
            numbers[key] += 1
            key = (key, numbers[key])
        found[key] = item
    return found


def match(
    a: Mapping[StructuralKey, object], b: Mapping[StructuralKey, object]
) -> tuple[list[StructuralKey], list[StructuralKey], list[StructuralKey]]:
    """(keys of both, of `a` only, of `b` only); in the order of `a` if that is also `b`'s, else sorted, so
    that the outcome is the same the other way round."""
    if list(a) == list(b):
        return list(a), [], []
    only_a, only_b = ([key for key in x if key not in y] for x, y in ((a, b), (b, a)))
    shared = [key for key in a if key in b]
    return sorted(shared, key=repr), sorted(only_a, key=repr), sorted(only_b, key=repr)


_OPAQUE = frozenset({tuple, list, PickleCall, Dict, Set})

_MODULES = {
    "__mp_main__": "__main__",
    "numpy._core.multiarray": "numpy.core.multiarray",
    "numpy._core.numeric": "numpy.core.numeric",
}
"""`__mp_main__` is the main module in a process that multiprocessing has spawned."""

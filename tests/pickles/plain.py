"""The inert tree as plain tuples, lists and dicts, so that tests can compare it by value."""

from __future__ import annotations

from typing import Any

from rpcinspect.pickles.jit import Forms, read_forms, read_jit
from rpcinspect.pickles.tree import Dict, Global, PersistentRef, PickleCall, Set, Value


def plain(node: Any) -> Any:
    """Globals become their names, calls ("call", name, args), objects with state ("object", name, state)."""
    if isinstance(node, (tuple, list)):
        return type(node)(plain(item) for item in node)
    if isinstance(node, Dict):
        return {plain(key): plain(value) for key, value in node.pairs}
    if isinstance(node, Set):
        return (frozenset if node.frozen else set)(plain(item) for item in node.items)
    if isinstance(node, Global):
        return str(node)
    if isinstance(node, PersistentRef):
        return ("persistent", plain(node.id))
    if isinstance(node, PickleCall):
        if node.has_state:
            return ("object", plain(node.function), plain(node.state))
        extra: list[Any] = []
        if node.items:
            extra.append(plain(node.items))
        if node.pairs:
            extra.append({plain(key): plain(value) for key, value in node.pairs})
        return ("call", plain(node.function), plain(node.args), *extra)
    return node


def read_with_forms(data: bytes) -> tuple[Value, Forms]:
    """The value of a JIT pickle, and how it is written; raises as `read_jit`."""
    return read_jit(data), read_forms(data)

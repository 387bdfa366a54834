"""Where in a value its tensors and RRefs are: the steps from the value to each, as a reader of it would go.

In: an inert tree of either dialect. Out: paths. Only what a person can write down is followed: items of
tuples, lists and dicts, and attributes; what is hidden in sets or made by other calls has no place.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rpcinspect.pickles import semantic
from rpcinspect.pickles.tree import Dict, Global, PickleCall, Value

MAX_PLACES = 100_000


class PathStep(NamedTuple):
    """A step down: `value[key]`, or `value.key` of an attribute."""

    attribute: bool
    key: str | int


ValuePath = tuple[PathStep, ...]


def tensor_places(value: Value) -> dict[int, ValuePath]:
    """Index of a tensor → its first place."""
    found: dict[int, ValuePath] = {}
    for node, place in _walk(value):
        index = semantic.tensor_index(node)
        if index is not None:
            found.setdefault(index, place)
    return found


def rref_places(value: Value) -> dict[tuple[int, int], ValuePath]:
    """Returns RRef → the first place of it."""
    found: dict[tuple[int, int], ValuePath] = {}
    for node, place in _walk(value):
        fork = semantic.brought_fork(node)
        if fork is not None:
            found.setdefault(fork.rref_id, place)
    return found


def _walk(value: Value) -> Iterator[tuple[Value, ValuePath]]:
    """Every node that has a place, parents first; each once."""
    stack: list[tuple[Value, ValuePath]] = [(value, ())]
    seen: set[int] = set()
    while stack and len(seen) < MAX_PLACES:
        node, place = stack.pop()
        node = _inner(node)
        if type(node) not in (tuple, list, Dict, PickleCall) or id(node) in seen:
            continue
        seen.add(id(node))
        yield node, place
        stack.extend([(child, (*place, step)) for step, child in reversed(list(_steps(node)))])


def _inner(node: Value) -> Value:
    """What stands for the same place: the list in a type tag, the data of a Parameter."""
    plain = semantic.untag(node)
    if type(plain) is PickleCall and plain.function == PARAMETER and type(plain.args) is tuple and plain.args:
        return plain.args[0]
    return plain


def _steps(node: Value) -> Iterator[tuple[PathStep, Value]]:
    if isinstance(node, (tuple, list)):
        for i, child in enumerate(node):
            yield PathStep(False, i), child
    elif type(node) is Dict:
        yield from _pairs(node.pairs)
    elif type(node) is PickleCall:
        if node.how == "newobj" and type(node.args) is tuple and not node.has_state:
            for i, child in enumerate(node.args):
                yield PathStep(False, i), child
        if type(node.state) is Dict and node.how == "newobj":
            for key, child in node.state.pairs:
                if type(key) is str and key.isidentifier():
                    yield PathStep(True, key), child
        yield from _pairs(node.pairs)


def _pairs(pairs: list[tuple[Value, Value]]) -> Iterator[tuple[PathStep, Value]]:
    for key, child in pairs:
        if type(key) in (str, int):
            yield PathStep(False, key), child


PARAMETER = Global("torch._utils", "_rebuild_parameter")

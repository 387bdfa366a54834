"""The inert tree that both pickle readers build: what a pickle says, never what it would do.

Plain values stand for themselves: None, bool, int, float, str, bytes, tuple, list. Everything else is one of
the nodes below. Nodes compare by identity, since honest captures hold object graphs with cycles; compare
structure with a walk of your own that remembers where it has been.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import Any, TypeAlias

from msgspec import Struct, field

Value: TypeAlias = Any
"""None, bool, int, float, str, bytes, bytearray, tuple, list, or a node of this module."""


class Global(Struct, frozen=True):
    """A reference by name, `module.name`; the name may be dotted. Compares by value."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


class PickleCall(Struct, eq=False):
    """An object that loading would make by a call; nothing is ever called.

    `function` is any value, usually a Global. What later opcodes add to the object is kept in order of kind.
    """

    function: Value
    args: Value
    """A tuple in every honest pickle."""
    kwargs: Value = None
    """Only NEWOBJ_EX: a Dict node."""
    how: str = "reduce"
    """`reduce`, `newobj`, `newobj_ex`, `inst` or `obj`. Two kinds stand for what has no call of its own:
    `change`: state, items or pairs for something, `function`, that this pickle did not make by a call, or for
    an object that has its state already;
    `stack_global`: an import by a name that is only known at run time, `args` = (module, name)."""
    has_state: bool = False
    state: Value = None
    """What BUILD would hand to `__setstate__` or `__dict__`."""
    items: list[Value] = field(default_factory=list)
    """What APPEND(S) or ADDITEMS adds."""
    pairs: list[tuple[Value, Value]] = field(default_factory=list)
    """What SETITEM(S) adds."""

    @property
    def is_changed(self) -> bool:
        """Whether later opcodes add anything to the object."""
        return bool(self.has_state or self.items or self.pairs)


class Dict(Struct, eq=False):
    """A dict as written: pairs in order, duplicates kept, any value as key."""

    pairs: list[tuple[Value, Value]] = field(default_factory=list)

    def get(self, key: str, default: Value = None) -> Value:
        """The value under a plain string key, the last one if it was written twice."""
        found = default
        for k, v in self.pairs:
            if isinstance(k, str) and k == key:
                found = v
        return found


class Set(Struct, eq=False):
    """A set or frozenset as written."""

    items: list[Value] = field(default_factory=list)
    frozen: bool = False


class PersistentRef(Struct, eq=False):
    """PERSID or BINPERSID: an object that lives outside the pickle, by its id."""

    id: Value


class Extension(Struct, eq=False):
    """EXT1/2/4: a copyreg extension code, never resolved."""

    code: int


class Buffer(Struct, eq=False):
    """NEXT_BUFFER: the n-th out-of-band buffer (protocol 5)."""

    index: int


def children(node: Value) -> Iterable[Value]:
    """Direct children of a value, for walks."""
    if isinstance(node, (tuple, list)):
        return node
    if isinstance(node, PickleCall):
        out = [node.function, node.args]
        if node.kwargs is not None:
            out.append(node.kwargs)
        if node.has_state:
            out.append(node.state)
        out.extend(node.items)
        for pair in node.pairs:
            out.extend(pair)
        return out
    if isinstance(node, Dict):
        return [part for pair in node.pairs for part in pair]
    if isinstance(node, Set):
        return node.items
    if isinstance(node, PersistentRef):
        return (node.id,)
    return ()


def walk(roots: Iterable[Value], parts: Callable[[Value], Iterable[Value]] = children) -> Iterator[Value]:
    """Yields every value in some values, the last root first: nodes once, scalars as often as they occur.

    `parts` says what is walked of a node, the last first; by default all of it.
    """
    stack, seen = list(roots), set[int]()
    while stack:
        node = stack.pop()
        if type(node) not in SCALARS:
            if id(node) in seen:
                continue
            seen.add(id(node))
            stack += parts(node)
        yield node


def is_deeper(root: Value, most: int) -> bool:
    """Whether a value is nested more levels deep than that, by the longest way down; circles not counted."""
    levels: dict[int, int] = {}
    level_of, nothing = levels.get, repeat(0)
    stack: list[Any] = [root]
    depth = 0
    while stack:
        node = stack.pop()
        if node is levels:  # what is below of the next one is done
            node, parts = stack.pop(), stack.pop()
            level = 1 + max(map(level_of, map(id, parts), nothing), default=0)
            if level > most:
                return True
            levels[id(node)] = level
            depth -= 1
        elif id(node) not in levels:
            inner = node if type(node) in _SEQUENCES else children(node)
            parts = [part for part in inner if type(part) not in _WITHOUT_PARTS]
            levels[id(node)] = 0 if parts else 1
            if parts:
                depth += 1
                if depth > most:  # the way down to here is such a way: no need to look at the rest
                    return True
                stack += (parts, node, levels, *parts)
    return False


SCALARS = frozenset({type(None), bool, int, float, complex, str, bytes, bytearray})
"""Types of values that have no parts and name nothing."""
_WITHOUT_PARTS = SCALARS | {Global}
_SEQUENCES = (tuple, list)

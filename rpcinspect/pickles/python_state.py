"""The machine that a Python pickle programs, as far as reading needs it: stack, memo, names and calls so far.

`State` is filled by `python` and `python_ops`. Values that opcodes change in place are changed here, because
every such change is also a place where loading would call a method of some object.
"""

from __future__ import annotations

import struct
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING

from msgspec import Struct, field

from rpcinspect.errors import DecodeError, LimitExceeded
from rpcinspect.limits import Limits
from rpcinspect.pickles.tree import Dict, Extension, Global, PersistentRef, PickleCall, Set, Value

NO_FRAME = (1 << 63) - 1


class Order(Struct, eq=False):
    """When values were changed that the pickle had made already: what was given to a call may grow later, and
    the tree shows only how it ends.
    """

    _ticks: int = 0
    _changed: dict[int, tuple[Value, int, int]] = field(default_factory=dict)
    """By id: the value, to keep it; calls made before its last change; number of that change."""
    _built: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By id of a call: calls made before it got its state; number of that change."""
    _first: dict[int, int] = field(default_factory=dict)
    """Calls made so far → number of the first change after the last of these."""

    def note(self, target: Value, calls: int, *, built: bool = False) -> None:
        """Notes a change after so many calls; `built`: it is the state."""
        self._ticks += 1
        self._changed[id(target)] = (target, calls, self._ticks)
        self._first.setdefault(calls, self._ticks)
        if built:
            self._built[id(target)] = (calls, self._ticks)

    def changed(self) -> list[Value]:
        """Returns every value that got items or a state, reachable or not."""
        return [value for value, _, _ in self._changed.values()]

    def hashing(self) -> list[Value]:
        """The dicts and sets that got keys, reachable or not."""
        return [value for value, _, _ in self._changed.values() if type(value) in (Dict, Set)]

    def after_call(self, value: Value, number: int) -> bool:
        """Whether a value was changed once the call of this number was made."""
        found = self._changed.get(id(value))
        return found is not None and found[1] > number

    def after_state(self, value: Value, call: Value) -> bool:
        """Whether a value was changed once a call had its state."""
        found, built = self._changed.get(id(value)), self._built.get(id(call))
        return found is not None and built is not None and found[2] > built[1]

    def at_once(self, call: Value, number: int) -> bool:
        """Whether the call of this number got its state before anything else was called or changed."""
        built = self._built.get(id(call))
        return built is None or (built[0] == number + 1 and self._first[number + 1] == built[1])


class State(Struct, eq=False):
    """What the machine that a pickle programs would hold, and what it would have imported and called."""

    data: bytes
    limits: Limits
    pos: int = 0
    frame_end: int = NO_FRAME
    stack: list[Value] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)
    memo: dict[int, Value] = field(default_factory=dict)
    globals: dict[Global, None] = field(default_factory=dict)
    """What loading would import, in order of appearance."""
    names: dict[tuple[str, str], Global] = field(default_factory=dict)
    """(module, name) as written → what is loaded under the protocol in force; PROTO empties it."""
    calls: list[PickleCall] = field(default_factory=list)
    order: Order = field(default_factory=Order)
    extensions: list[int] = field(default_factory=list)
    buffers: int = 0
    protocol: int = 0

    def line(self) -> bytes:
        """The text up to the next newline, without it."""
        end = self.data.find(b"\n", self.pos)
        if end < 0:
            raise ValueError("a line of text has no end")
        text = self.data[self.pos : end]
        self.pos = end + 1
        return text

    def digits(self) -> bytes:
        """A number's text: CPython reads it with C's functions, which stop at a zero byte."""
        return self.line().partition(b"\0")[0]

    def take(self, size: int) -> bytes:
        if size > self.limits.pickle_string_bytes:
            bound = self.limits.pickle_string_bytes
            raise LimitExceeded("pickle", "pickle_string_bytes", bound, size, self.pos)
        end = self.pos + size
        if size < 0 or end > len(self.data):
            raise DecodeError(
                "pickle", f"{size} bytes are announced, {len(self.data) - self.pos} left", self.pos
            )
        raw = self.data[self.pos : end]
        self.pos = end
        return raw

    def number(self, unpack: struct.Struct) -> int:
        (value,) = unpack.unpack_from(self.data, self.pos)
        self.pos += unpack.size
        return int(value)

    def above_mark(self) -> list[Value]:
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def put(self, index: int) -> None:
        if index < 0:
            raise ValueError("a negative memo index")
        if index > len(self.data) + 255:  # CPython makes a list of so many
            raise ValueError(f"memo index {index} in a pickle of {len(self.data)} bytes")
        if len(self.memo) >= self.limits.pickle_memo:
            raise LimitExceeded(
                "pickle", "pickle_memo", self.limits.pickle_memo, len(self.memo) + 1, self.pos
            )
        self.memo[index] = self.stack[-1]

    def call(self, function: Value, args: Value, how: str, kwargs: Value = None) -> PickleCall:
        call = PickleCall(function, args, kwargs, how)
        self.calls.append(call)
        return call

    def name(self, module: str, name: str) -> Global:
        """What loading would import by this name: below protocol 3, names of Python 2 mean those of Python 3.

        Mirrors `find_class` of CPython's unpicklers, with their own tables.
        """
        key = (module, name)
        found = self.names.get(key)
        if found is None:
            if self.protocol < 3:
                module, name = NAME_MAPPING.get(key) or (IMPORT_MAPPING.get(module, module), name)
            found = self.names[key] = Global(module, name)
            self.globals.setdefault(found)
        return found


# What opcodes do to a value below their operands. The result takes that value's place: itself, or a `change`
# around something that the pickle got by import: loading would change an object of the running program.


def extend(state: State, target: Value, items: list[Value]) -> Value:
    """Does APPEND, APPENDS and ADDITEMS; returns what takes the target's place."""
    if type(target) is list:
        target.extend(items)
    else:
        target = changeable(state, target)
        if target.has_state:  # could bring a method of its own
            target = state.call(target, (), "change")
        target.items.extend(items)
    state.order.note(target, len(state.calls))
    return target


def set_items(state: State, target: Value, items: list[Value]) -> Value:
    """Does SETITEM and SETITEMS, with keys and values in turn; returns what takes the target's place."""
    if len(items) % 2:
        raise ValueError("a key without a value")
    if type(target) is not Dict:
        target = changeable(state, target)
    target.pairs.extend(zip(items[::2], items[1::2], strict=True))
    state.order.note(target, len(state.calls))
    return target


def build(state: State, target: Value, value: Value) -> Value:
    """Does BUILD; returns what takes the target's place."""
    target = changeable(state, target)
    if target.has_state:
        target = state.call(target, (), "change")
    target.has_state = True
    target.state = value
    state.order.note(target, len(state.calls), built=True)
    return target


def changeable(state: State, target: Value) -> PickleCall:
    """The target if a call of this pickle made it, else a `change` around it."""
    return target if type(target) is PickleCall else state.call(target, (), "change")


def stack_global(state: State, module: Value, name: Value) -> Value:
    """STACK_GLOBAL; names may also be results of calls, which nobody knows before loading."""
    if type(module) is str and type(name) is str:
        return state.name(module, name)
    for part in (module, name):
        if type(part) not in (str, PickleCall, PersistentRef, Extension):
            raise ValueError(f"a name to import is a {type(part).__name__}")
    return state.call(None, (module, name), "stack_global")

"""How much it takes to judge a pickle and to load it, where one value stands in many places.

In: the calls of a pickle, and what would be hashed. Out: whether that is more than honest pickles of this
size need: by the memo, two bytes of a pickle name a list of a million items once more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from rpcinspect.pickles.tree import SCALARS, Dict, Global, PickleCall, Set, Value, children, walk

MAX_KEY_PARTS = 10_000
"""Parts that one key of a dict or item of a set may have, told once for each way to reach them: hashing
visits them all, by recursion in C."""
MAX_WORK = 4
"""Parts that may be looked at for each byte and call; honest calls share little."""
MAX_HASHING = 64
"""Parts of keys that hashing may visit for each byte and call."""


class Effort:
    """Counts what judging and loading one message takes."""

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}
        """Containers that were looked at, by id."""
        self._hashed: dict[int, int] = {}
        """Keys that were looked at, by id, with their parts: one may come a million times."""
        self._keys: set[int] = set()
        """Lists of keys that were looked at, by id."""
        self._hashing = 0
        """Parts that hashing would visit."""
        self._work = 0
        """Parts of calls that are looked at."""

    def call(self, call: PickleCall, more: int = 0) -> None:
        """Counts what a rule has to look at: arguments and state, and what these hold."""
        self._work += self._size(call.args) + self._size(call.state) + more

    def keys(self, keys: Collection[Value]) -> bool:
        """Counts the work of hashing these keys; returns whether one of them alone is too much."""
        parts = [self._key(key) for key in keys]
        self._hashing += sum(parts) + len(parts)
        return -1 in parts

    def again(self, keys: Collection[Value]) -> bool:
        """Whether a list of the pickle was counted before, as a whole; then it is counted once more."""
        known = id(keys) in self._keys
        self._keys.add(id(keys))
        self._hashing += len(keys) if known else 0
        return known

    def is_too_much(self, calls: int, size: int) -> bool:
        """Whether looking at what was counted so far takes too much. `size`: the bytes of the pickle."""
        return self._work > MAX_WORK * (calls + size)

    def hashes_too_much(self, calls: int, size: int) -> bool:
        """Whether hashing what was counted so far takes too much. `size`: the bytes of the pickle."""
        return self._hashing > MAX_HASHING * (calls + size)

    def _size(self, value: Value) -> int:
        if type(value) not in _SIZED:
            return 0
        known = self._sizes.get(id(value))
        if known is None:
            held = [part for _, part in value.pairs] if type(value) is Dict else value
            known = len(held) + sum(_length(part) for part in held)
            self._sizes[id(value)] = known
        return known

    def _key(self, key: Value) -> int:
        if type(key) in SCALARS:
            return 0
        known = self._hashed.get(id(key))
        if known is None:
            parts, stack = 0, list(_hashed(key))
            while stack and parts < MAX_KEY_PARTS:
                parts += 1
                stack += _hashed(stack.pop())
            known = self._hashed[id(key)] = -1 if stack else parts
        return known


def parts(value: Value) -> Collection[Value]:
    """What a rule looks at in arguments or a state: down tuples and dicts, each part once."""

    def inner(node: Value) -> Iterable[Value]:
        if type(node) is Dict:
            return [part for _, part in node.pairs]
        return node if type(node) is tuple else ()

    return {id(node): node for node in walk([value], inner)}.values()


def _length(value: Value) -> int:
    if type(value) is Dict:
        return len(value.pairs)
    return len(value.items) if type(value) is Set else len(value) if type(value) in (tuple, list) else 0


def _hashed(node: Value) -> Iterable[Value]:
    """What is hashed where a value is: not what a class of somebody's own may do for it."""
    if type(node) is tuple:
        return node
    if type(node) is Set:
        return node.items
    if type(node) is PickleCall and type(node.function) is Global and node.function in HASHED:
        given = [arg for arg in node.args if type(arg) is list] if type(node.args) is tuple else []
        return [*children(node), *(part for parts in given for part in parts)]
    return ()


HASHED = frozenset(Global("builtins", name) for name in ("frozenset", "slice", "tuple"))
"""What is hashed by the items of its arguments."""
_SIZED = (tuple, list, Dict)

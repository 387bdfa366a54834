"""A bounded memory of what was decoded before: equal bytes give the same object.

In: keys that are or hold bytes, with their size. When the sizes of all keys pass the bound, everything is
forgotten at once: the patterns of a training loop come back within a few messages, and nothing has to be
reordered on each look-up.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

TREE_WEIGHT = 4
"""How often bytes count of which a tree of values is kept: one opcode is a byte, an empty dict takes 130."""


class BoundedCache(Generic[K, V]):
    """Values by key. `get` is the dict's own method, since it is called for every message."""

    def __init__(self, max_bytes: int, entry_bytes: int = 100) -> None:
        """`max_bytes` bounds the sizes of all keys, each counted with `entry_bytes` more."""
        self._values: dict[K, V] = {}
        self._max_bytes = max_bytes
        self._entry_bytes = entry_bytes
        self._bytes = 0
        self.get = self._values.get

    def put(self, key: K, value: V, size: int) -> None:
        """Remembers `value` under a key of `size` bytes, unless the key takes more than a sixteenth of the
        bound."""
        size += self._entry_bytes
        if size > self._max_bytes >> 4:
            return
        if self._bytes + size > self._max_bytes:
            self._values.clear()
            self._bytes = 0
        self._values[key] = value
        self._bytes += size

    def __len__(self) -> int:
        return len(self._values)

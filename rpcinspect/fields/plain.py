"""Attributes of records as values that any JSON writer takes.

In: objects with the attributes that are named. Out: dicts of str, int, finite float, bool, None, list and
dict: non-finite floats are "nan", "inf" or "-inf", text is what UTF-8 can hold. Captured text is passed on
unescaped otherwise; what shows it on a terminal must escape control characters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import Any, TypeAlias

from msgspec import Struct

from rpcinspect.rpc.types import GloballyUniqueId

Json: TypeAlias = dict[str, Any]


def text(value: str | bytes) -> str:
    """Text that UTF-8 can hold; what can't be is escaped with backslashes."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if value.isascii():
        return value
    try:
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # surrogates that stand for no byte
        return value.encode("utf-8", "backslashreplace").decode("utf-8")


def number(value: float | None) -> float | str | None:
    """A number that JSON has, or "nan", "inf", "-inf"; whole floats that fit are ints."""
    if isinstance(value, float):
        if not math.isfinite(value):
            return str(value)
        if value.is_integer() and abs(value) < 1 << 53:
            return int(value)
    return value


def plain(value: object) -> Any:
    """Returns plain JSON: text as by `text`, ids as two numbers, records as objects of all fields, items
    likewise; other values as they are."""
    make = _MAKE.get(type(value))
    if make is not None:
        return make(value)
    if isinstance(value, Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, Mapping):
        return {plain(key): plain(item) for key, item in value.items()}
    return value


def _items(values: Sequence[object]) -> list[object]:
    return [value if type(value) in ATOMS else plain(value) for value in values]


ATOMS = frozenset({bool, int, float, type(None)})
"""What is in JSON what it is in Python."""
_MAKE: dict[type, Callable[[Any], object]] = {
    str: text,
    bytes: text,
    tuple: _items,
    list: _items,
    GloballyUniqueId: lambda unique: list(unique.to_value()),
}


class Picked:
    """Picks attributes of an object by name: made once for a kind of object, called with each."""

    def __init__(self, names: str, kind: str = "", /, **make: Callable[[Any], object]) -> None:
        """`names`: the keys in their order, `key=attribute` where the two differ; `kind`: of lines of JSON,
        which begin with it; `make`: of a key how its value is made, where not by `plain`."""
        pairs = [name.partition("=") for name in names.split()]
        self._keys = [key for key, _, _ in pairs]
        self._get: Callable[[object], tuple[object, ...]]
        get = attrgetter(*[attribute or key for key, _, attribute in pairs])
        self._get = get if len(pairs) > 1 else lambda one: (get(one),)
        self._first = {"kind": kind} if kind else {}
        self._make = make
        self._rest = [key for key in self._keys if key not in make]

    def __call__(self, one: object) -> Json:
        told: Json = self._first | dict(zip(self._keys, self._get(one), strict=True))
        for key in self._rest:
            value = told[key]
            if type(value) not in ATOMS:
                told[key] = plain(value)
        for key, given in self._make.items():
            told[key] = given(told[key])
        return told


@cache
def picked(names: str) -> Picked:
    """Returns a `Picked` that is used for few objects."""
    return Picked(names)


def optional(make: Callable[[Any], object]) -> Callable[[Any], object]:
    """What makes None of None."""
    return lambda one: None if one is None else make(one)


def each(make: Callable[[Any], object]) -> Callable[[Any], list[object]]:
    """What makes a list of everything that is in one."""
    return lambda items: [make(item) for item in items]

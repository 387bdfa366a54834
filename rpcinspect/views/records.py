"""Plain records as JSON, by the names of their fields.

In: a record, and which of its fields. Out: what JSON has: strings that can be encoded, lists, objects. Lines
of the contract are written so wherever the record already calls things what the contract calls them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeAlias

from msgspec import Struct

from rpcinspect.fields.plain import text

Json: TypeAlias = dict[str, Any]
ATOMS = frozenset({bool, int, float, type(None)})
"""What is in JSON what it is in Python."""


def fields(record: object, names: str) -> Json:
    """The fields of these names, in this order."""
    return {name: plain(getattr(record, name)) for name in _each(names)}


@cache
def _each(names: str) -> tuple[str, ...]:
    return tuple(names.split())


def plain(value: object) -> Any:
    """The value as JSON has it; a record within it as an object of all of its fields."""
    if type(value) in ATOMS:
        return value
    if isinstance(value, str):
        return text(value)
    if isinstance(value, Struct):
        return fields(value, " ".join(value.__struct_fields__))
    if isinstance(value, Mapping):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    return value

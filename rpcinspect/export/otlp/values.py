"""Values as OTLP's JSON has them, with captured text cut and made harmless.

In: Python values. Out: dicts for a JSON writer. Integers of 64 bits are texts, as the protobuf JSON mapping
has them. Text is what can be seen: databases refuse zero bytes, and people read attributes in terminals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rpcinspect.fields.phrases import printable, shorten, shorten_middle
from rpcinspect.fields.plain import Json

MAX_TEXT = 1000
"""Characters of an attribute, a name or the description of a status."""
MAX_STACK = 8000
"""Characters of a traceback."""


def attributes(values: Mapping[str, object]) -> list[Json]:
    """Returns attributes; what is None is left out."""
    return [{"key": key, "value": _any_value(value)} for key, value in values.items() if value is not None]


def _any_value(value: object) -> Json:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case str():
            return {"stringValue": line(value)}
        case Sequence():
            return {"arrayValue": {"values": [_any_value(item) for item in value]}}
    raise TypeError(f"no attribute has a value of {type(value)}")


def line(value: str) -> str:
    """Returns text as one visible line."""
    return shorten(printable(shorten(value, MAX_TEXT)), MAX_TEXT)


def stack(value: str) -> str:
    """Returns a text of many lines, cut in the middle: the head says where it was, the end what it was."""
    lines = shorten_middle(value, MAX_STACK).splitlines()
    return shorten_middle("\n".join(printable(one.expandtabs()) for one in lines), MAX_STACK)


def nanoseconds(time_ns: int) -> str:
    """Returns a time as a fixed64; damaged captures have times before 1970."""
    return str(max(0, time_ns))

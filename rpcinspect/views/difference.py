"""One difference of two messages in a line for people: where, both values, how far apart, how many.

In: a `Difference`, and what its two sides are called. Out: printable text, in parts or as a whole.
"""

from __future__ import annotations

import json

from msgspec import Struct

from rpcinspect.equality.difference import Difference, Elements, JsonValue
from rpcinspect.fields.phrases import duration, printable, shorten

MAX_VALUE = 120

KIND_WORDS = {
    "zero-sign": "the sign of zero",
    "nan-payload": "the payload of a NaN",
    "form": "form",
    "unknown": "not known",
    "missing": "b lacks the message",
    "extra": "a lacks the message",
    "repeated": "one run has it once more",
}
"""Codes that the two values don't tell."""

ONE_SIDED = frozenset({"missing", "extra", "repeated"})
"""Codes whose one value says what the message itself says."""


class Told(Struct, frozen=True):
    """A difference in printable text."""

    path: str
    values: tuple[str, str] | None
    """None where there are none to show."""
    kind: str | None
    """What differs, where the values don't tell."""
    extent: tuple[str, ...]
    """Of elements: how far apart they are, and how many."""
    text: str | None


def told(difference: Difference, limit: int = MAX_VALUE) -> Told:
    """Part by part; `limit` is that of each value."""
    path = difference.path if difference.b_path is None else f"{difference.path} ({difference.b_path})"
    values = _values(difference, limit) if _has_values(difference) else None
    if difference.code == "latency":
        path = "" if difference.text is None else "median"
        values = duration(difference.a_value), duration(difference.b_value)
    elements = difference.elements
    return Told(
        path=printable(path),
        values=values,
        kind=KIND_WORDS.get(difference.code),
        extent=() if elements is None else tuple(_extent(elements, difference.code)),
        text=None if difference.text is None else printable(difference.text),
    )


def difference_phrase(difference: Difference, sides: tuple[str, str]) -> str:
    """`tensors[0].elements[5]: captured 0.5, live 0.50000006 (1 ulp; 3 of 12 elements)`."""
    its = told(difference)
    words = its.path
    if its.values is not None:
        words += ": " + ", ".join(f"{side} {value}" for side, value in zip(sides, its.values, strict=True))
    details = [detail for detail in (its.kind, *its.extent, its.text) if detail is not None]
    return f"{words} ({'; '.join(details)})".lstrip() if details else words


def _has_values(difference: Difference) -> bool:
    if difference.code in ONE_SIDED or difference.code == "reordered":
        return False
    return difference.a_value is not None or difference.b_value is not None


def _values(difference: Difference, limit: int) -> tuple[str, str]:
    a, b = _narrowed(difference.a_value, difference.b_value)
    shown = [shorten(text, limit) for text in _apart(_text(a), _text(b), limit)]
    bits = (difference.a_bits, difference.b_bits)
    if shown[0] == shown[1] or difference.code in ("zero-sign", "nan-payload"):
        shown = [value if b is None else f"{value} = {b}" for value, b in zip(shown, bits, strict=True)]
    return printable(shown[0]), printable(shown[1])


def _narrowed(a: JsonValue, b: JsonValue) -> tuple[JsonValue, JsonValue]:
    """Returns the entries in which two mappings differ."""
    if not (isinstance(a, dict) and isinstance(b, dict)):
        return a, b
    keys = [key for key in {**a, **b} if a.get(key) != b.get(key)]
    first, second = ({key: its[key] for key in keys if key in its} for its in (a, b))
    return first, second


def _apart(a: str, b: str, limit: int) -> tuple[str, str]:
    """Long texts from shortly before the place at which they part."""
    same = next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    if a == b or max(len(a), len(b)) <= limit or same <= limit // 2:
        return a, b
    start = same - limit // 4
    return f"…{a[start:]}", f"…{b[start:]}"


def _text(value: JsonValue) -> str:
    return "(none)" if value is None else json.dumps(value, ensure_ascii=False)


def _extent(elements: Elements, code: str) -> list[str]:
    """How far apart, and how many."""
    several = elements.differing > 1
    most = "at most " if several else ""
    out = []
    if code == "ulp" and elements.max_ulp:
        out.append(f"{most}{elements.max_ulp:,} ulp")
    elif code == "value" and elements.max_abs is not None:
        out.append(f"{most}{elements.max_abs:.3g} apart")
    if elements.numel > 1:
        beyond = elements.differing - elements.beyond
        rest = (
            f", {elements.beyond:,} of them beyond the tolerance" if 0 < beyond < elements.differing else ""
        )
        verb = "differ" if several else "differs"
        out.append(f"{elements.differing:,} of {elements.numel:,} elements {verb}{rest}")
    return out

"""A comparison as JSON Lines: the contract's `difference` lines, then the `verdict`.

In: a comparison. Out: bytes that end with a line. Fields beyond the contract: of a difference what message it
is in (`type`, `source`, `destination`, `function`, `call`, `request`, `control`), whether it `counts`, what
it `follows`, and what `Difference.as_json` adds; of the verdict all but `same`, `first` and `counts`.
"""

from __future__ import annotations

from collections.abc import Iterator

from rpcinspect.diff.model import Aligned, Comparison, Found
from rpcinspect.fields.plain import Json, picked, text
from rpcinspect.views.jsonl.lines import lines


def diff_lines(comparison: Comparison) -> bytes:
    """Returns the lines of a comparison as JSON."""
    return lines(_objects(comparison))


def _objects(comparison: Comparison) -> Iterator[Json]:
    for found in comparison.found:
        yield {"kind": "difference", **difference_json(found, comparison)}
    yield verdict_json(comparison)


def difference_json(found: Found, comparison: Comparison) -> Json:
    """Returns a `difference` line without its kind."""
    message = comparison.messages[found.message]
    told = found.difference.as_json()
    return {
        "code": told.pop("code"),
        **_place(message),
        **told,
        **picked("type source destination function call request control")(message),
        "counts": found.counts,
        "follows": None if found.follows is None else _place(comparison.messages[found.follows]),
    }


def verdict_json(comparison: Comparison) -> Json:
    """The `verdict` line."""
    return {
        "kind": "verdict",
        **picked("same unrelated")(comparison),
        "first": _first(comparison),
        **picked("counts tolerated different paired unknown a b notes")(comparison),
    }


def _first(comparison: Comparison) -> Json | None:
    first = comparison.first
    if first is None:
        return None
    return {
        **difference_json(comparison.found[first.found], comparison),
        "likely": first.likely,
        "explanation": text(first.text),
        **picked("worker following")(first),
        "beside": [_place(comparison.messages[place]) for place in first.beside],
        "alike": [_place(comparison.messages[place]) for place in first.alike],
    }


def _place(message: Aligned) -> Json:
    return picked("a b")(message)

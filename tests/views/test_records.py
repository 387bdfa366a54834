"""Records as JSON: the fields that were named, in that order."""

from __future__ import annotations

from msgspec import Struct

from rpcinspect.fields.plain import text
from rpcinspect.views.records import fields, plain


class Inner(Struct):
    name: str
    pairs: tuple[tuple[int, int], ...]


class Outer(Struct):
    inner: Inner
    counts: dict[str, int]
    share: float | None = None

    @property
    def words(self) -> str:
        return "a\udcffb"


OUTER = Outer(Inner("x", ((1, 2), (3, 4))), {"k": 1})


def test_fields_are_those_that_were_named() -> None:
    assert list(fields(OUTER, "share counts").items()) == [("share", None), ("counts", {"k": 1})]


def test_records_within_are_objects_of_all_their_fields() -> None:
    assert fields(OUTER, "inner") == {"inner": {"name": "x", "pairs": [[1, 2], [3, 4]]}}
    assert plain((OUTER,)) == [
        {"inner": {"name": "x", "pairs": [[1, 2], [3, 4]]}, "counts": {"k": 1}, "share": None}
    ]


def test_strings_can_be_encoded() -> None:
    assert fields(OUTER, "words")["words"] == text(OUTER.words) != OUTER.words

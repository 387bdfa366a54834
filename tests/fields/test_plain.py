"""What JSON lacks is written otherwise; attributes come in the order in which they are named."""

from __future__ import annotations

import math
from types import SimpleNamespace

from msgspec import Struct

from rpcinspect.fields.plain import Picked, each, number, optional, picked, plain, text
from rpcinspect.rpc.types import RRefId


def test_text_and_numbers_that_json_lacks() -> None:
    assert text(b"a\xffb") == "a\\xffb"
    assert text("a\ud800b") == "a\\ud800b"
    assert text("Grüße") == "Grüße"
    assert [number(x) for x in (math.nan, math.inf, -math.inf, 1.5, 2.0, 7, 1e300, None)] == [
        "nan",
        "inf",
        "-inf",
        1.5,
        2,
        7,
        1e300,
        None,
    ]


def test_plain_values() -> None:
    assert plain(("a\udcff", b"\xfe", (RRefId(1, 2), True, None, 1.5))) == [
        "a\\xff",
        "\\xfe",
        [[1, 2], True, None, 1.5],
    ]


def test_attributes_are_picked_in_their_order() -> None:
    one = SimpleNamespace(b="\udcff", a=2, inner=SimpleNamespace(c=(3,)), many=(1, 2), none=None)
    several = Picked("b x=a c=inner.c many none many_times=many", none=optional(str), many_times=each(str))
    found = {"b": "\\xff", "x": 2, "c": [3], "many": [1, 2], "none": None, "many_times": ["1", "2"]}
    assert list(several(one).items()) == list(found.items())
    assert Picked("a b", "thing")(one) == {"kind": "thing", "a": 2, "b": "\\xff"}
    assert list(Picked("a b", "thing")(one)) == ["kind", "a", "b"]


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
    assert list(picked("share counts")(OUTER).items()) == [("share", None), ("counts", {"k": 1})]


def test_records_within_are_objects_of_all_their_fields() -> None:
    assert picked("inner")(OUTER) == {"inner": {"name": "x", "pairs": [[1, 2], [3, 4]]}}
    assert plain((OUTER,)) == [
        {"inner": {"name": "x", "pairs": [[1, 2], [3, 4]]}, "counts": {"k": 1}, "share": None}
    ]


def test_strings_can_be_encoded() -> None:
    assert picked("words")(OUTER)["words"] == text(OUTER.words) != OUTER.words

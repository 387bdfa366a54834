"""What JSON lacks is written otherwise; attributes come in the order in which they are named."""

from __future__ import annotations

import math
from types import SimpleNamespace

from rpcinspect.fields.plain import Line, Picked, each, number, optional, plain, text
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
    picked = Picked("b x=a c=inner.c many none many_times=many", none=optional(str), many_times=each(str))
    found = {"b": "\\xff", "x": 2, "c": [3], "many": [1, 2], "none": None, "many_times": ["1", "2"]}
    assert list(picked(one).items()) == list(found.items())
    assert Line("thing", "a b")(one) == {"kind": "thing", "a": 2, "b": "\\xff"}
    assert list(Line("thing", "a b")(one)) == ["kind", "a", "b"]

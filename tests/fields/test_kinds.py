"""Values: their units and forms, and that what is written is read as the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcinspect.fields.kinds import (
    CONTEXT,
    DURATION,
    FLAG,
    KINDS,
    NUMBER,
    PAIR,
    SHAPE,
    SIZE,
    TEXT,
    TYPE,
    Kind,
    quote,
    same_shape,
    unquote,
)
from tests.filter.expressions import ANY


@pytest.mark.parametrize(
    ("kind", "word", "value"),
    [
        (DURATION, "50ms", 50_000_000),
        (DURATION, "1.5us", 1500),
        (DURATION, "1.5µs", 1500),
        (DURATION, "2e3ns", 2000),
        (DURATION, "1min", 60_000_000_000),
        (DURATION, "-.5s", -500_000_000),
        (DURATION, "0", 0),
        (SIZE, "1MB", 1_000_000),
        (SIZE, "1MiB", 1 << 20),
        (SIZE, "1.5KiB", 1536),
        (SIZE, "12", 12),
        (SIZE, "12B", 12),
        (SIZE, "0.1GB", 100_000_000),
        (NUMBER, "-7", -7),
        (CONTEXT, "3", 3),
        (CONTEXT, "0:3", 3),
        (CONTEXT, "1:2", (1 << 48) + 2),
        (CONTEXT, "65535:281474976710655", -1),
        (PAIR, "1:2", (1, 2)),
        (PAIR, "281474976710658", (1, 2)),
        (PAIR, "-1:2", (-1, 2)),
        (TYPE, "python_call", "PYTHON_CALL"),
        (TYPE, "0x7", "0x007"),
        (FLAG, "true", True),
        (SHAPE, "[3, 4]", (3, 4)),
        (SHAPE, "[*,4]", (None, 4)),
        (SHAPE, "[]", ()),
        (TEXT, "aten::add.Tensor", "aten::add.Tensor"),
    ],
)
def test_values(kind: Kind, word: str, value: Any) -> None:
    assert kind.read(word) == value


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        (DURATION, "50"),
        (DURATION, "50 ms"),
        (DURATION, "50MB"),
        (DURATION, "ms"),
        (DURATION, "1e9999ms"),
        (SIZE, "1ms"),
        (SIZE, "1mb"),
        (SIZE, "9" * 100),
        (SIZE, "1e400"),
        (DURATION, "-1e39ns"),
        (NUMBER, "1.5"),
        (NUMBER, "1_000"),
        (NUMBER, "٣"),
        (CONTEXT, "0:3:4"),
        (CONTEXT, "65536:0"),
        (CONTEXT, str(1 << 63)),
        (PAIR, ":3"),
        (PAIR, "a:b"),
        (TYPE, "PYTHON"),
        (FLAG, "yes"),
        (SHAPE, "[3,]"),
        (SHAPE, "[-1]"),
        (SHAPE, "3"),
    ],
)
def test_what_is_no_value(kind: Kind, word: str) -> None:
    with pytest.raises(ValueError, match=r"expects|no type|sizes"):
        kind.read(word)


@given(st.sampled_from(KINDS).flatmap(lambda kind: st.tuples(st.just(kind), ANY[kind])))
def test_what_is_written_is_read_as_the_same(case: tuple[Kind, Any]) -> None:
    kind, value = case
    written = kind.write(value)
    if written.startswith('"'):
        written = unquote(written)
    assert kind.read(written) == value


@given(st.text())
def test_quotes(text: str) -> None:
    written = quote(text)
    assert written == text or unquote(written) == text


def test_quotes_leave_regular_expressions_alone() -> None:
    assert unquote(r'"\d+\.\w"') == r"\d+\.\w"
    assert unquote(r'"\\d \" \\"') == r'\d " ' + "\\"
    assert unquote(r"'\\d \" '") == r"\\d \" "


def test_shapes() -> None:
    assert same_shape((3, 4), (3, None))
    assert not same_shape((3, 4), (3,))
    assert not same_shape((3, 4), (4, None))

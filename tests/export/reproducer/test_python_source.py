"""Values as source: evaluated, it is the value that Python's own pickle makes."""

from __future__ import annotations

import collections
import functools
import math
import pickle
import struct
from typing import Any, NamedTuple

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcinspect.export.reproducer.python_names import Imports, NoSourceError, flat, lay_out
from rpcinspect.export.reproducer.python_source import Names, SourceWriter
from rpcinspect.export.reproducer.script import TEMPLATES
from rpcinspect.pickles.python import read_python_pickle
from rpcinspect.pickles.tree import Dict, Global, PersistentRef, PickleCall, Set

NAMES = Names(lambda index: f"t[{index}]", lambda fork: "rref", {})


class Point(NamedTuple):
    x: float
    y: float


class Plain:
    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return type(other) is Plain and vars(other) == vars(self)

    def __hash__(self) -> int:
        return 0

    def method(self) -> object:
        return self.value


def helpers() -> dict[str, Any]:
    """The functions of the script that values use, from its template."""
    text = (TEMPLATES / "reproduce.py.jinja").read_text(encoding="utf-8")
    space: dict[str, Any] = {"struct": struct}
    exec(text[text.index("def make_object") :].partition("{%")[0], space)
    return space


def source_of(value: Any, protocol: int = 4) -> tuple[str, str]:
    """(imports, expression)"""
    imports = Imports()
    writer = SourceWriter(imports)
    source = writer.write(read_python_pickle(pickle.dumps(value, protocol)).root, NAMES)
    lines = imports.lines() + [f"import {module}" for module in sorted(imports.modules)]
    return "\n".join(lines), lay_out(source)


def made_by(value: Any, protocol: int = 4) -> Any:
    """What the source makes."""
    imports, expression = source_of(value, protocol)
    space = helpers()
    exec(imports, space)
    return eval(expression, space)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize(
    "value",
    [
        *(None, True, -1, 1 << 70, 1 << 10_000, 0.1, -0.0, math.inf, -math.inf, 1e-300, 2j),
        *("", "it's", 'a "quote"', "both ' and \"", "line\nbreak \\ \x00 é \u202e \U0001f600 \udc80"),
        *(
            b"",
            b"\x00'\"\n",
            bytearray(b"x"),
            (),
            (1,),
            [1, [2]],
            {"a": {1: None}},
            {1, 2},
            frozenset({3}),
            set(),
        ),
        *(
            collections.OrderedDict(b=1, a=2),
            collections.deque([1, 2]),
            collections.defaultdict(list, {"a": [1]}),
        ),
        *(Point(1.0, 2.0), Plain({"x": [1]}), range(3), slice(1, 2), ValueError("no"), len, dict),
        *(functools.partial(max, 1), numpy.arange(6, dtype="<i4").reshape(2, 3), numpy.float32(0.5)),
        {"k": (None,) * 50},
    ],
    ids=lambda value: type(value).__name__,
)
def test_evaluated_it_is_the_value(value: Any, protocol: int) -> None:
    made = made_by(value, protocol)
    assert type(made) is type(value)
    if isinstance(value, numpy.ndarray):
        assert made.dtype == value.dtype
        assert made.tolist() == value.tolist()
    elif isinstance(value, (BaseException, functools.partial)):
        assert made.args == value.args
    else:
        assert made == value
        assert repr(made) == repr(value) or isinstance(value, Plain)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(value=VALUES)
def test_any_plain_value(value: Any) -> None:
    imports, expression = source_of(value)
    assert imports == ""
    assert expression.isascii()
    assert repr(made_by(value)) == repr(value)


@pytest.mark.parametrize("bits", ["7ff8000000000000", "fff8000000000000", "7ff4000000000001"])
def test_nan_keeps_its_bits(bits: str) -> None:
    (value,) = struct.unpack(">d", bytes.fromhex(bits))
    assert struct.pack(">d", made_by([value])[0]).hex() == bits


def loop() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [
        loop(),
        deep(500),
        [0] * 1 + [(n,) for n in range(200_000)],
        "x" * 200_000,
        PersistentRef("x"),
        PickleCall(PickleCall(Global("m", "f"), ()), ()),
        PickleCall("m.f", ()),
        PickleCall(Global("m", "f"), [1]),
        PickleCall(Global("m", "f"), (), how="change"),
        PickleCall(Global("m", "f"), ("m", "f"), how="stack_global"),
        PickleCall(Global("m", "f"), (), items=[1]),
        PickleCall(Global("m", "f"), (), pairs=[(1, 2)]),
        PickleCall(Global("builtins", "getattr"), (Global("m", "f"), "a b")),
        PickleCall(Global("builtins", "getattr"), (Global("m", "f"), Global("m", "g"))),
        Dict([(PickleCall(Global("m", "f"), ()), 1)]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_has_no_source(value: Any) -> None:
    with pytest.raises(NoSourceError):
        SourceWriter(Imports()).write(value, NAMES)


def test_sets_and_attributes() -> None:
    writer = SourceWriter(Imports())
    assert flat(writer.write(Set([1], frozen=True), NAMES)) == "frozenset({1})"
    method = PickleCall(Global("builtins", "getattr"), (Global("m", "Model"), "forward"))
    assert flat(writer.write(method, NAMES)) == "Model.forward"


def test_numbers_that_have_a_name() -> None:
    names = Names(NAMES.tensor, NAMES.rref, {1 << 50: "context_id"})
    assert flat(SourceWriter(Imports()).write((1, 1 << 50), names)) == "(1, context_id)"


def test_what_old_protocols_write() -> None:
    assert made_by(Plain(3), 1) == Plain(3)

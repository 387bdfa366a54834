"""Values as source: evaluated, it is the value that Python's own pickle makes; hostile names get nowhere."""

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

from rpcinspect.rpc.pickles.python import read_python_pickle
from rpcinspect.rpc.pickles.tree import Call, Dict, Global, PersistentRef, Set
from rpcinspect.views.layout import flat, lay_out
from rpcinspect.views.python_source import (
    Imports,
    Names,
    NoSourceError,
    SourceWriter,
    is_name,
    quoted,
    quoted_bytes,
)
from rpcinspect.views.reproducer import TEMPLATES

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
    imports = Imports({"taken"})
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


def test_names_that_are_taken_get_others() -> None:
    imports = Imports({"taken"})
    assert imports.expression(Global("a.b", "f")) == "f"
    assert imports.expression(Global("c.b", "f")) == "b_f"
    assert imports.expression(Global("c.b", "taken")) == "b_taken"
    assert imports.expression(Global("m", "len")) == "m_len"
    assert imports.expression(Global("m", "Class.method")) == "Class.method"
    assert imports.expression(Global("torch", "float32")) == "torch.float32"
    assert imports.expression(Global("builtins", "len")) == "len"
    assert imports.lines() == [
        "from a.b import f",
        "from c.b import f as b_f",
        "from c.b import taken as b_taken",
        "from m import Class",
        "from m import len as m_len",
    ]


def test_the_jobs_script() -> None:
    assert Imports((), "train").expression(Global("__main__", "f")) == "f"
    imports = Imports((), "train")
    imports.expression(Global("__mp_main__", "f"))
    assert imports.lines() == ["from train import f"]
    with pytest.raises(NoSourceError, match="--main"):
        Imports(()).expression(Global("__main__", "f"))


HOSTILE = [
    Global("os; import x", "f"),
    Global("os", "system('x')"),
    Global("os\n", "f"),
    Global("", "f"),
    Global("m", ""),
    Global("m", "a..b"),
    Global("m", "class"),
    Global("m.import", "f"),
    Global("\u0430", "f"),  # a Cyrillic letter
    Global("builtins", "no_such_thing"),
]


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_hostile_names_have_no_source(name: Global) -> None:
    with pytest.raises(NoSourceError):
        Imports(()).expression(name)


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
        Call(Call(Global("m", "f"), ()), ()),
        Call("m.f", ()),
        Call(Global("m", "f"), [1]),
        Call(Global("m", "f"), (), how="change"),
        Call(Global("m", "f"), ("m", "f"), how="stack_global"),
        Call(Global("m", "f"), (), items=[1]),
        Call(Global("m", "f"), (), pairs=[(1, 2)]),
        Call(Global("builtins", "getattr"), (Global("m", "f"), "a b")),
        Call(Global("builtins", "getattr"), (Global("m", "f"), Global("m", "g"))),
        Dict([(Call(Global("m", "f"), ()), 1)]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_has_no_source(value: Any) -> None:
    with pytest.raises(NoSourceError):
        SourceWriter(Imports(())).write(value, NAMES)


def test_sets_and_attributes() -> None:
    writer = SourceWriter(Imports(()))
    assert flat(writer.write(Set([1], frozen=True), NAMES)) == "frozenset({1})"
    method = Call(Global("builtins", "getattr"), (Global("m", "Model"), "forward"))
    assert flat(writer.write(method, NAMES)) == "Model.forward"


def test_literals() -> None:
    assert [quoted(text) for text in ("a", "it's", 'a "b"')] == ['"a"', '"it\'s"', "'a \"b\"'"]
    assert quoted_bytes(b"a") == 'b"a"'
    assert [text for text in ("a", "1a", "class", "é", "_") if is_name(text)] == ["a", "_"]


def test_numbers_that_have_a_name() -> None:
    names = Names(NAMES.tensor, NAMES.rref, {1 << 50: "context_id"})
    assert flat(SourceWriter(Imports(())).write((1, 1 << 50), names)) == "(1, context_id)"


def test_what_old_protocols_write() -> None:
    assert made_by(Plain(3), 1) == Plain(3)

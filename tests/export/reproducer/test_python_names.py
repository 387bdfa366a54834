"""Names and literals: those that are taken get others, hostile ones get nowhere, text stays text."""

from __future__ import annotations

import ast

import pytest

from rpcinspect.export.reproducer.python_names import (
    VARIABLE,
    WIDTH,
    Brackets,
    Imports,
    Item,
    NoSourceError,
    accessor,
    comment,
    flat,
    is_name,
    lay_out,
    quoted,
    quoted_bytes,
)
from rpcinspect.pickles.places import PathStep
from rpcinspect.pickles.tree import Global


def nested(depth: int, width: int) -> Brackets:
    inner = nested(depth - 1, width) if depth else Brackets("[", [str(n) for n in range(width)], "]")
    return Brackets(
        "call(", (Item("", '"name"'), Item("args=", Brackets("(", [inner], ")", single_comma=True))), ")"
    )


@pytest.mark.parametrize("depth", range(5))
@pytest.mark.parametrize("width", [0, 3, 40])
def test_it_says_the_same_in_lines_that_fit(depth: int, width: int) -> None:
    source = nested(depth, width)
    laid = lay_out(source, lead="out = ", depth=1)
    assert ast.dump(ast.parse(laid.strip())) == ast.dump(ast.parse(f"out = {flat(source)}"))
    assert all(len(line) <= WIDTH for line in laid.split("\n"))


def test_short_ones_stay_on_a_line() -> None:
    assert lay_out(nested(0, 2), lead="x = ", tail=":", depth=1) == '    x = call("name", args=([0, 1],)):'


def test_a_tuple_of_one() -> None:
    assert flat(Brackets("(", ["1"], ")", single_comma=True)) == "(1,)"
    assert flat(Brackets("(", ["1", "2"], ")", single_comma=True)) == "(1, 2)"
    assert flat(Brackets("(", [], ")", single_comma=True)) == "()"


def test_names_that_are_taken_get_others() -> None:
    imports = Imports()
    assert imports.expression(Global("a.b", "f")) == "f"
    assert imports.expression(Global("c.b", "f")) == "b_f"
    assert imports.expression(Global("c.b", "reproduce")) == "b_reproduce"
    assert imports.expression(Global("m", "len")) == "m_len"
    assert imports.expression(Global("m", "out12")) == "m_out12"
    imports.reserve("worker0")
    assert imports.expression(Global("m", "worker0")) == "m_worker0"
    assert imports.expression(Global("m", "Class.method")) == "Class.method"
    assert imports.expression(Global("torch", "float32")) == "torch.float32"
    assert imports.expression(Global("builtins", "len")) == "len"
    assert imports.lines() == [
        "from a.b import f",
        "from c.b import f as b_f",
        "from c.b import reproduce as b_reproduce",
        "from m import Class",
        "from m import len as m_len",
        "from m import out12 as m_out12",
        "from m import worker0 as m_worker0",
    ]


def test_the_jobs_script() -> None:
    assert Imports("train").expression(Global("__main__", "f")) == "f"
    imports = Imports("train")
    imports.expression(Global("__mp_main__", "f"))
    assert imports.lines() == ["from train import f"]
    with pytest.raises(NoSourceError, match="--main"):
        Imports().expression(Global("__main__", "f"))


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
        Imports().expression(name)


def test_literals() -> None:
    assert [quoted(text) for text in ("a", "it's", 'a "b"')] == ['"a"', '"it\'s"', "'a \"b\"'"]
    assert quoted_bytes(b"a") == 'b"a"'
    assert [text for text in ("a", "1a", "class", "é", "_") if is_name(text)] == ["a", "_"]


def test_accessors() -> None:
    assert accessor((PathStep(False, 0), PathStep(False, "it's"), PathStep(True, "x"))) == '[0]["it\'s"].x'


def test_comments_stay_comments() -> None:
    hostile = 'x"""\nimport os\r\u2028\u202e' + "y" * 500
    for line in comment(hostile).split("\n"):
        assert line.startswith("# ")
        assert line.isascii()
        assert line.isprintable()


def test_variables_are_names_with_a_number() -> None:
    assert [bool(VARIABLE.fullmatch(name)) for name in ("out6", "rref8", "context_0", "out", "output6")] == [
        *(True, True, True, False, False)
    ]

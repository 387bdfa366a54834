"""Source in lines: what Python reads is the same, and formatters leave it as it is."""

from __future__ import annotations

import ast

import pytest

from rpcinspect.views.reproducer.layout import WIDTH, Brackets, Item, brackets, flat, lay_out


def nested(depth: int, width: int) -> Brackets:
    inner = nested(depth - 1, width) if depth else brackets("[", [str(n) for n in range(width)], "]")
    return Brackets(
        "call(", (Item("", '"name"'), Item("args=", brackets("(", [inner], ")", single_comma=True))), ")"
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
    assert flat(brackets("(", ["1"], ")", single_comma=True)) == "(1,)"
    assert flat(brackets("(", ["1", "2"], ")", single_comma=True)) == "(1, 2)"
    assert flat(brackets("(", [], ")", single_comma=True)) == "()"

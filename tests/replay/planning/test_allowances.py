"""`--allow`: what each spelling covers, and what is none."""

from __future__ import annotations

import pytest

from rpcinspect.replay.planning.allowances import Allowance, hint


@pytest.mark.parametrize(
    "bad", ["", ":", "app:", ":f", "app..sub", "a b", "app:f:g", "../app", "app/sub", "aten::", "aten::a b"]
)
def test_what_is_none(bad: str) -> None:
    assert Allowance.parse(bad) is None


def test_a_module_covers_its_names_and_submodules_but_no_methods() -> None:
    whole = Allowance("app", None)
    assert Allowance.parse("app") == whole
    assert whole.covers("app", "f")
    assert whole.covers("app.sub", "f")
    assert not whole.covers("apples", "f")
    assert not whole.covers("app", "C.m")


def test_a_name_covers_itself() -> None:
    one = Allowance.parse("app.sub:C.m")
    assert one == Allowance("app.sub", "C.m")
    assert one.covers("app.sub", "C.m")
    assert not one.covers("app.sub", "C")
    assert not one.covers("app.sub.more", "C.m")


def test_an_operator_covers_its_overloads() -> None:
    every, one = Allowance.parse("aten::gather"), Allowance.parse("aten::gather.out")
    assert every is not None
    assert one is not None
    assert every.covers_operator("gather.out")
    assert every.covers_operator("gather")
    assert one.covers_operator("gather.out")
    assert not one.covers_operator("gather")
    assert not every.covers_operator("gather_")
    assert not every.covers("aten", "gather")


def test_hints_can_be_pasted() -> None:
    assert hint("app", "C.m") == "app:C.m"
    assert hint("app", "<lambda>") == ""
    assert hint("", "f") == ""

"""Filters as they are written: what is written is read as the same."""

from __future__ import annotations

from hypothesis import given, settings

from rpcinspect.filter.expression import Expression
from rpcinspect.filter.grammar import parse
from rpcinspect.filter.selection import Filter
from tests.filter.expressions import expressions
from tests.thorough import examples


@given(expressions())
@settings(max_examples=examples(200), deadline=None)
def test_what_is_written_is_read_as_the_same(expression: Expression) -> None:
    text = str(expression)
    assert parse(text) == expression
    assert str(parse(text)) == text


def test_leaves_come_from_left_to_right() -> None:
    text = "not (request or control) and id == 3"
    found = Filter(parse(text), text).leaves
    assert [leaf.field.name for leaf in found] == ["request", "control", "id"]


def test_parentheses_only_where_they_are_needed() -> None:
    text = "not (id == 1) or request and (control or error) and not error"
    assert str(parse(text)) == text
    assert str(parse("((request)) && (!control) || error")) == "request and not control or error"

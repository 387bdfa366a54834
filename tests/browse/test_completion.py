"""What is offered while a filter is typed: always something that the language has at that place."""

from __future__ import annotations

import pytest

from rpcinspect.browse.completion import FieldValues, complete
from rpcinspect.fields.table import BY_NAME
from rpcinspect.filter.grammar import parse

NAMES = ["worker0", "trainer 1", 'a"b\\', "and", "ps:2", "[3]"]
VALUES: FieldValues = {"src": lambda: NAMES, "type": lambda: ["FORWARD_AUTOGRAD_REQ"]}


def words(text: str) -> tuple[str, ...]:
    return complete(text, VALUES).words


def test_fields_are_offered_first_by_how_they_begin() -> None:
    assert words("late")[0] == "latency"
    assert set(words("")) <= {*BY_NAME}
    assert "tensor.dtype" in words("dtype")


def test_operators_follow_a_field_but_not_a_flag() -> None:
    assert "==" in words("latency ")
    assert words("error ") == words("latency > 5ms ") == ("and", "or")


def test_values_of_the_run_follow_a_comparison() -> None:
    assert words("src == wor") == ("worker0",)
    assert words("not (src == ") == ('"[3]"', '"a\\"b\\\\"', '"and"', "ps:2", '"trainer 1"', "worker0")
    assert words("src in {worker0, tr") == ('"trainer 1"',)
    assert words("type ~ back") == ()


@pytest.mark.parametrize("name", NAMES)
def test_a_completed_value_is_that_value(name: str) -> None:
    text = "src == "
    found = complete(text, VALUES)
    whole = [text[: found.start] + word for word in found.words]
    assert name in [parse(one).value for one in whole]  # type: ignore[union-attr]

"""The language: what is read how, and that mistakes are found with their place before a capture is opened."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpcinspect.errors import FilterError
from rpcinspect.filter.expression import Expression
from rpcinspect.filter.grammar import MAX_DEPTH, MAX_TEXT, parse
from tests.thorough import examples


def mistake(text: str) -> FilterError:
    with pytest.raises(FilterError) as caught:
        parse(text)
    return caught.value


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("request and control or error", "(request and control) or error"),
        ("not request and control", "(not request) and control"),
        ("!request&&control||error", "not request and control or error"),
        ("src==worker0", 'src == "worker0"'),
        ("src == 'worker0'", "src == worker0"),
        ("src == true", 'src == "true"'),
        ("type == python_call", "type == PYTHON_CALL"),
        ("ctx==3", "ctx == 0:3"),
        ("context_id == 3", "ctx == 3"),
        ("\n index\t>= 3\n", "index >= 3"),
        ("latency in {1ms,2ms}", "latency in { 1000us , 2ms }"),
        ("tensor.shape==[3,*]", "tensor.shape == [ 3, * ]"),
        ("fn ~ 'a b'", 'fn ~ "a b"'),
        ("index > -1", "index > -1"),
    ],
)
def test_the_same(text: str, same: str) -> None:
    assert parse(text) == parse(same)


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("lantency > 5ms", "lantency", "near: latency"),
        ("src == a and dtype == float32", "dtype", "near: tensor.dtype"),
        ("xyzzy", "xyzzy", "--fields"),
        ("latency > 5", "5", "a time with its unit"),
        ("nbytes > 5ms", "5ms", "a number of bytes"),
        ("type == FORWARD_AUTOGRAD", "FORWARD_AUTOGRAD", "near: FORWARD_AUTOGRAD_"),
        ("request and fn < a", "<", "fn is a text, which knows != == in ~"),
        ("index ~ 3", "~", "index is a number"),
        ("request == yes", "yes", "true or false"),
        ('index == "3"', '"3"', "index is a number"),
        ("index == [3]", "[3]", "index is a number"),
        ("index in {1, x}", "x", "a whole number"),
        ("fn ~ '('", "'('", "missing )"),
        ("fn ~ '(?=a)'", "'(?=a)'", "RE2"),
        ("fn ~ [a]", "[a]", "in quotes"),
        ("src == and", "and", "must be in quotes"),
        ("src == a $", "$", "expected"),
        ("src = a", "=", "not part of the language; == compares"),
        ("src == 'abc", "'", "has no end"),
        ('src == "abc', '"', "has no end"),
        ("tensor.shape == [3", "[", "has no end"),
        ("request)", ")", "expected"),
        ("request control", "control", "expected"),
        ("index in {}", "}", "expected"),
        ("3 < index", "3", "there is no field 3"),
    ],
)
def test_mistakes_have_their_place(text: str, place: str, reason: str) -> None:
    error = mistake(text)
    assert error.text[error.start : error.end] == place
    assert reason in error.reason


@pytest.mark.parametrize("text", ["(request", "src ==", "not", "request and", "src in {a"])
def test_what_ends_too_early(text: str) -> None:
    error = mistake(text)
    assert "ends too early" in error.reason
    assert error.start == error.end == len(text)


@pytest.mark.parametrize("text", ["", "  \n"])
def test_an_empty_filter(text: str) -> None:
    assert mistake(text).reason == "the filter is empty"


def test_long_filters() -> None:
    fits = " or ".join(["id == 1"] * 900)
    assert len(fits) <= MAX_TEXT
    parse(fits)
    assert "longer than" in mistake(fits + " or id == 2" * 100).reason


def test_deep_filters() -> None:
    parse("(" * 4000 + "request" + ")" * 4000)
    parse("not " * (MAX_DEPTH - 1) + "request")
    assert "levels" in mistake("not " * MAX_DEPTH + "request").reason
    assert "levels" in mistake("not " * 2000 + "request").reason
    nested = "request"
    for number in range(MAX_DEPTH):
        nested = f"({nested} {'and' if number % 2 else 'or'} error)"
    assert "levels" in mistake(nested).reason


PIECES = ["request", "src", "index", "==", "!=", "~", "in", "{", "}", "(", ")", ",", "and", "or", "not", "!"]
PIECES += ["3", "5ms", '"', "'", "[", "]", "[3,*]", "\\", "&&", "|", "\x00", "é", "  "]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map(" ".join) | st.text(max_size=40))
@settings(max_examples=examples(200), deadline=None)
def test_any_text_is_a_filter_or_a_mistake_with_a_place(text: str) -> None:
    found: Expression | FilterError
    try:
        found = parse(text)
    except FilterError as error:
        found = error
    if isinstance(found, FilterError):
        assert 0 <= found.start <= found.end <= len(text)
        assert found.reason
    else:
        assert parse(str(found)) == found

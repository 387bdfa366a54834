"""Values that tell which request each call of a function was sent for: in every case, or in none."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpcinspect.run.evidence import LEAST_MATCHES
from tests.replayer.talks import Workers
from tests.run.told import ask
from tests.thorough import examples

COUNT = LEAST_MATCHES + 1


def handlers(
    count: int = COUNT,
    value: Callable[[int], object] = lambda n: n,
    callee: Callable[[int], int] = lambda n: 2,
    end: int = 50,
) -> Workers:
    """w1 serves so many requests `a(n, 3)` at once; for each it calls `b`."""
    workers = Workers(4)
    for n in range(count):
        ask(workers, (0, 1), (n, 100 + n), "a", n + 10, 3)
    for n in range(count):
        ask(workers, (1, callee(n)), (20 + n, end + n), "b", value(n + 10), 3)
    return workers


def certain(workers: Workers, count: int = COUNT) -> dict[int, int]:
    parents = workers.run().causes.parents
    assert all(index >= count for index in parents)
    return {index - count: parent for index, parent in parents.items()}


def test_each_call_has_the_value_of_one_request() -> None:
    assert certain(handlers()) == {n: n for n in range(COUNT)}


def test_whom_a_function_calls_may_differ() -> None:
    assert certain(handlers(callee=lambda n: 2 + n % 2)) == {n: n for n in range(COUNT)}


@pytest.mark.parametrize("count", range(LEAST_MATCHES))
def test_a_few_may_agree_by_chance(count: int) -> None:
    assert certain(handlers(count), count) == {}


def test_one_exception_and_nothing_is_told() -> None:
    assert certain(handlers(value=lambda n: 99.5 if n == 12 else n)) == {}


def test_the_value_of_a_constant_hinders_nobody() -> None:
    """One request has as its number what all have as their other argument."""
    told = certain(handlers(COUNT + 2, value=lambda n: 3 if n == 12 else n), COUNT + 2)
    assert told == {n: n for n in range(COUNT + 2) if n != 2}


def test_the_same_value_everywhere_tells_nothing() -> None:
    assert certain(handlers(value=lambda n: "what everybody says")) == {}


def test_a_rare_text_is_no_proof_by_itself() -> None:
    """Names and settings are the same all over a program."""
    workers = Workers(3)
    ask(workers, (0, 1), (1, 50), "a", "encoder.layers.0.weight")
    ask(workers, (1, 2), (10, 20), "b", "encoder.layers.0.weight")
    assert workers.run().causes.of(1) == ((0,), False)


def test_a_call_while_nothing_is_open_is_an_exception() -> None:
    workers = handlers()
    ask(workers, (1, 2), (500, 510), "b", 10, 3)
    assert certain(workers) == {}


def test_who_is_not_waited_for_acts_beside() -> None:
    """Workers in lock step: each calls the next one in the same step."""
    assert certain(handlers(end=101)) == {}


def test_a_request_without_a_call_is_an_exception() -> None:
    workers = handlers()
    ask(workers, (0, 1), (200, 210), "a", 70, 3)
    assert workers.run().causes.parents == {}


def test_what_it_can_not_know() -> None:
    """Functions that ask with the value of a neighbour that is served too look the same as those that ask
    with their own: this is where the rule errs, and its text says so.
    """
    told = certain(handlers(value=lambda n: 10 + (n - 9) % COUNT))
    assert told == {n: (n + 1) % COUNT for n in range(COUNT)}


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.integers(10, 30), min_size=COUNT, max_size=COUNT))
def test_a_certain_parent_has_the_calls_value(values: list[int]) -> None:
    told = certain(handlers(value=lambda n: values[n - 10]))
    for n, parent in told.items():
        assert values[n] in (parent + 10, 3)

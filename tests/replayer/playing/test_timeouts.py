"""How long a replay waits, against made up conversations and a plain definition of what was being served."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpcinspect.replayer.playing.timeouts import (
    AGAIN_S,
    HOUSEKEEPING_S,
    LEAST_S,
    LONGEST_S,
    OVER_S,
    QUIET_S,
    SILENCE_S,
    SILENT_S,
    TIMES,
    Timeouts,
)
from rpcinspect.rpc.command import RRefAck, RRefUserDelete
from rpcinspect.rpc.types import GloballyUniqueId
from rpcinspect.run.exchanges import Exchange
from tests.replayer.talks import Workers
from tests.thorough import examples

SECOND = 1_000_000_000


def calls_of(workers: Workers) -> dict[int, Exchange]:
    return {call.index: call for call in workers.calls()}


def one_call(begin_s: float, end_s: float | None, function: str = "app.f") -> dict[int, Exchange]:
    workers = Workers(2)
    workers.call(0, 1, int(begin_s * SECOND), None if end_s is None else int(end_s * SECOND), function)
    return calls_of(workers)


# --- answers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("took_s", "asked_s", "wait_s"),
    [
        (1e-6, None, LEAST_S),
        (1.5, None, LEAST_S + 1.5 * TIMES),
        (600.0, 3.0, 3.0),
        (1e-6, 99.0, 99.0),
        (None, None, SILENCE_S),  # the capture has no answer either
        (None, 0.5, 0.5),
        (None, 99.0, SILENCE_S),
    ],
)
def test_an_answer_has_several_times_the_captured_time(
    took_s: float | None, asked_s: float | None, wait_s: float
) -> None:
    calls = one_call(1.0, None if took_s is None else 1.0 + took_s)
    waits = Timeouts(calls, asked_s)
    assert waits.for_answer(calls[0]) == pytest.approx(wait_s, abs=1e-4)


def test_a_function_that_did_not_answer_is_waited_for_less_long_also_in_the_next_session() -> None:
    workers = Workers(2)
    for n, function in enumerate(["app.f", "app.f", "app.g"]):
        workers.call(0, 1, 100 * n, 100 * n + 50, function)
    calls = calls_of(workers)
    f, again, g = calls.values()
    silent: set[str] = set()
    waits = Timeouts(calls, None, silent)
    waits.disappointed(f)
    assert waits.for_answer(again) == pytest.approx(SILENT_S, abs=1e-5)
    assert waits.for_answer(g) == pytest.approx(LEAST_S, abs=1e-5)
    assert Timeouts(calls, None, silent).for_answer(f) == pytest.approx(SILENT_S, abs=1e-5)
    assert Timeouts(calls, None).for_answer(f) == pytest.approx(LEAST_S, abs=1e-5)


def test_an_answer_before_its_request_counts_as_one_at_once() -> None:
    """Clocks of several captures may differ."""
    calls = one_call(9.0, 1.0)
    assert Timeouts(calls).for_answer(calls[min(calls)]) == LEAST_S


# --- requests of live workers -------------------------------------------------------------------------------


def test_a_request_has_several_times_the_captured_pause_before_it() -> None:
    workers = Workers(2)
    workers.call(0, 1, 0, SECOND)
    workers.call(1, 0, 3 * SECOND, 4 * SECOND, "app.g")
    calls = calls_of(workers)
    g = next(index for index, call in calls.items() if call.caller == "w1")
    assert Timeouts(calls).for_request(g) == pytest.approx(QUIET_S + 2 * TIMES, abs=1e-6)
    assert Timeouts(calls, 1.5).for_request(g) == 1.5


def test_housekeeping_is_not_waited_for() -> None:
    workers = Workers(2)
    fork = GloballyUniqueId(0, 1)
    workers.call(0, 1, 0, SECOND)
    workers.call(1, 0, 90 * SECOND, 91 * SECOND, RRefUserDelete(fork, fork), RRefAck())  # type: ignore[arg-type]
    calls = calls_of(workers)
    delete = next(index for index, call in calls.items() if call.caller == "w1")
    assert Timeouts(calls).for_request(delete) == HOUSEKEEPING_S


def test_what_was_sent_while_something_was_served_is_not_waited_for_once_that_is_over() -> None:
    workers = Workers(2)
    workers.call(0, 1, 0, 100)
    workers.call(0, 1, 5, 90)
    workers.call(1, 0, 10, 20, "app.g")
    calls = calls_of(workers)
    first, second, g = calls.values()
    waits = Timeouts(calls)
    assert waits.for_request(g.index) >= QUIET_S
    waits.over(second)
    assert waits.for_request(g.index) >= QUIET_S
    waits.over(first)
    assert waits.for_request(g.index) == OVER_S
    waits.over(first)
    assert waits.for_request(g.index) == OVER_S


def test_what_did_not_come_before_is_waited_for_less_long() -> None:
    workers = Workers(2)
    for begin in (0, 200):
        workers.call(0, 1, begin, begin + 100)
        workers.call(1, 0, begin + 10, begin + 20, "app.g")
        workers.call(1, 0, begin + 30, begin + 40, "app.h")
    calls = calls_of(workers)
    first, g, _, second, again, other = calls.values()
    waits = Timeouts(calls)
    waits.over(first)
    assert waits.for_request(g.index) == OVER_S
    waits.missed(g.index)
    assert waits.for_request(again.index) >= QUIET_S
    waits.over(second)
    assert waits.for_request(again.index) == AGAIN_S
    assert waits.for_request(other.index) == OVER_S


CALLS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.integers(0, 2),
        st.integers(0, 40),
        st.one_of(st.none(), st.integers(2, 30)),
        st.sampled_from([None, None, (0, 1), (1 << 48, 2)]),
        st.booleans(),
    ),
    min_size=1,
    max_size=12,
)


def served_by_definition(call: Exchange, calls: Mapping[int, Exchange]) -> set[int]:
    """Requests that the sender of a call had got and not answered, in the same context or in none."""
    return {
        one.index
        for one in calls.values()
        if one.callee == call.caller
        and one.begin_ns <= call.begin_ns
        and (one.answered_ns is None or one.answered_ns >= call.begin_ns)
        and (one.context == call.context or None in (one.context, call.context))
    }


def test_a_year_in_the_capture_is_an_hour_here() -> None:
    calls = one_call(0, 365 * 86_400)
    assert Timeouts(calls).for_answer(calls[0]) == LONGEST_S
    assert Timeouts(calls, 7.0).for_answer(calls[0]) == 7.0
    assert Timeouts(calls, silent={"app.f"}).for_answer(calls[0]) == LONGEST_S


@settings(max_examples=examples(100), deadline=None)
@given(CALLS, st.sampled_from([None, 0.25, 60.0]))
def test_every_wait_is_finite_and_short_only_where_nothing_is_served(
    drawn: list[tuple],  # type: ignore[type-arg]
    timeout_s: float | None,
) -> None:
    workers = Workers(3)
    for number, (caller, callee, begin, length, context, _) in enumerate(drawn):
        where = None if context is None else (context[0], context[1] + number)
        workers.call(caller, callee, begin, None if length is None else begin + length, context=where)
    calls = calls_of(workers)
    waits = Timeouts(calls, timeout_s)
    over = {call.index for call, one in zip(calls.values(), drawn, strict=True) if one[5]}
    for index in over:
        waits.over(calls[index])
    for index, call in calls.items():
        assert 0 < waits.for_answer(call) < math.inf
        assert timeout_s is None or waits.for_answer(call) <= timeout_s
        served = served_by_definition(call, calls)
        short = bool(served) and served <= over
        assert (waits.for_request(index) == OVER_S) == short
        assert 0 < waits.for_request(index) < math.inf


def test_thousands_of_requests_are_looked_at_in_no_time() -> None:
    count = 5000
    workers = Workers(2)
    for number in range(count):
        workers.call(0, 1, 10 * number, 10 * count + 10 * number)
        workers.call(1, 0, 10 * number + 5, 10 * count + 10 * number, "app.g")
    calls = calls_of(workers)
    began = time.perf_counter()
    waits = Timeouts(calls)
    asked = [call.index for call in calls.values() if call.caller == "w1"]
    for call in calls.values():
        if call.caller == "w0":
            waits.over(call)
            waits.for_request(asked[0])
    assert {waits.for_request(index) for index in asked} == {OVER_S}
    assert time.perf_counter() - began < count / 2000


# --- the end of the capture ---------------------------------------------------------------------------------


def test_a_capture_that_ends_before_an_answer_is_due_says_nothing_about_it() -> None:
    workers = Workers(2)
    for n in range(10):
        workers.call(0, 1, n * SECOND, n * SECOND + SECOND // 10)
    workers.call(0, 1, 5 * SECOND + 1, None, "app.early")
    workers.call(0, 1, 9 * SECOND, None, "app.late")
    calls = calls_of(workers)
    by_function = {call.function: call for call in calls.values()}
    waits = Timeouts(calls)
    assert not waits.cut_off(by_function["app.early"])
    assert waits.cut_off(by_function["app.late"])
    assert not waits.cut_off(by_function["app.f"])


def test_a_single_request_without_an_answer() -> None:
    calls = one_call(3.0, None)
    assert Timeouts(calls).cut_off(calls[0])

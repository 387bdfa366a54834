"""Where the time went, against the clocks of both workers, which are the capture's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcinspect.run.latency import Timing, spread
from tests.trace.runs import workload_trace
from tests.truth import CLOCK_NS, workload

NAMES = ["basic_chain", "bwd_boom", "ctx_crowd", "dtype_zoo", "rref_relay", "ps_race_lock", "views_alias"]


def timings(name: str) -> dict[int, Timing]:
    return {timing.request: timing for timing in workload_trace(name).latency.timings}


@pytest.mark.parametrize("name", NAMES)
def test_functions_ran_while_the_callee_is_told_to_be_busy(name: str) -> None:
    told = timings(name)
    seen = 0
    for call in workload(name).calls():
        timing = told[call.request["index"]]
        assert timing.busy_ns is not None
        arrived = timing.begin_ns + timing.request_ns
        if call.run is not None:
            assert arrived - CLOCK_NS <= call.run["time_ns"] <= arrived + timing.busy_ns + CLOCK_NS
            seen += 1
    assert seen


@pytest.mark.parametrize("name", NAMES)
def test_the_caller_waited_at_least_as_long_as_the_wire_shows(name: str) -> None:
    told = timings(name)
    for call in workload(name).calls():
        if call.event["kind"] == "remote":
            continue  # its handle is there before the request is sent
        total = told[call.request["index"]].total_ns
        assert total is not None
        assert total <= call.answered["time_ns"] - call.event["time_ns"] + CLOCK_NS


def test_parts_add_up_and_nested_calls_lie_within() -> None:
    for name in NAMES:
        told = timings(name)
        for timing in told.values():
            if timing.busy_ns is None or timing.nested_ns is None:
                continue
            assert 0 <= timing.nested_ns <= timing.busy_ns
            assert timing.own_ns == timing.busy_ns - timing.nested_ns
            assert timing.total_ns == timing.request_ns + timing.busy_ns + (timing.answer_ns or 0)


def test_a_relay_waits_for_the_call_that_it_makes() -> None:
    relay, explode = (
        next(t for t in timings("bwd_boom").values() if t.what == f"bwd_boom.{name}")
        for name in ("relay", "explode")
    )
    assert explode.parent == relay.request
    assert relay.nested_ns == explode.total_ns
    assert explode.nested_ns == 0


def test_groups_count_every_call_of_the_user_once() -> None:
    latency = workload_trace("ps_race").latency
    user = [timing for timing in latency.timings if not timing.control]
    for groups in (latency.functions, latency.pairs):
        assert sum(group.count for group in groups) == len(user)
        assert sum(group.request_bytes for group in groups) == sum(t.request_bytes for t in user)
        assert sum(group.answer_bytes for group in groups) == sum(t.answer_bytes for t in user)
    calls = workload("ps_race").of("call", function="ps_race.forward")
    (forward,) = [group for group in latency.functions if group.what == "ps_race.forward"]
    assert forward.count == forward.answered == len(calls)
    assert sum(group.failed for group in latency.pairs) == 2  # of trainers 2 and 3, which print their errors
    assert len(workload("ps_race").of("died")) == 2


def test_stragglers_are_far_from_the_median_of_their_function() -> None:
    latency = workload_trace("ps_race").latency
    medians = {group.what: group.total.p50 for group in latency.functions if group.total}
    assert latency.stragglers
    for straggler in latency.stragglers:
        assert straggler.median_ns == medians[straggler.what]
        assert straggler.total_ns >= 3 * straggler.median_ns
    times = [straggler.total_ns for straggler in latency.stragglers]
    assert times == sorted(times, reverse=True)
    held = [s for s in workload_trace("basic_chain").latency.stragglers if s.what == "basic_chain.scale"]
    assert held == []  # one call alone is no straggler


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=300))
def test_each_percentile_is_one_of_the_times_and_covers_its_share(times: list[int]) -> None:
    times.sort()
    told = spread(times)
    assert told is not None
    for share, value in ((50, told.p50), (90, told.p90), (99, told.p99), (100, told.max)):
        assert value in times
        assert sum(time <= value for time in times) * 100 >= share * len(times)
        assert sum(time < value for time in times) * 100 < share * len(times)


def test_nothing_has_no_spread() -> None:
    assert spread([]) is None

"""Where the time went, against the clocks of both workers, which are the capture's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rpcinspect.rpc.callee import Name
from rpcinspect.run.latency import LatencyGroup, Timing, _summed, spread
from tests.checks.runs import traced, workload_trace
from tests.places import recorded
from tests.truth import CLOCK_NS, workload

NAMES = ["basic_chain", "bwd_boom", "ctx_crowd", "dtype_zoo", "rref_relay", "ps_race_lock", "views_alias"]


def timings(name: str) -> dict[int, Timing]:
    return {timing.call.index: timing for timing in workload_trace(name).latency.timings}


@pytest.mark.parametrize("name", NAMES)
def test_functions_ran_while_the_callee_is_told_to_be_busy(name: str) -> None:
    told = timings(name)
    seen = 0
    for call in workload(name).calls():
        timing = told[call.request["index"]]
        assert timing.busy_ns is not None
        arrived = timing.call.begin_ns + timing.request_ns
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
        next(t for t in timings("bwd_boom").values() if t.call.what == f"bwd_boom.{name}")
        for name in ("relay", "explode")
    )
    assert [call.index for call in explode.call.parents] == [relay.call.index]
    assert relay.nested_ns == explode.total_ns
    assert explode.nested_ns == 0


def test_groups_count_every_call_of_the_user_once() -> None:
    latency = workload_trace("ps_race").latency
    user = [timing for timing in latency.timings if not timing.call.control]
    for groups in (latency.functions, latency.pairs):
        assert sum(group.count for group in groups) == len(user)
        assert sum(group.request_bytes for group in groups) == sum(t.call.request_bytes for t in user)
        assert sum(group.answer_bytes for group in groups) == sum(t.call.answer_bytes for t in user)
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
        assert straggler.median_ns == medians[straggler.timing.call.what]
        assert straggler.total_ns >= 3 * straggler.median_ns
    times = [straggler.total_ns for straggler in latency.stragglers]
    assert times == sorted(times, reverse=True)
    held = [
        s
        for s in workload_trace("basic_chain").latency.stragglers
        if s.timing.call.what == "basic_chain.scale"
    ]
    assert held == []  # one call alone is no straggler


def rows(name: str) -> dict[str | None, LatencyGroup]:
    return {group.what: group for group in traced(recorded(f"reports/latency/{name}")).latency.functions}


def test_calls_through_rrefs_are_rows_by_method() -> None:
    """Ten `next` of some 40 ms, ten others of some 2 ms; what made the RRefs was not captured."""
    told = rows("rref_proxies.pcap")
    counts = {what: group.count for what, group in told.items()}
    assert counts == {
        "next": 10,
        "_receive_weights_scheme": 10,
        "register_scheme_receiver": 2,
        "shutdown": 2,
    }
    assert told["next"].total is not None
    assert 35e6 < told["next"].total.p50 < 45e6
    assert traced(recorded("reports/latency/rref_proxies.pcap")).latency.stragglers == ()


def test_calls_through_rrefs_are_rows_by_class() -> None:
    told = rows("rref_proxies.rpclog")
    assert told["Collector.next"].count == told["Collector._receive_weights_scheme"].count == 10
    latency = traced(recorded("reports/latency/rref_proxies.rpclog")).latency
    assert {s.timing.call.what for s in latency.stragglers} == {"Collector.next", "RREF_CHILD_ACCEPT"}


def test_passes_are_judged_by_worker_and_apart_from_what_is_handed_in() -> None:
    run = traced(recorded("reports/latency/backward_elsewhere.pcap"))
    slow = {straggler.timing.call.index for straggler in run.latency.stragglers}
    passes = [t for t in run.latency.timings if t.call.type == "BACKWARD_AUTOGRAD_REQ" and t.total_ns]
    assert sum(timing.total_ns > 200e6 for timing in passes if timing.total_ns) == 3
    assert not slow & {timing.call.index for timing in passes}


def test_a_worker_does_not_work_while_its_gradient_is_at_another() -> None:
    """w1 sleeps 40 ms, sends to w2, which sleeps 80 ms and sends it back; then it sleeps 60 ms."""
    run = traced(recorded("reports/latency/waits.rpclog"))
    passes = [t for t in run.latency.timings if (t.call.type, t.call.context) == ("BACKWARD_AUTOGRAD_REQ", 6)]
    first = min(passes, key=lambda timing: timing.call.begin_ns)
    assert (first.call.caller, first.call.callee) == ("main", "w1")
    assert first.own_ns is not None
    assert first.nested_ns is not None
    assert 100e6 <= first.own_ns < 125e6
    assert 80e6 <= first.nested_ns < 105e6


@pytest.mark.parametrize("name", NAMES)
def test_there_is_one_latency(name: str) -> None:
    trace = workload_trace(name)
    columns, order = trace.session.messages, trace.session.order
    calls = trace.calls
    for timing in trace.latency.timings:
        call = calls[timing.call.index]
        assert timing.total_ns == call.latency_ns == columns.latency_ns(int(order[timing.call.index]))
        if call.answer is not None and call.end_ns is not None:
            assert call.latency_ns == max(0, call.end_ns - call.begin_ns)
            assert columns.latency_ns(int(order[call.answer])) == call.latency_ns


def test_classes_of_one_name_have_rows_of_their_own() -> None:
    whole = timings("basic_chain")
    one, *_ = whole.values()
    both = []
    for module in "ab":
        name = Name("Head.f", f"{module}.Head.f")
        call = replace(one.call, name=name, control=False)
        both.append(replace(one, call=call, row=name.full))
    assert [group.what for group in _summed(tuple(both), both).functions] == ["a.Head.f", "b.Head.f"]
    assert [group.what for group in _summed((both[0], both[0]), (both[0], both[0])).functions] == ["Head.f"]


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

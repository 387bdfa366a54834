"""Who acted of its own, and what was nested in what: on made up conversations and on the workloads' truth."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpcinspect.rpc.command import (
    CleanupAutogradContextReq,
    CleanupAutogradContextResp,
    PropagateGradientsReq,
    PropagateGradientsResp,
    PythonRemoteCall,
    RemoteRet,
    RRefAck,
    RRefUserDelete,
)
from rpcinspect.rpc.envelope import AutogradMetadata
from rpcinspect.rpc.questions import CALLS
from rpcinspect.rpc.types import GloballyUniqueId
from rpcinspect.run.causes import Causes, _cut_circles, explain
from rpcinspect.run.exchanges import Call
from rpcinspect.run.run import open_run
from rpcinspect.run.serving import Serving
from tests.replay.talks import Workers, udf
from tests.truth import CAPTURES, workload

DRIVERS = {
    "basic_chain": {"worker0"},
    "bwd_boom": {"worker0"},
    "ctx_crowd": {"worker0"},
    "devmap_cpu": {"worker0"},
    "dtype_zoo": {"worker0"},
    "param_detach": {"worker0"},
    "profiled_legacy": {"worker0"},
    "ps_race": {"worker1", "worker2", "worker3"},
    "ps_race_lock": {"worker1", "worker2", "worker3"},
    "rref_relay": {"worker0"},
    "transport_matrix_uv_basic": {"worker0"},
    "views_alias": {"worker0"},
}
"""Workload → the workers whose `run` calls anybody, as its script says."""


def causes_of(path: Path) -> tuple[dict[int, Call], Causes]:
    with open_run(str(path)) as opened:
        return opened.exchanges.by_index(), opened.causes


def capture(name: str) -> Path:
    return next(
        CAPTURES / f"{name}{end}" for end in (".pcap", ".pcap.gz") if (CAPTURES / f"{name}{end}").exists()
    )


@pytest.mark.parametrize("name", sorted(DRIVERS))
def test_the_scripts_drivers_and_nobody_else_act_of_their_own(name: str) -> None:
    calls, causes = causes_of(capture(name))
    causes = causes.decided()
    assert {c.caller for c in calls.values() if causes.own(c.index) and not c.control} == DRIVERS[name]


@pytest.mark.parametrize("name", ["bwd_boom", "rref_relay", "basic_chain", "ctx_crowd"])
def test_a_nested_call_was_made_between_the_run_and_the_end_of_its_parent(name: str) -> None:
    """The callee prints when a function begins and ends; a call that it makes meanwhile is nested in it."""
    run = workload(name)
    calls, causes = causes_of(capture(name))
    pairs = {call.request["index"]: call for call in run.calls()}
    for index, call in pairs.items():
        parent = causes.parents.get(index)
        worker = call.event["worker"]
        if parent is None:
            assert worker in DRIVERS[name]
            continue
        began = pairs[parent].run
        assert began is not None
        assert began["worker"] == worker
        assert began["time_ns"] <= call.event["time_ns"]
        assert calls[parent].kind in CALLS


def test_nested_three_deep() -> None:
    workers = Workers(3)
    workers.call(0, 1, 10, 60, "app.a")
    workers.call(1, 2, 20, 50, "app.b")
    workers.call(2, 0, 30, 40, "app.c")
    calls = workers.calls()
    assert explain(calls).parents == {calls[1].index: calls[0].index, calls[2].index: calls[1].index}


def test_an_operator_calls_nobody() -> None:
    workers = Workers(3)
    workers.call(0, 1, 10, 60, "aten::add")
    workers.call(1, 2, 20, 50, "app.b")
    assert explain(workers.calls()).parents == {}


def test_a_function_runs_in_its_requests_context() -> None:
    """w1 serves two requests at once; the context says which of them sent the call."""
    workers = Workers(3)
    workers.call(0, 1, 10, 60, "app.a", context=(5, 1))
    workers.call(2, 1, 12, 58, "app.a", context=(2 << 48, 1))
    workers.call(1, 2, 20, 50, "app.b", context=(5, 2))
    calls = workers.calls()
    causes = explain(calls)
    assert causes.parents == {calls[2].index: calls[0].index}
    assert causes.ambiguities == ()


def test_a_call_outside_of_contexts_is_not_nested_in_one() -> None:
    workers = Workers(3)
    workers.call(0, 1, 10, 60, "app.a", context=(5, 1))
    workers.call(1, 2, 20, 50, "app.b")
    assert explain(workers.calls()).parents == {}


def test_several_requests_may_explain_a_call() -> None:
    workers = Workers(3)
    workers.call(0, 1, 10, 60, "app.a")
    workers.call(2, 1, 12, 58, "app.a")
    workers.call(1, 2, 20, 50, "app.b")
    calls = workers.calls()
    (doubt,) = explain(calls).ambiguities
    assert (doubt.message, doubt.parents) == (calls[2].index, (calls[0].index, calls[1].index))
    assert doubt.decided == calls[1].index
    assert doubt.text == f"w1 sends #{calls[2].index} while it serves #0, #{calls[1].index}"


def driver_that_serves() -> Workers:
    """w1 acts of its own, and once while it serves w0."""
    workers = Workers(3)
    workers.call(1, 2, 1, 5, "app.own")
    workers.call(0, 1, 10, 60, "app.a")
    workers.call(1, 2, 20, 50, "app.b")
    return workers


def test_a_driver_that_serves_is_ambiguous_and_taken_for_nested() -> None:
    calls = driver_that_serves().calls()
    causes = explain(calls)
    (doubt,) = causes.ambiguities
    assert doubt.decided == calls[1].index
    assert causes.parents == {calls[2].index: calls[1].index}
    assert "acts of its own too" in doubt.text


def test_the_user_decides_by_naming_the_worker() -> None:
    causes = explain(driver_that_serves().calls(), drivers=["w1"])
    (doubt,) = causes.ambiguities
    assert doubt.decided is None
    assert causes.parents == {}


def test_what_ends_after_the_answer_was_not_waited_for() -> None:
    workers = Workers(3)
    workers.call(0, 1, 10, 30, "app.a")
    workers.call(1, 2, 20, 50, "app.b")
    causes = explain(workers.calls())
    assert causes.parents == {}
    assert "ends later" in causes.ambiguities[0].text


def test_what_looks_like_calls_of_its_own_elsewhere() -> None:
    """Drivers w0 and w1 do the same; one call of w1 falls into a request that calls nobody elsewhere."""
    workers = Workers(3)
    workers.call(0, 2, 1, 5, "app.own")
    workers.call(1, 0, 6, 9, "app.served")
    workers.call(0, 1, 10, 60, "app.served")
    workers.call(1, 2, 20, 50, "app.own")
    causes = explain(workers.calls())
    assert causes.parents == {}
    assert "like calls elsewhere" in causes.ambiguities[0].text


def test_calls_that_all_fall_into_others_are_judged_by_those_that_end_later() -> None:
    """Everybody calls everybody; one call happens to end before what is served."""
    workers = Workers(3)
    workers.call(2, 0, 5, 15, "app.begin")
    workers.call(0, 1, 10, 100, "app.train")
    workers.call(1, 2, 20, 130, "app.train")
    workers.call(2, 0, 30, 120, "app.train")
    causes = explain(workers.calls())
    assert causes.parents == {}
    assert [doubt.decided for doubt in causes.ambiguities] == [None, None, None]


def test_gradients_follow_from_gradients() -> None:
    """w0 begins a pass: w1 hands it on to w2, and w2's own gradients go back the same way."""
    workers = Workers(3)
    for caller, callee, time in [(0, 1, 10), (1, 2, 20), (2, 1, 30), (1, 0, 40)]:
        request = PropagateGradientsReq(AutogradMetadata(0, time), (), False)
        workers.call(caller, callee, time, 100 + time, request, PropagateGradientsResp())
    calls = workers.calls()
    own, *others = calls
    assert explain(calls).parents == {
        call.index: before.index for before, call in zip(calls, others, strict=False)
    }
    assert explain(calls).own(own)


def test_a_pass_stays_its_beginners_although_gradients_come_back() -> None:
    workers = Workers(2)
    for caller, callee, time in [(0, 1, 10), (1, 0, 20), (0, 1, 30), (1, 0, 40)]:
        request = PropagateGradientsReq(AutogradMetadata(0, time), (), False)
        workers.call(caller, callee, time, 100 + time, request, PropagateGradientsResp())
    calls = workers.calls()
    assert [explain(calls).own(call) for call in calls] == [True, False, True, False]


def test_clean_up_follows_from_clean_up_except_at_the_creator() -> None:
    workers = Workers(3)
    for caller, callee, time in [(0, 1, 10), (1, 2, 30), (1, 0, 40), (2, 1, 50)]:
        request = CleanupAutogradContextReq(7)
        workers.call(caller, callee, time, time + 5, request, CleanupAutogradContextResp())
    workers.call(0, 1, 1, 2, "app.f", context=(7, 1))  # tells who worker 0 is
    calls = workers.calls()
    causes = explain(calls)
    _, first, *others = calls
    assert causes.own(first)
    assert [causes.parents[call.index] for call in others] == [first.index, first.index, others[0].index]


def test_a_delete_has_the_cause_of_the_call_that_made_the_fork() -> None:
    rref, fork = GloballyUniqueId(1, 1), GloballyUniqueId(1, 2)
    made = PythonRemoteCall(
        tensors=(),
        serialized_py_obj=udf("app.make"),
        ret_rref_id=rref,
        ret_fork_id=fork,
        is_async_execution=False,
    )
    workers = Workers(3)
    workers.call(0, 1, 10, 40, "app.a")
    workers.call(1, 2, 20, 30, made, RemoteRet(rref, fork))
    workers.call(1, 2, 70, 80, RRefUserDelete(rref, fork), RRefAck())  # long after the answer
    calls = workers.calls()
    assert explain(calls).parents == {calls[1].index: 0, calls[2].index: 0}


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.integers(0, 2),
            st.integers(0, 60),
            st.integers(2, 40),
            st.booleans(),
            st.sampled_from(["app.a", "app.b", "aten::add"]),
        ),
        max_size=14,
    )
)
def test_a_parent_was_being_served_by_the_sender(drawn: list[tuple[int, int, int, int, bool, str]]) -> None:
    workers = Workers(3)
    for caller, callee, begin, length, answered, function in drawn:
        workers.call(caller, callee, begin, begin + length if answered else None, function)
    calls = workers.calls()
    by_index = {call.index: call for call in calls}
    causes = explain(calls)
    for index, parent in causes.parents.items():
        call, request = by_index[index], by_index[parent]
        assert request.callee == call.caller
        assert request.arrived_ns <= call.begin_ns
        assert request.answered_ns is None or call.begin_ns <= request.answered_ns
    for doubt in causes.ambiguities:
        assert doubt.decided is None or doubt.decided in doubt.parents
        assert causes.parents.get(doubt.message) == doubt.decided
    serving = Serving(call for call in calls if call.callee == "w1")
    for call in sorted((c for c in calls if c.caller == "w1"), key=lambda c: c.begin_ns):
        serving.at(call.begin_ns)
        parent = causes.parents.get(call.index)
        assert parent is None or parent in serving


def test_circles_are_cut_at_the_first_request() -> None:
    """What damaged times and ids say; everybody walks from parent to parent, and must come to an end."""
    for parents, left in (
        ({1: 1}, {}),
        ({1: 2, 2: 1, 3: 2}, {2: 1, 3: 2}),
        ({5: 3, 3: 4, 4: 5, 7: 5, 9: 8}, {5: 3, 4: 5, 7: 5, 9: 8}),
        ({2: 1, 3: 2}, {2: 1, 3: 2}),
    ):
        _cut_circles(parents)
        assert parents == left

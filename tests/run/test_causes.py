"""Who acted of its own, and what was nested in what: on made up conversations and on the workloads' truth."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpcinspect.pickles.semantic import python_udf
from rpcinspect.pickles.tree import children
from rpcinspect.rpc.command import PythonRRefFetchCall
from rpcinspect.rpc.questions import CALLS, FETCHES, GENERAL
from rpcinspect.run.causes import Causes, Doubt, _cut_circles
from rpcinspect.run.exchanges import Exchange
from rpcinspect.run.run import open_run
from tests.replayer.talks import Workers
from tests.thorough import examples
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


def causes_of(path: Path) -> tuple[dict[int, Exchange], Causes]:
    with open_run(str(path)) as opened:
        return opened.calls, opened.causes


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
        parents, certain = causes.of(index)
        worker = call.event["worker"]
        if not parents:
            assert worker in DRIVERS[name]
        if not parents or not certain:
            continue
        (parent,) = parents
        began = pairs[parent].run
        assert began is not None
        assert began["worker"] == worker
        assert began["time_ns"] <= call.event["time_ns"]
        assert calls[parent].kind in CALLS


def nested() -> Workers:
    """w0 asks w1, which asks w2 meanwhile."""
    workers = Workers(3)
    workers.call(0, 1, 10, 60, "app.a")
    workers.call(1, 2, 20, 50, "app.b")
    return workers


def test_time_alone_is_no_proof() -> None:
    """w1 may have a thread of its own; whoever must choose takes the call for nested."""
    causes = nested().run().causes
    assert causes.of(1) == ((0,), False)
    assert causes.doubts[1] == Doubt(1, "w1", (0,), own=True)
    assert causes.parents == {}
    assert causes.decided().parents == {1: 0}


def test_the_user_decides_by_naming_the_worker() -> None:
    causes = nested().run().causes.decided(drivers=["w1"])
    assert causes.own(1)
    assert causes.parents == {}
    assert causes.doubts[1].text == "w1 sends #1 while it serves #0: assumed to be its own"


def test_a_call_while_nothing_is_open_is_its_senders_own() -> None:
    workers = Workers(3)
    workers.call(0, 1, 10, 30, "app.a")
    workers.call(1, 2, 40, 50, "app.b")
    causes = workers.run().causes
    assert causes.of(1) == ((), True)
    assert causes.own(1)


def test_an_operator_calls_nobody() -> None:
    workers = Workers(3)
    workers.call(0, 1, 10, 60, "aten::add")
    workers.call(1, 2, 20, 50, "app.b")
    assert workers.run().causes.of(1) == ((), True)


def test_a_context_of_another_worker_is_its_requests() -> None:
    """w1 serves two requests at once; the context says which of them sent the call."""
    workers = Workers(3)
    workers.call(0, 1, 10, 60, "app.a", context=(5, 1))
    workers.call(2, 1, 12, 58, "app.a", context=(2 << 48, 1))
    workers.call(1, 2, 20, 50, "app.b", context=(5, 2))
    causes = workers.run().causes
    assert causes.parents == {2: 0}
    assert not causes.doubts
    assert causes.children == {0: (2,)}


def test_a_thread_or_a_callback_has_left_its_requests_context() -> None:
    workers = Workers(3)
    workers.call(0, 1, 10, 60, "app.a", context=(5, 1))
    workers.call(1, 2, 20, 50, "app.b")
    causes = workers.run().causes
    assert causes.of(1) == ((0,), False)
    assert causes.decided().own(1)


def test_several_requests_may_explain_a_call() -> None:
    workers = Workers(3)
    workers.call(0, 1, 10, 60, "app.a")
    workers.call(2, 1, 12, 58, "app.a")
    workers.call(1, 2, 20, 50, "app.b")
    (doubt,) = workers.run().causes.doubts.values()
    assert (doubt.message, doubt.parents, doubt.own) == (2, (1, 0), True)
    assert doubt.decided == 1
    assert doubt.text == "w1 sends #2 while it serves #1, #0: assumed to be part of #1"


def test_of_many_the_first_are_shown() -> None:
    doubt = Doubt(9, "w1", (1, 2, 3, 4, 5, 6), own=False)
    assert doubt.text == "w1 sends #9 while it serves #1, #2, #3, #4 and 2 more: assumed to be part of #1"


def test_nothing_is_told_of_what_was_not_captured() -> None:
    doubt = Doubt(9, "w1", (), own=True, own_likely=True)
    assert doubt.text == "w1 sends #9, maybe for a request that was not captured"
    assert doubt.decided is None


DRAWN = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.integers(0, 2),
        st.integers(0, 60),
        st.integers(2, 40),
        st.booleans(),
        st.sampled_from(["app.a", "app.b", "aten::add"]),
        st.sampled_from([None, 5, 1 << 48, 2 << 48]),
    ),
    max_size=14,
)


@settings(max_examples=examples(60), deadline=None)
@given(DRAWN)
def test_what_is_told_of_a_cause(drawn: list[tuple[int, int, int, int, bool, str, int | None]]) -> None:
    """A cause was being served by the sender, if not then, since a call before it on its connection; a call
    is its sender's own for certain only if nothing was."""
    workers = Workers(3)
    for n, (caller, callee, begin, length, answered, function, context) in enumerate(drawn):
        end = begin + length if answered else None
        inside = None if context is None else (context, n)
        workers.call(caller, callee, begin, end, function, context=inside)
    run = workers.run()
    calls = run.calls
    for index, call in calls.items():
        ends = call.caller, call.callee
        since = min(one.begin_ns for one in calls.values() if (one.caller, one.callee) == ends)
        open_since = {
            other.index: other.answered_ns
            for other in calls.values()
            if other.callee == call.caller
            and other is not call
            and other.arrived_ns <= call.begin_ns
            and (other.answered_ns is None or since <= other.answered_ns)
            and not str(other.function).startswith("aten::")
        }
        open_then = [one for one, end in open_since.items() if end is None or call.begin_ns <= end]
        parents, certain = run.causes.of(index)
        assert set(parents) <= open_since.keys()
        assert len(parents) <= 1 or not certain
        if certain and not parents:
            assert not open_then
        doubt = run.causes.doubts.get(index)
        assert doubt is None or doubt.decided is None or doubt.decided in parents
    _chains_end(run.causes.decided().parents)


def _chains_end(parents: Mapping[int, int]) -> None:
    for start in parents:
        at, steps = start, 0
        while at in parents:
            at, steps = parents[at], steps + 1
            assert steps <= len(parents)


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


# --- recordings on which causes once were wrong -------------------------------------------------------------

CONCURRENT = CAPTURES / "reports" / "concurrent"


def first_argument(call: Exchange) -> int:
    """The number of a call of relay.py."""
    pickle = call.request.facts.pickle
    udf = None if pickle is None else python_udf(pickle.root)
    assert udf is not None
    number = next(iter(children(udf.args)))
    assert isinstance(number, int)
    return number


@pytest.mark.parametrize("number", [1, 2, 3])
def test_calls_that_carry_the_number_of_their_request(number: int) -> None:
    """Eight at once: `relay(i, x)` calls `leaf(i, x)`."""
    calls, causes = causes_of(CONCURRENT / f"relay_plain{number}.pcap.gz")
    ours = {
        name: [c for c in calls.values() if str(c.function).endswith(f".{name}")]
        for name in ("relay", "leaf")
    }
    asked = {first_argument(call): call.index for call in ours["relay"]}
    assert len(ours["leaf"]) == len(asked) == 8
    for call in ours["leaf"]:
        assert causes.of(call.index) == ((asked[first_argument(call)],), True)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_fetches_of_an_rref_that_one_request_brought(number: int) -> None:
    """`second(m, r)` fetches r, which no other call has."""
    calls, causes = causes_of(CONCURRENT / f"chain_ctx{number}.pcap.gz")
    bringers = {
        fork.rref_id: call.index
        for call in calls.values()
        for fork in call.request.facts.forks
        if str(call.function).endswith(".second") and call.callee == "worker2"
    }
    fetches = [c for c in calls.values() if c.caller == "worker2" and c.kind in FETCHES]
    assert len(fetches) == 6
    for fetch in fetches:
        command = fetch.request.rpc.command
        assert isinstance(command, PythonRRefFetchCall)
        assert causes.of(fetch.index) == ((bringers[command.rref_id.to_value()],), True)


@pytest.mark.parametrize("name", ["shared1.pcap.gz", "shared2.pcap.gz"])
def test_nobody_but_the_driver_calls(name: str) -> None:
    calls, causes = causes_of(CONCURRENT / name)
    for call in calls.values():
        if call.kind in GENERAL and not call.control:
            assert call.caller == "worker0"
            assert causes.of(call.index) == ((), True)

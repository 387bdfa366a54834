"""The critical path: no gap, no overlap, and what the workers print lies on the right part of it."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise

import pytest

from rpcinspect.run.critical_path import Segment, critical_path
from rpcinspect.run.run import RunModel
from tests.checks.runs import traced, workload_trace
from tests.places import content, recorded
from tests.truth import CLOCK_NS, workload

NAMES = ["basic_chain", "bwd_boom", "ctx_crowd", "param_detach", "ps_race", "rref_relay", "profiled_legacy"]


@pytest.mark.parametrize("name", NAMES)
def test_segments_cover_the_duration_of_every_context(name: str) -> None:
    trace = workload_trace(name)
    assert trace.graphs
    for graph in trace.graphs:
        path = trace.critical_path(graph)
        assert path[0].begin_ns == graph.begin_ns
        assert path[-1].end_ns == graph.end_ns
        assert all(a.end_ns == b.begin_ns for a, b in pairwise(path))
        assert all(segment.took_ns > 0 for segment in path)
        assert {segment.worker for segment in path} <= set(graph.workers)


def test_a_chain_of_calls_is_followed_to_its_last_worker() -> None:
    trace = workload_trace("bwd_boom")
    (graph,) = trace.graphs
    forward = [s for s in trace.critical_path(graph) if s.what in ("bwd_boom.relay", "bwd_boom.explode")]
    assert [(s.kind, s.worker) for s in forward] == [
        ("request", "worker0"),
        ("busy", "worker2"),
        ("request", "worker2"),
        ("busy", "worker1"),
        ("answer", "worker1"),
        ("busy", "worker2"),
        ("answer", "worker2"),
    ]
    (run,) = workload("bwd_boom").of("run", function="bwd_boom.explode")
    assert forward[3].begin_ns - CLOCK_NS <= run["time_ns"] <= forward[3].end_ns


def test_a_function_waits_until_the_rrefs_it_is_given_are_confirmed() -> None:
    """The truth says when each call of the function began; until then its worker did not work for it."""
    trace = workload_trace("pairs/base")
    began = [run["time_ns"] for run in workload("pairs/base").of("run", function="training.forward")]
    waited = 0
    for graph in trace.graphs:
        path = trace.critical_path(graph)
        for segment in path:
            if segment.kind == "answer" and segment.what == "RREF_FORK_REQUEST":
                forward = next(
                    s for s in path if s.what == "training.forward" and s.begin_ns == segment.end_ns
                )
                assert any(forward.begin_ns - CLOCK_NS <= time <= forward.end_ns for time in began)
                waited += 1
    assert waited == len(began)


def test_pauses_are_the_creators() -> None:
    trace = workload_trace("basic_chain")
    (graph,) = trace.graphs
    pauses = [segment for segment in trace.critical_path(graph) if segment.kind == "pause"]
    assert len(pauses) == 2  # between two calls, and before the pass
    assert {(pause.worker, pause.request) for pause in pauses} == {("worker0", None)}
    (backward,) = workload("basic_chain").of("backward")
    assert pauses[1].begin_ns - CLOCK_NS <= backward["time_ns"] <= pauses[1].end_ns


def test_a_call_that_is_never_answered_lasts_to_the_end() -> None:
    trace = workload_trace("bwd_boom")
    (graph,) = trace.graphs
    calls = [call for call in trace.exchanges.calls if call.function == "bwd_boom.relay"]
    (relay,) = calls
    before = relay.answered_ns, relay.end_ns
    relay.answered_ns = relay.end_ns = None
    try:
        path = critical_path(graph, calls, trace.waiting, trace.passes)
    finally:
        relay.answered_ns, relay.end_ns = before
    assert [segment.kind for segment in path] == ["request", "unanswered"]
    assert path[-1].end_ns == graph.end_ns


def works_ms(run: RunModel, context_id: int) -> Counter[str]:
    """Milliseconds of the path by who works, or waits for something that is no call."""
    (graph,) = run.graphs_of(context_id)
    told: Counter[str] = Counter()
    for part in run.critical_path(graph):
        if part.kind not in ("request", "answer"):
            told[part.worker] += part.took_ns / 1e6  # type: ignore[assignment]
    return told


@pytest.mark.parametrize("context_id", [1 << 48, (1 << 48) + 1, (1 << 48) + 2])
def test_a_gradient_that_comes_back_was_worked_on_elsewhere(context_id: int) -> None:
    """The job prints that each pass of ps takes some 250 ms; trainer does next to nothing."""
    run = traced(recorded("reports/latency/backward_elsewhere.pcap"))
    told = works_ms(run, context_id)
    assert told["ps"] >= 250
    if context_id != 1 << 48:  # the first one warms up
        assert told["trainer"] < 10


SLACK_MS = 25
"""What a worker did beside sleeping, on a host with more to do."""
SLEPT = {
    1: {"w1": 80},  # w2 and main sleep meanwhile
    2: {"main": 50, "w1": 10, "w2": 35},  # the first call of w1 is over before that of w2
    3: {"w1": 15, "w2": 40},
    4: {"w1": 30, "w2": 45},
    5: {"w1": 30, "w2": 40},
    6: {"main": 30, "w1": 110, "w2": 105},  # main sleeps 20 more once the last message has come
}
"""Of the job's contexts where it slept, one after another; the first is the last with a warm-up."""


def test_the_job_slept_as_long() -> None:
    slept: dict[int, Counter[str]] = {}
    for line in map(json.loads, content("reports/latency/waits.truth").splitlines()):
        if "job" in line:
            its = slept.setdefault(-1 if line["context_id"] is None else line["context_id"], Counter())
        else:
            its[line["worker"]] += line["ms"]
    assert slept[1] == {"w1": 80, "w2": 30, "main": 20}
    assert slept[2] == {"w1": 20, "w2": 35, "main": 50}
    assert slept[6] == {"w1": 110, "w2": 105, "main": 50}
    assert all(slept[context] == SLEPT[context] for context in (3, 4, 5))


@pytest.mark.parametrize("context_id", SLEPT)
def test_time_is_of_whom_others_wait_for(context_id: int) -> None:
    told = works_ms(traced(recorded("reports/latency/waits.rpclog")), context_id)
    for worker in ("main", "w1", "w2"):
        slept = SLEPT[context_id].get(worker, 0)
        assert slept <= told[worker] <= slept + SLACK_MS, worker


def beside() -> dict[int, tuple[str, Counter[str]]]:
    """Context → the job, and for how long each worker says that it slept in it."""
    found: dict[int, tuple[str, Counter[str]]] = {}
    for line in map(json.loads, content("reports/latency/beside.truth").splitlines()):
        if "job" in line:
            found[line["context_id"]] = line["job"], Counter()
            its = found[line["context_id"]][1]
        elif "ms" in line and found:
            its[line["worker"]] += line["ms"]
    return found


CERTAIN = {
    "at_once": {"main": 10, "w1": 70, "w2": 40},  # w2 sleeps 30 more, less than w1 meanwhile
    "late": {"main": 70, "w2": 20},  # while w1 sleeps 30, main may be idle, and is not
    "first": {"main": 60, "w1": 10},  # the same of w2, for 50
    "left": {"main": 20, "w2": 40},  # w1 goes on for 90 when main has left
    "made": {"main": 100, "w2": 20},  # nobody waits for the 40 of w1
    "given": {"w1": 60, "w2": 20},  # w2 sleeps 20 more, before w1 is done
    "unasked": {"w1": 50},
    "thread": {},
    "callback": {},
    "own_callback": {"w1": 8},
}
"""Milliseconds by who slept, of what can be known. What else a context consists of is not certain."""
DOUBTED = {"late": 30, "first": 50, "unasked": 30, "thread": 70, "callback": 90, "own_callback": 90}
BUSY = ("busy", "pause")


def test_the_job_that_does_not_always_wait_slept_as_long() -> None:
    slept = dict(beside().values())
    assert slept["at_once"] == {"main": 10, "w1": 70, "w2": 70}
    assert slept["late"] == {"main": 100, "w1": 30, "w2": 20}
    assert slept["first"] == {"main": 90, "w1": 30, "w2": 50}
    assert slept["left"]["main"] == 20
    assert slept["made"] == {"main": 100, "w1": 40, "w2": 20}
    assert slept["given"] == {"w1": 60, "w2": 40}
    assert slept["unasked"]["w1"] == 80
    assert slept["thread"] == {"w1": 10, "w2": 60}
    assert slept["callback"] == {"w1": 40, "w2": 50}
    assert slept["own_callback"] == {"main": 40, "w1": 38, "w2": 20}


@pytest.mark.parametrize("context_id", range(11))
def test_what_no_message_tells_is_not_told_as_certain(context_id: int) -> None:
    job, _ = beside()[context_id]
    run = traced(recorded("reports/latency/beside.rpclog"))
    (graph,) = run.graphs_of(context_id)
    certain: Counter[str] = Counter()
    doubted = 0.0
    for part in run.critical_path(graph):
        if part.if_idle or part.or_waits_for:
            doubted += part.took_ns / 1e6
        elif part.kind in BUSY:
            certain[part.worker] += part.took_ns / 1e6  # type: ignore[assignment]
    for worker in ("main", "w1", "w2"):
        slept = CERTAIN[job].get(worker, 0)
        assert slept - 5 <= certain[worker] <= slept + SLACK_MS, worker
    assert DOUBTED.get(job, 0) <= doubted <= DOUBTED.get(job, 0) + SLACK_MS


def test_doubts_name_who_may_have_worked_and_what_may_have_been_waited_for() -> None:
    run = traced(recorded("reports/latency/beside.rpclog"))
    jobs = {job: context_id for context_id, (job, _) in beside().items()}

    def path(job: str) -> list[Segment]:
        (graph,) = run.graphs_of(jobs[job])
        return [part for part in run.critical_path(graph) if part.took_ns > 3_000_000]

    def callees(part: Segment) -> list[str]:
        return [run.calls[index].callee for index in part.or_waits_for]

    assert [(part.worker, part.if_idle) for part in path("late")] == [
        ("w1", ("main",)),
        ("main", ()),
        ("w2", ()),
    ]
    assert [(part.worker, part.if_idle) for part in path("unasked")] == [("w2", ("w1",)), ("w1", ())]
    [threaded] = path("thread")
    assert (threaded.worker, threaded.if_idle, callees(threaded)) == ("w1", (), ["w2"])
    assert [callees(part) for part in path("callback")] == [[], ["w2"]]
    assert [callees(part) for part in path("own_callback")] == [[], ["w2"], []]
    left = path("left")[-1]
    assert (left.kind, left.worker) == ("outlasting", "w1")


def test_who_waits_for_a_call_that_is_never_answered_is_not_who_is_slow() -> None:
    trace = workload_trace("bwd_boom")
    (graph,) = trace.graphs
    calls = [c for c in trace.exchanges.calls if c.function in ("bwd_boom.relay", "bwd_boom.explode")]
    before = [(call, call.answered_ns, call.end_ns) for call in calls]
    for call in calls:
        call.answered_ns = call.end_ns = None
    try:
        path = critical_path(graph, calls, trace.waiting, trace.passes)
    finally:
        for call, answered_ns, end_ns in before:
            call.answered_ns, call.end_ns = answered_ns, end_ns
    assert [(s.kind, s.worker) for s in path] == [
        ("request", "worker0"),
        ("busy", "worker2"),
        ("request", "worker2"),
        ("unanswered", "worker1"),
    ]


def test_what_was_sent_for_nobody_knows_what_is_on_no_path() -> None:
    """A call of a worker that did not make the context, with two requests that may have led to it."""
    trace = workload_trace("bwd_boom")
    (graph,) = trace.graphs
    explode = next(c for c in trace.exchanges.calls if c.function == "bwd_boom.explode")
    waiting = {request: parent for request, parent in trace.waiting.items() if request != explode.index}
    path = critical_path(graph, trace.exchanges.calls, waiting, trace.passes)
    assert all(a.end_ns == b.begin_ns for a, b in pairwise(path))
    assert explode.index not in {segment.request for segment in path}
    assert (path[0].begin_ns, path[-1].end_ns) == (graph.begin_ns, graph.end_ns)

"""The critical path: no gap, no overlap, and what the workers print lies on the right part of it."""

from __future__ import annotations

from itertools import pairwise

import pytest

from rpcinspect.run.critical_path import critical_path
from tests.trace.runs import workload_trace
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
        path = critical_path(graph, calls, trace.waiting)
    finally:
        relay.answered_ns, relay.end_ns = before
    assert [segment.kind for segment in path] == ["request", "unanswered"]
    assert path[-1].end_ns == graph.end_ns

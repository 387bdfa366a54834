"""What is asked of a run as JSON Lines: `context` and `rref` lines are the contract's, and more."""

from __future__ import annotations

import json

from rpcinspect.run.closings import Closings
from rpcinspect.session.model import Worker
from rpcinspect.session.process_end import ProcessEnd
from rpcinspect.views.jsonl.lines import lines
from rpcinspect.views.questions.all import QUESTIONS
from rpcinspect.views.questions.contexts import context_json, graph_json
from rpcinspect.views.questions.disconnects import closings_json
from rpcinspect.views.questions.latency import latency_json
from rpcinspect.views.questions.profile import profile_json
from tests.checks.runs import traced, workload_trace
from tests.decoded import decode
from tests.places import recorded
from tests.truth import capture_of
from tests.views.graphs import every_kind


def test_contexts_have_what_decode_says_and_more() -> None:
    for name in ("ctx_crowd", "bwd_boom", "rref_relay"):
        told = list(QUESTIONS["contexts"].json(workload_trace(name)))
        plain = decode(capture_of(name)).of("context")
        assert len(told) == len(plain)
        for mine, theirs in zip(told, plain, strict=True):
            assert {key: mine[key] for key in theirs if key != "edges"} == {
                key: value for key, value in theirs.items() if key != "edges"
            }
            for edge, plain_edge in zip(mine["edges"], theirs["edges"], strict=True):
                assert {key: edge[key] for key in plain_edge} == plain_edge


def test_a_graph_is_its_context_its_other_messages_and_its_path() -> None:
    trace = workload_trace("bwd_boom")
    (graph,) = trace.graphs
    told = list(graph_json(graph, trace.critical_path(graph)))
    assert [line["kind"] for line in told[:1]] == ["context"]
    assert {line["kind"] for line in told[1:]} == {"passing", "segment"}
    segments = [line for line in told if line["kind"] == "segment"]
    assert sum(s["end_ns"] - s["begin_ns"] for s in segments) == told[0]["duration_ns"]


def test_every_exchange_and_group_has_a_line() -> None:
    latency = workload_trace("ps_race").latency
    told = [json.loads(line) for line in lines(latency_json(latency)).splitlines()]
    exchanges = [line for line in told if line["kind"] == "exchange"]
    assert [line["request"] for line in exchanges] == [timing.call.index for timing in latency.timings]
    groups = [line for line in told if line["kind"] == "latency"]
    assert [line["by"] for line in groups] == ["function"] * len(latency.functions) + ["pair"] * len(
        latency.pairs
    )
    assert sum(line["kind"] == "straggler" for line in told) == len(latency.stragglers)


def test_profiles_have_their_calls_and_their_rows() -> None:
    profiles = workload_trace("profiled_legacy").profiles
    told = [json.loads(line) for line in lines(profile_json(profiles)).splitlines()]
    calls = [line for line in told if line["kind"] == "profile"]
    rows = [line for line in told if line["kind"] == "profile_row"]
    assert [line["request"] for line in calls] == [profile.request for profile in profiles]
    assert sum(len(line["runs"]) for line in calls) == sum(row["calls"] for row in rows)
    names = {run["name"] for line in calls for run in line["runs"]}
    assert {row["name"] for row in rows} == names


def test_names_of_every_kind_are_json() -> None:
    told = context_json(every_kind())
    assert json.loads(lines(iter([told])))["workers"] == told["workers"]
    assert told["gradients_expected"] == 3
    assert told["gradients_came"] == 2
    assert told["zero_gradients"] == 1


def test_an_rref_line_is_the_contracts_and_more() -> None:
    told = list(QUESTIONS["rrefs"].json(workload_trace("rref_relay")))
    plain = decode(capture_of("rref_relay")).of("rref")
    assert [{key: mine[key] for key in theirs} for mine, theirs in zip(told, plain, strict=True)] == plain
    assert all(len(line["stories"]) == len(line["forks"]) for line in told)


def test_device_maps_have_their_pairs() -> None:
    told = list(QUESTIONS["devices"].json(workload_trace("devmap_cpu")))
    assert {line["kind"] for line in told} == {"device_map"}
    assert [["cpu", "cpu"]] in [line["used"] for line in told]
    assert all(line["line"] is None for line in told)


def test_closings_end_with_who_was_first() -> None:
    path = recorded("torch-suite/DistAutogradTest.test_backward_node_failure.pcap.gz")
    told = list(closings_json(traced(path).closings))
    assert [line["kind"] for line in told[:-1]] == ["departure"] * (len(told) - 1)
    assert told[-1]["first"] == "worker1"
    assert lines(iter(told)).count(b"\n") == len(told)


def test_closings_say_how_processes_ended() -> None:
    killed = Worker(
        name="w\udcff", id=1, group=0, addresses=(), ended=ProcessEnd(how="signal", signal="SIGKILL", pid=7)
    )
    last = list(closings_json(Closings(departures=(), first=None, open_pipes=0, ended=(killed,))))[-1]
    assert [(one["worker"], one["how"], one["signal"], one["pid"]) for one in last["ended"]] == [
        ("w\\xff", "signal", "SIGKILL", 7)
    ]

"""Answers as JSON Lines: a `context` line is the contract's, and more."""

from __future__ import annotations

import json

from rpcinspect.views.contract.jsonl import lines
from rpcinspect.views.contract.trace import contexts_json, graph_json, latency_json, profile_json
from tests.decoded import decode
from tests.trace.runs import workload_trace
from tests.truth import capture_of
from tests.views.graphs import every_kind


def test_contexts_have_what_decode_says_and_more() -> None:
    for name in ("ctx_crowd", "bwd_boom", "rref_relay"):
        told = list(contexts_json(workload_trace(name).graphs))
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
    assert [line["request"] for line in exchanges] == [timing.request for timing in latency.timings]
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
    (told,) = contexts_json([every_kind()])
    assert json.loads(lines(iter([told])))["workers"] == told["workers"]
    assert told["gradients_expected"] == 3
    assert told["gradients_came"] == 2
    assert told["zero_gradients"] == 1

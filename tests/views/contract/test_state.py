"""Remote references, device maps and ends of connections as JSON Lines."""

from __future__ import annotations

from rpcinspect.run.closings import Closings
from rpcinspect.session.ended import Ended
from rpcinspect.session.model import Worker
from rpcinspect.views.contract.jsonl import lines
from rpcinspect.views.contract.state import closings_json, device_maps_json, rrefs_json
from tests.decoded import decode
from tests.places import recorded
from tests.trace.runs import traced, workload_trace
from tests.truth import capture_of


def test_an_rref_line_is_the_contracts_and_more() -> None:
    told = list(rrefs_json(workload_trace("rref_relay").rrefs))
    plain = decode(capture_of("rref_relay")).of("rref")
    assert [{key: mine[key] for key in theirs} for mine, theirs in zip(told, plain, strict=True)] == plain
    assert all(len(line["stories"]) == len(line["forks"]) for line in told)


def test_device_maps_have_their_pairs() -> None:
    told = list(device_maps_json(workload_trace("devmap_cpu").device_maps))
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
        name="w\udcff", id=1, group=0, addresses=(), ended=Ended(how="signal", signal="SIGKILL", pid=7)
    )
    last = list(closings_json(Closings(departures=(), first=None, open_pipes=0, ended=(killed,))))[-1]
    assert [(one["worker"], one["how"], one["signal"], one["pid"]) for one in last["ended"]] == [
        ("w\\xff", "signal", "SIGKILL", 7)
    ]

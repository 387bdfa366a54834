"""Who left first: a test of PyTorch in which workers exit, and jobs that end in order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from rpcinspect.checks.wire_facts import ConnectionEnd
from rpcinspect.run.run import RunModel, open_run
from rpcinspect.session.model import Worker
from rpcinspect.session.process_end import ProcessEnd
from rpcinspect.tensorpipe.records import MessageOrigin
from tests.checks.runs import traced, workload_trace
from tests.places import recorded, recordings
from tests.replayer.talks import Workers
from tests.truth import CLOCK_NS, capture_of, workload

SUITE = recordings("torch-suite")
NODE_FAILURE = "DistAutogradTest.test_backward_node_failure"
"""Workers with odd ranks leave without a shutdown, the others keep calling them."""


def test_workers_that_leave_are_told_in_order() -> None:
    closings = traced(recorded(f"torch-suite/{NODE_FAILURE}.pcap.gz")).closings
    assert closings.first is not None
    assert [d.worker for d in closings.departures[:2]] == ["worker1", "worker3"]
    assert closings.first.worker == "worker1"
    assert closings.first.reset >= 1


@pytest.mark.parametrize(("hosts", "first"), [("1111", "w2"), ("1231", None)])
def test_by_clocks_that_nobody_compared_nobody_left_first(hosts: str, first: str | None) -> None:
    """w1 loses w2, and w0 loses w1, by the logs of their hosts."""
    talk = Workers(4)
    talk.call(0, 1, 20, None, "app.open")
    talk.call(1, 2, 21, None, "app.open")
    session, messages = talk.heard()
    ends = [
        ConnectionEnd(
            flow=str(pipe.flow),
            begin_ns=0,
            last_ns=99,
            by_client=False,
            how="closed",
            time_ns=60 - pipe.number,
        )
        for pipe in session.pipes
    ]
    for pipe in session.pipes:
        pipe.origin = MessageOrigin.LOG
    apart = [replace(one, addresses=(f"10.0.0.{hosts[int(one.label[1:])]}:9",)) for one in session.workers]
    closings = RunModel(replace(session, workers=tuple(apart)), messages, ends=ends).closings
    assert (None if closings.first is None else closings.first.worker) == first
    assert closings.several_clocks == (first is None)


def test_what_was_in_flight_are_the_calls_that_fail() -> None:
    trace = traced(recorded(f"torch-suite/{NODE_FAILURE}.pcap.gz"))
    first = trace.closings.first
    assert first is not None
    open_calls = [call for call in trace.exchanges.calls if call.answer is None]
    to_first = {call.index for call in open_calls if call.callee == first.worker}
    assert set(first.unanswered) == to_first
    assert {call.function for call in open_calls if call.callee == first.worker} == {
        "torch.testing._internal.dist_utils.noop"
    }


@pytest.mark.parametrize("path", SUITE, ids=lambda path: path.name.partition(".pcap")[0])
def test_no_other_test_of_pytorch_has_a_worker_that_leaves_early(path: Path) -> None:
    first = traced(path).closings.first
    assert (first is not None) == (NODE_FAILURE in str(path))


@pytest.mark.parametrize("name", ["basic_chain", "ctx_crowd", "rref_relay", "ps_race", "bwd_boom"])
def test_jobs_that_shut_down_leave_nothing_in_flight(name: str) -> None:
    closings = workload_trace(name).closings
    assert closings.first is None
    assert closings.departures
    assert closings.open_pipes == 0
    assert all(d.unanswered == () == d.waiting for d in closings.departures)
    times = [d.time_ns for d in closings.departures]
    assert times == sorted(times)


def test_every_end_is_told_under_both_names_of_its_flow() -> None:
    with open_run(str(capture_of("basic_chain"))) as opened:
        ends = opened.ends
    flows = {end.flow: end for end in ends}
    for end in ends:
        a, b = end.flow.split(">")
        other = flows[f"{b}>{a}"]
        assert other.by_client != end.by_client
        assert (other.time_ns, other.how) == (end.time_ns, end.how)


def test_without_ends_nobody_left() -> None:
    with open_run(str(capture_of("basic_chain"))) as opened:
        closings = RunModel(opened.session, opened.messages).closings
    assert closings.departures == ()
    assert closings.open_pipes == len(opened.session.pipes)


@pytest.mark.parametrize("name", ["faults/dies", "faults/unused_result"])
def test_the_first_that_left_is_the_first_that_prints_it(name: str) -> None:
    left = workload(name).of("left")
    trace = workload_trace(name)
    first = trace.closings.first
    assert first is not None
    assert first.worker == left[0]["worker"]
    assert first.time_ns >= left[0]["time_ns"] - CLOCK_NS
    waiting = workload(name).of("died", "backward-error")
    assert {trace.calls[index].caller for index in first.unanswered} == {event["worker"] for event in waiting}


def test_processes_are_told_in_the_order_of_their_ends() -> None:
    with open_run(str(capture_of("basic_chain"))) as opened:
        session, ends = opened.session, (None, 9, 5)
        workers = tuple(
            Worker(name=f"w{n}", id=n, group=0, addresses=(), ended=ProcessEnd(how="exit", time_ns=time_ns))
            for n, time_ns in enumerate(ends)
        )
        other = Worker(name="w3", id=3, group=0, addresses=())
        run = RunModel(replace(session, workers=(*workers, other)), opened.messages)
    assert [worker.name for worker in run.closings.ended] == ["w2", "w1", "w0"]


KILLED = ProcessEnd(how="signal", signal="SIGKILL", time_ns=50)
FAILED = ProcessEnd(how="exit", status=1, time_ns=60)
WELL = ProcessEnd(how="exit", status=0, time_ns=10)


@pytest.mark.parametrize(
    ("ends", "first"),
    [
        ((FAILED, KILLED, WELL), "w1"),
        ((FAILED, replace(KILLED, time_ns=None), WELL), None),
        ((FAILED, ProcessEnd(how="unknown"), WELL), None),
        ((FAILED, ProcessEnd(how="unknown", time_ns=50), WELL), None),
        ((KILLED, ProcessEnd(how="unknown", time_ns=60), WELL), "w0"),
        ((FAILED, ProcessEnd(how="running"), WELL), "w0"),
        ((FAILED, replace(WELL, time_ns=50), WELL), "w1"),
        ((WELL, None, None), None),
    ],
)
def test_the_first_whose_process_ended_badly(ends: Sequence[ProcessEnd | None], first: str | None) -> None:
    talk = Workers(3)
    talk.call(0, 1, 20, 30, "app.answered")
    talk.call(0, 1, 40, None, "app.open")
    talk.call(0, 1, 55, None, "app.too_late")
    session, messages = talk.heard()
    workers = [Worker(name=f"w{n}", id=n, group=0, addresses=(), ended=end) for n, end in enumerate(ends)]
    told = RunModel(replace(session, workers=tuple(workers)), messages).closings.first_ended
    assert (None if told is None else told.worker.name) == first
    if first == "w1":
        assert told is not None
        assert told.unanswered == (2,)
    apart = [replace(worker, addresses=(f"10.0.0.{worker.id}:9",)) for worker in workers if worker.ended]
    told = RunModel(replace(session, workers=tuple(apart)), messages).closings.first_ended
    assert told is None or len(apart) == 1  # several clocks, which nobody compared

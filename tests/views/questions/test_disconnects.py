"""Who left first, on a terminal."""

from __future__ import annotations

from msgspec.structs import replace

from rpcinspect.run.closings import Closings, EndedWorker
from rpcinspect.session.model import Worker
from rpcinspect.session.process_end import ProcessEnd
from rpcinspect.views.questions.disconnects import QUESTION
from tests.checks.runs import traced, workload_trace
from tests.cli.runner import visible
from tests.places import recorded
from tests.views.graphs import HOSTILE
from tests.views.opened import altered, told

FAILED = recorded("torch-suite/DistAutogradTest.test_backward_node_failure.pcap.gz")


def shown(closings: Closings) -> list[str]:
    run = altered(workload_trace("basic_chain"), closings=closings, start_ns=0)
    return told(QUESTION.show(run, False))


def test_the_first_that_left_is_named_with_what_it_left() -> None:
    closings = traced(FAILED).closings
    lines = shown(closings)
    assert [line.split()[1] for line in lines[1:4]] == [d.worker for d in closings.departures]
    assert lines[-1].startswith("worker1 left first, with 2 requests to it unanswered")


def test_one_that_did_not_wait_for_its_own_requests() -> None:
    first = traced(FAILED).closings.first
    assert first is not None
    alone = replace(first, unanswered=(), waiting=(3,))
    lines = shown(Closings(departures=(alone,), first=alone, open_pipes=0))
    assert lines[-1].startswith("worker1 left first, with 1 request of its own not answered yet: see its log")


def test_an_orderly_end_is_told_so() -> None:
    lines = shown(workload_trace("basic_chain").closings)
    assert lines[-1] == "no worker disconnected with a request pending"


def test_ends_that_were_not_captured() -> None:
    assert shown(Closings(departures=(), first=None, open_pipes=2)) == ["the end of 2 pipes was not captured"]
    assert shown(Closings(departures=(), first=None, open_pipes=0)) == ["no pipe was seen"]


def test_captured_names_are_harmless() -> None:
    closings = traced(FAILED).closings
    assert closings.first is not None
    hostile = replace(closings.first, worker=HOSTILE, unanswered=tuple(range(9)))
    lines = shown(Closings(departures=(hostile,), first=hostile, open_pipes=0))
    assert visible("\n".join(lines))
    assert "#5 and 3 more" in lines[1]


def test_how_processes_ended() -> None:
    def worker(name: str, ended: ProcessEnd) -> Worker:
        return Worker(name=name, id=None, group=0, addresses=(), ended=ended)

    killed = ProcessEnd(how="signal", signal="SIGKILL", time_ns=2_000_000_000, oom_kills=2)
    its = (worker(HOSTILE, killed), worker("worker0", ProcessEnd(how="unknown")))
    lines = shown(Closings(departures=(), first=None, open_pipes=2, ended=its))
    assert visible("\n".join(lines))
    assert lines[0] == "the end of 2 pipes was not captured"
    assert "  2.000000  killed by SIGKILL" in lines[2]
    assert lines[2].endswith(
        "killed by SIGKILL; the kernel killed 2 processes of the job's memory group for lack of memory"
    )
    assert lines[3].split() == ["worker0", "unknown"]


def test_several_clocks_are_no_order() -> None:
    closings = replace(traced(FAILED).closings, first=None, several_clocks=True)
    assert shown(closings)[-1] == (
        "which worker left first is not known: nobody compared the clocks of their hosts"
    )


def test_who_ended_first_where_no_packet_tells() -> None:
    killed = ProcessEnd(how="signal", signal="SIGKILL", time_ns=2_000_000_000)
    worker = Worker(name=HOSTILE, id=None, group=0, addresses=(), ended=killed)
    lines = shown(
        Closings(
            departures=(),
            first=None,
            open_pipes=2,
            ended=(worker,),
            first_ended=EndedWorker(worker=worker, unanswered=(4,)),
        )
    )
    assert visible("\n".join(lines))
    assert lines[-1].endswith(
        " was the first whose process ended badly: killed by SIGKILL, with 1 request to it unanswered; "
        "see its log"
    )

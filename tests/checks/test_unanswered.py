"""Requests that never got an answer, and those of which nothing can be said."""

from __future__ import annotations

import pytest

from rpcinspect.checks.wire_facts import WireFacts
from rpcinspect.rpc.command import CleanupAutogradContextReq, RRefUserDelete
from rpcinspect.rpc.types import GloballyUniqueId
from tests.checks.talks import SECOND, closed, codes, findings, of_capture, of_path
from tests.places import recorded
from tests.replayer.talks import Workers
from tests.truth import workload


def usual(workers: Workers) -> None:
    """Calls that take a millisecond."""
    for n in range(20):
        workers.call(0, 1, n * SECOND // 100, n * SECOND // 100 + SECOND // 1000)


def flow(workers: Workers, pipe: int, *, answers: bool = False) -> str:
    there = workers.pipes[pipe].flow
    return str(there.reversed if answers else there)


def test_a_worker_that_dies_while_it_serves() -> None:
    _, found = of_capture("faults/dies")
    [finding] = found
    assert (finding.code, finding.severity) == ("unanswered-request", "error")
    assert finding.workers == ("worker0", "worker1")
    assert "faults.leave" in finding.text
    assert finding.text.endswith(": it closed the connection first.")
    assert "log of worker1" in (finding.remedy or "")


@pytest.mark.parametrize("name", ["basic_chain", "rref_relay", "faults/tidy", "reinit"])
def test_runs_that_end_well(name: str) -> None:
    assert all(finding.code != "unanswered-request" for finding in of_capture(name)[1])


def test_a_caller_that_does_not_wait() -> None:
    """The callee is not to blame for what its caller closed."""
    workers = Workers(2)
    usual(workers)
    workers.call(0, 1, SECOND, None, "app.f")
    over = WireFacts(ends=closed(flow(workers, 1), by_client=True))
    [finding] = findings(workers, over, until=9 * SECOND)
    assert (finding.code, finding.severity) == ("unanswered-request", "error")
    assert finding.text.endswith("(app.f #40): w0 itself closed the connection first.")
    assert "log of w0" in (finding.remedy or "")


def test_workers_of_pytorch_that_leave_are_told_apart_from_those_that_are_left() -> None:
    """Ranks 1 and 3 exit at once, with their cleanup under way; the others call them until that fails."""
    path = recorded("torch-suite/DistAutogradTest.test_backward_node_failure.pcap.gz")
    found = [finding for finding in of_path(str(path))[1] if finding.code == "unanswered-request"]
    blamed = {finding.text.rpartition(": ")[2]: finding.workers for finding in found}
    assert len(found) == 4
    for rank in (1, 3):
        assert (
            blamed[f"worker{rank} itself left first, and nothing waits for the cleanup."][0]
            == f"worker{rank}"
        )
    assert blamed["it closed the connection first."][1] == "worker1"


def test_a_pass_that_can_not_be_answered_says_what_it_waits_for() -> None:
    """The callee's own result that nobody used: its answer is the forward message that lacks its gradient."""
    run = workload("faults/unused_result")
    (unused,) = run.of("fault")
    calls = [m for m in run.requests() if m["body"]["function"] == unused["function"]]
    answer = run.decoded.answer(calls[unused["call"]])
    assert answer is not None
    _, found = of_capture("faults/unused_result")
    [finding] = [f for f in found if f.code == "unanswered-request"]
    assert finding.text.endswith(
        f"; until then it waited for the gradient of #{answer['index']}, which never came."
    )
    assert "missing-gradient" in (finding.remedy or "")


def test_silence() -> None:
    workers = Workers(2)
    usual(workers)
    workers.call(0, 1, SECOND, None, "app.f")
    [finding] = findings(workers, until=6 * SECOND)
    assert (finding.code, finding.severity) == ("unanswered-request", "error")
    assert finding.messages == (40,)
    assert "w1 never answered 1 request of w0 (app.f #40): 5 s later, when the capture ends" in finding.text


def test_the_capture_ends_before_an_answer_was_due() -> None:
    workers = Workers(2)
    usual(workers)
    workers.call(0, 1, SECOND, None, "app.f")
    assert codes(findings(workers, until=SECOND + SECOND // 100)) == [("unanswered-request", "info")]


def test_a_function_that_always_takes_long() -> None:
    workers = Workers(2)
    usual(workers)
    workers.call(0, 1, SECOND, 3 * SECOND, "app.train")
    workers.call(0, 1, 4 * SECOND, None, "app.train")
    assert codes(findings(workers, until=9 * SECOND)) == [("unanswered-request", "info")]


def test_a_hole_in_the_answers_proves_nothing() -> None:
    workers = Workers(2)
    workers.call(0, 1, 0, None, "app.f")
    lost = WireFacts(damaged=frozenset({flow(workers, 1, answers=True)}))
    assert findings(workers, lost, until=9 * SECOND) == []
    elsewhere = WireFacts(damaged=frozenset({flow(workers, 2, answers=True)}))
    assert codes(findings(workers, elsewhere, until=9 * SECOND)) == [("unanswered-request", "error")]


@pytest.mark.parametrize(
    "request_",
    [CleanupAutogradContextReq(1), RRefUserDelete(GloballyUniqueId(0, 1), GloballyUniqueId(0, 2))],
    ids=["context", "rref"],
)
def test_clean_up_at_the_end_is_information(request_: CleanupAutogradContextReq) -> None:
    workers = Workers(2)
    usual(workers)
    workers.call(0, 1, SECOND, None, request_)
    over = WireFacts(ends=closed(flow(workers, 1)))
    found = [f for f in findings(workers, over, until=9 * SECOND) if f.code == "unanswered-request"]
    assert codes(found) == [("unanswered-request", "info")]
    assert "it left first" in found[0].text
    found = [f for f in findings(workers, until=9 * SECOND) if f.code == "unanswered-request"]
    assert codes(found) == [("unanswered-request", "error")]


def test_workers_that_wait_for_each_other() -> None:
    workers = Workers(3)
    usual(workers)
    workers.call(0, 1, SECOND, None, "app.f")
    workers.call(1, 2, SECOND + 10, None, "app.g")
    workers.call(2, 0, SECOND + 20, None, "app.h")
    first, _, _ = findings(workers, until=9 * SECOND)
    assert "they wait for each other: w0 → w1 → w2 → w0" in first.text
    assert first.workers == ("w0", "w1", "w2")


def test_a_worker_that_waits_itself() -> None:
    workers = Workers(3)
    usual(workers)
    workers.call(0, 1, SECOND, None, "app.f")
    workers.call(1, 2, SECOND + 10, None, "app.g")
    first, second = findings(workers, until=9 * SECOND)
    assert first.text.endswith("w1 itself waits for w2.")
    assert "waits for" not in second.text.removeprefix("w2 never answered")


def test_requests_alike_are_one_finding() -> None:
    workers = Workers(2)
    usual(workers)
    for n in range(6):
        workers.call(0, 1, SECOND + n, None, "app.f")
    [finding] = findings(workers, until=9 * SECOND)
    assert "6 requests of w0 (app.f #40, #41, #42 and 3 more)" in finding.text
    assert finding.messages == tuple(range(40, 46))

"""Send functions whose gradient never came, and those that need none."""

from __future__ import annotations

import pytest

from rpcinspect.checks.wire_facts import WireFacts
from rpcinspect.rpc.command import (
    CleanupAutogradContextReq,
    ExceptionResponse,
    PropagateGradientsReq,
    PropagateGradientsResp,
)
from rpcinspect.rpc.envelope import AutogradMetadata
from rpcinspect.session.model import Finding
from tests.checks.talks import SECOND, findings, of_capture, of_path
from tests.replayer.talks import Workers
from tests.truth import CAPTURES, workload

LATE = 9 * SECOND


def told(found: list[Finding], code: str = "missing-gradient") -> list[Finding]:
    return [finding for finding in found if finding.code == code]


def gradient(workers: Workers, sender: int, receiver: int, begin: int, message: int) -> None:
    command = PropagateGradientsReq(AutogradMetadata(1, message), (), False)
    workers.call(sender, receiver, begin, begin + 2, command, PropagateGradientsResp())


def clean_up(workers: Workers, begin: int) -> None:
    workers.call(0, 1, begin, begin + 2, CleanupAutogradContextReq(1))


def test_a_result_that_nobody_used() -> None:
    (truth,) = workload("faults/unused_result").of("fault")
    (hangs,) = workload("faults/unused_result").of("hangs")
    assert hangs["hangs"]
    calls = workload("faults/unused_result").requests()
    unused = [m["index"] for m in calls if m["body"]["function"] == truth["function"]][truth["call"]]
    session, found = of_capture("faults/unused_result")
    [finding] = told(found)
    assert finding.severity == "error"
    answer = session.messages.partner[int(session.order[unused])]
    assert finding.messages == (unused, int(session.index[answer]))
    assert finding.workers == ("worker0", "worker1")


def test_a_second_pass_in_one_context() -> None:
    """The first call's edges got their gradients in the first pass; the second one waits for them again."""
    run = workload("faults/second_pass")
    (truth,), (hangs,) = run.of("fault"), run.of("hangs")
    assert hangs["hangs"]
    session, found = of_capture("faults/second_pass")
    [finding] = [one for one in found if one.code == "missing-gradient"]
    (context,) = [one for one in session.contexts if one.context_id == truth["context_id"]]
    first_call = next(edge for edge in context.edges if edge.sender == "worker1")
    assert finding.severity == "error"
    assert finding.messages[0] == first_call.forward
    assert len(first_call.backward) == 1
    assert "ran another backward pass" in finding.text


def passed_twice(*, first_until: int | None = 30, again: bool) -> list[Finding]:
    """w0 calls w1 twice; each result gets a gradient, the second without an answer. `again`: the first result
    gets another one in the second pass."""
    workers = Workers(2)
    for message in (1, 2):
        workers.call(0, 1, 100 * message, 100 * message + 10, context=(7, message), grads=(0, 1))
        until = 100 * message + (first_until or 0) if message == 1 and first_until else None
        gradient = PropagateGradientsReq(AutogradMetadata(7, 1000 + message), (), True)
        workers.call(0, 1, 100 * message + 20, until, gradient, PropagateGradientsResp())
    if again:
        workers.call(
            0,
            1,
            240,
            250,
            PropagateGradientsReq(AutogradMetadata(7, 1001), (), True),
            PropagateGradientsResp(),
        )
    return [one for one in findings(workers, until=SECOND) if one.code == "missing-gradient"]


def test_who_got_none_in_the_second_pass() -> None:
    [finding] = passed_twice(again=False)
    assert "(w1 → w0: #1)" in finding.text
    assert passed_twice(again=True) == []
    assert passed_twice(first_until=None, again=False) == []  # it may be the same pass still


def test_a_call_after_the_pass_needs_none() -> None:
    """The third call of this run has an edge, too, and got no gradient."""
    session, found = of_capture("faults/used_result")
    (context,) = session.contexts
    assert [bool(edge.backward) for edge in context.edges] == [True] * 4 + [False] * 2
    assert found == []


def test_a_pass_that_failed_says_so() -> None:
    [finding] = told(of_capture("bwd_boom")[1])
    assert "the pass failed in #16, #17" in finding.text


def test_no_pass_no_gradient() -> None:
    workers = Workers(2)
    workers.call(0, 1, 0, 10, context=(1, 1), grads=(1, 1))
    clean_up(workers, 20)
    assert told(findings(workers, until=LATE)) == []


def half(workers: Workers) -> None:
    """Two calls, gradients for the first only."""
    workers.call(0, 1, 0, 10, context=(1, 1), grads=(1, 1))
    workers.call(0, 1, 20, 30, context=(1, 2), grads=(1, 1))
    gradient(workers, 0, 1, 40, 1001)
    gradient(workers, 1, 0, 50, 1)


def test_half_of_it() -> None:
    workers = Workers(2)
    half(workers)
    clean_up(workers, 60)
    [finding] = told(findings(workers, until=LATE))
    assert finding.messages == (2, 3)
    assert "2 edges of 4 got no gradient" in finding.text


def test_the_capture_ends_during_the_pass() -> None:
    workers = Workers(2)
    half(workers)
    assert told(findings(workers, until=100)) == []
    assert len(told(findings(workers, until=LATE))) == 1


@pytest.mark.parametrize(("sender", "receiver", "left"), [(0, 1, (2,)), (1, 0, (3,))])
def test_what_a_hole_may_have_held(sender: int, receiver: int, left: tuple[int, ...]) -> None:
    workers = Workers(2)
    half(workers)
    clean_up(workers, 60)
    hole = str(workers.pipes[2 * sender + receiver].flow)
    [finding] = told(findings(workers, WireFacts(damaged=frozenset({hole})), until=LATE))
    assert finding.messages == left


def test_a_request_that_failed_leaves_its_send_function_behind() -> None:
    session, found = of_capture("pairs/error_nested")
    dangling = told(found, "dangling-send")
    assert [(f.severity, f.workers) for f in dangling] == [
        ("error", ("worker0", "worker1")),
        ("error", ("worker1", "worker2")),
    ]
    columns = session.messages
    failed = {f for finding in found if finding.code == "error-response" for f in finding.messages}
    for finding in dangling:
        (request,) = finding.messages
        assert int(session.index[columns.partner[int(session.order[request])]]) in failed
    assert told(found) == []


def test_a_request_that_failed_waits_for_no_gradient() -> None:
    workers = Workers(2)
    workers.call(0, 1, 0, 10, "app.f", ExceptionResponse(b"boom"), context=(1, 1), grads=(1, 0))
    workers.call(0, 1, 20, 30, context=(1, 2), grads=(0, 1))
    gradient(workers, 0, 1, 40, 1002)
    clean_up(workers, 60)
    assert told(findings(workers, until=LATE)) == []


@pytest.mark.parametrize(
    ("context", "grads"), [(None, (1, 0)), ((1, 1), (0, 0))], ids=["no context", "no tensor with grad"]
)
def test_a_request_without_an_edge_leaves_nothing(
    context: tuple[int, int] | None, grads: tuple[int, int]
) -> None:
    workers = Workers(2)
    workers.call(0, 1, 0, 10, "app.f", ExceptionResponse(b"boom"), context=context, grads=grads)
    assert told(findings(workers, until=LATE), "dangling-send") == []
    workers.call(0, 1, 20, 30, "app.f", ExceptionResponse(b"boom"), context=(1, 2), grads=(1, 0))
    assert len(told(findings(workers, until=LATE), "dangling-send")) == 1


def test_a_log_of_one_host_of_two_lacks_what_the_other_sent() -> None:
    """The two hosts of one run, whose replay is identical: together their logs hold every gradient."""
    a, b = (str(CAPTURES / f"reports/job/two_{host}.rpclog.gz") for host in "ab")
    for logs in ((a,), (b,), (a, b)):
        session, found = of_path(*logs)
        assert session.contexts
        assert told(found) == []

"""Contexts and RRefs that nobody cleaned up, and those that were, or may still be."""

from __future__ import annotations

import pytest

from rpcinspect.checks.wire_facts import WireFacts
from rpcinspect.rpc.command import CleanupAutogradContextReq, PythonRemoteCall, RemoteRet, RRefUserDelete
from rpcinspect.rpc.types import GloballyUniqueId
from rpcinspect.session.model import Finding
from tests.checks.talks import SECOND, closed, findings, named, of_capture, of_path
from tests.places import recorded
from tests.replayer.talks import Workers, udf
from tests.truth import workload

RREF, FORK = GloballyUniqueId(0, 1), GloballyUniqueId(0, 2)


def told(found: list[Finding], code: str) -> list[Finding]:
    return [finding for finding in found if finding.code == code]


def test_a_context_that_was_never_left() -> None:
    (truth,) = workload("faults/leaks").of("fault", code="leaked-context")
    session, found = of_capture("faults/leaks")
    [finding] = told(found, "leaked-context")
    assert finding.severity == "warning"
    assert finding.workers == (truth["creator"], truth["left"])
    (context,) = [c for c in session.contexts if c.context_id == truth["context_id"]]
    assert finding.messages == tuple(edge.forward for edge in context.edges)


@pytest.mark.parametrize(
    "name", ["faults/tidy", "basic_chain", "ctx_crowd", "bwd_boom", "ps_race", "rref_relay"]
)
def test_runs_without_a_leak(name: str) -> None:
    _, found = of_capture(name)
    assert told(found, "leaked-context") == []
    assert told(found, "leaked-rref") == []


def calls_in_context() -> Workers:
    workers = Workers(3)
    workers.call(0, 1, 0, 90, context=(1, 1), grads=(1, 1))
    workers.call(1, 2, 10, 50, context=(1, 2), grads=(1, 1))
    return workers


def test_a_worker_that_was_forgotten() -> None:
    workers = calls_in_context()
    workers.call(0, 1, 100, 110, CleanupAutogradContextReq(1))
    [finding] = told(findings(workers, WireFacts(), *named(3), until=SECOND), "leaked-context")
    assert finding.workers == ("w0", "w2")
    workers.call(1, 2, 105, 115, CleanupAutogradContextReq(1))
    assert told(findings(workers, WireFacts(), *named(3), until=SECOND), "leaked-context") == []


def test_a_relay_that_left_is_the_cause() -> None:
    """w1 was to pass the cleanup on to w2."""
    workers = calls_in_context()
    died = WireFacts(ends=closed(str(workers.pipes[1 * 3 + 0].flow), by_client=True, at=200))
    [finding] = told(findings(workers, died, *named(3), until=9 * SECOND), "leaked-context")
    assert finding.workers == ("w0", "w2", "w1")
    assert "w1 was to pass it on" in finding.text
    assert finding.remedy is not None
    assert "dist_autograd.context" not in finding.remedy


def test_clean_ups_that_were_not_captured() -> None:
    """The log of one of two hosts: nothing that worker0 sent is in it, and what it sent cleaned up."""
    _, found = of_path(str(recorded("reports/job/two_b.rpclog")))
    assert told(found, "leaked-context") == []


def test_a_context_that_is_still_in_use_when_the_capture_ends() -> None:
    workers = calls_in_context()
    assert told(findings(workers, WireFacts(), *named(3), until=200), "leaked-context") == []
    assert len(told(findings(workers, WireFacts(), *named(3), until=SECOND), "leaked-context")) == 1


def test_a_worker_that_left_took_the_context_with_it() -> None:
    workers = calls_in_context()
    workers.call(0, 1, 100, 110, CleanupAutogradContextReq(1))
    soon, late = (over(workers, 1 * 3 + 2, at=at) for at in (SECOND // 100, SECOND))
    assert told(findings(workers, soon, *named(3), until=9 * SECOND), "leaked-context") == []
    assert len(told(findings(workers, late, *named(3), until=9 * SECOND), "leaked-context")) == 1


@pytest.mark.parametrize("name", ["test_backward_node_failure", "test_multiple_backward_with_errors"])
def test_workers_of_pytorch_that_leave_leak_nothing(name: str) -> None:
    """They are gone within milliseconds after their contexts' last message."""
    path = recorded(f"torch-suite/DistAutogradTest.{name}.pcap.gz")
    assert told(of_path(str(path))[1], "leaked-context") == []


def test_passes_of_pytorch_that_hang_leave_their_contexts_behind() -> None:
    """Each rank's pass waits for ten seconds in vain, and then the job ends."""
    path = recorded("torch-suite/DistAutogradTest.test_backward_unused_send_function.pcap.gz")
    found = told(of_path(str(path))[1], "leaked-context")
    assert sorted(finding.workers for finding in found) == [
        (f"worker{rank}", f"worker{(rank + 1) % 4}") for rank in range(4)
    ]


def test_a_clean_up_that_may_be_in_a_hole() -> None:
    workers = calls_in_context()
    workers.call(0, 1, 100, 110, CleanupAutogradContextReq(1))
    lost = WireFacts(damaged=frozenset({str(workers.pipes[1 * 3 + 2].flow)}))
    assert told(findings(workers, lost, *named(3), until=SECOND), "leaked-context") == []


def test_an_rref_that_was_never_dropped() -> None:
    (truth,) = workload("faults/leaks").of("fault", code="leaked-rref")
    session, found = of_capture("faults/leaks")
    [finding] = told(found, "leaked-rref")
    assert finding.severity == "warning"
    assert finding.workers == (truth["owner"], truth["holder"])
    (rref,) = session.rrefs
    assert list(rref.rref_id) == truth["rref"]["rref_id"]
    assert [list(fork.fork_id) for fork in rref.alive] == [truth["rref"]["fork_id"]]


def remote_call(*, deleted: bool = False) -> Workers:
    workers = Workers(2)
    call = PythonRemoteCall(
        tensors=(),
        serialized_py_obj=udf("app.make"),
        ret_rref_id=RREF,
        ret_fork_id=FORK,
        is_async_execution=False,
    )
    workers.call(0, 1, 0, 10, call, RemoteRet(RREF, FORK))
    if deleted:
        workers.call(0, 1, 20, 30, RRefUserDelete(RREF, FORK))
    return workers


def over(workers: Workers, *pipes: int, at: int = 1 << 62) -> WireFacts:
    return WireFacts(ends=closed(*(str(workers.pipes[pipe].flow) for pipe in pipes), at=at))


def test_forks_that_are_left_at_the_end() -> None:
    workers = remote_call()
    [finding] = told(findings(workers, over(workers, 1, 3), until=SECOND), "leaked-rref")
    assert finding.workers == ("w1", "w0")
    assert finding.messages == (0,)
    deleted = remote_call(deleted=True)
    assert told(findings(deleted, over(deleted, 1, 3), until=SECOND), "leaked-rref") == []


@pytest.mark.parametrize(
    "name", ["findings/enum_operator.pcap", "findings/ddp_rpc_part.pcap", "replay/part.pcap"]
)
def test_parts_of_jobs_leak_nothing(name: str) -> None:
    """Cut out of recordings of healthy jobs: connections end with the last message."""
    assert told(of_path(str(recorded(f"reports/{name}")))[1], "leaked-rref") == []


def test_an_rref_may_live_as_long_as_the_job() -> None:
    workers = remote_call()
    assert told(findings(workers, until=SECOND), "leaked-rref") == []
    assert told(findings(workers, over(workers, 1), until=SECOND), "leaked-rref") == []

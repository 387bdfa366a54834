"""What gradients, cleanups and the housekeeping of RRefs follow from."""

from __future__ import annotations

from rpcinspect.rpc.command import (
    CleanupAutogradContextReq,
    CleanupAutogradContextResp,
    PropagateGradientsReq,
    PropagateGradientsResp,
    PythonRemoteCall,
    RemoteRet,
    RRefAck,
    RRefUserDelete,
)
from rpcinspect.rpc.envelope import AutogradMetadata
from rpcinspect.rpc.types import GloballyUniqueId
from rpcinspect.tensorpipe.records import Visibility
from tests.replayer.planning.pickled import rref
from tests.replayer.talks import Workers, udf
from tests.run.told import ask, delete


def passed_on(*ways: tuple[int, int]) -> Workers:
    """Gradients of a context, one after the other, none answered before all are there."""
    workers = Workers(3)
    for n, (caller, callee) in enumerate(ways):
        request = PropagateGradientsReq(AutogradMetadata(0, n), (), False)
        workers.call(caller, callee, 10 * n, 100 + 10 * n, request, PropagateGradientsResp())
    return workers


def test_gradients_follow_from_gradients() -> None:
    """w0 begins a pass: w1 hands it on to w2, and w2's own gradients go back the same way."""
    causes = passed_on((0, 1), (1, 2), (2, 1), (1, 0)).run().causes
    assert causes.of(0) == ((), True)
    assert causes.of(1) == ((0,), True)
    assert causes.of(2) == ((1,), True)
    assert set(causes.of(3)[0]) == {0, 2}


def test_a_pass_may_be_its_beginners_although_gradients_come_back() -> None:
    causes = passed_on((0, 1), (1, 0), (0, 1), (1, 0)).run().causes
    assert causes.of(1) == ((0,), True)
    assert causes.doubts[2].own
    assert [causes.own(index) for index in range(4)] == [True, False, True, False]


def test_clean_up_follows_from_clean_up_except_at_the_creator() -> None:
    workers = Workers(3)
    workers.call(0, 1, 1, 4, "app.f", context=(7, 1))  # tells who worker 0 is
    for caller, callee, time in [(0, 1, 10), (1, 2, 30), (1, 0, 40), (2, 1, 50)]:
        request = CleanupAutogradContextReq(7)
        workers.call(caller, callee, time, time + 5, request, CleanupAutogradContextResp())
    causes = workers.run().causes
    assert [causes.of(index) for index in (2, 4, 6, 8)] == [
        ((), True),
        ((2,), True),
        ((2,), True),
        ((4,), True),
    ]


def test_a_delete_has_the_cause_of_the_call_that_made_the_fork() -> None:
    rref_id, fork = GloballyUniqueId(1, 1), GloballyUniqueId(1, 2)
    made = PythonRemoteCall(
        tensors=(),
        serialized_py_obj=udf("app.make"),
        ret_rref_id=rref_id,
        ret_fork_id=fork,
        is_async_execution=False,
    )
    workers = Workers(3)
    workers.call(0, 1, 10, 40, "app.a")
    workers.call(1, 2, 20, 30, made, RemoteRet(rref_id, fork))
    workers.call(1, 2, 70, 80, RRefUserDelete(rref_id, fork), RRefAck())  # long after the answer
    causes = workers.run().causes
    assert causes.of(1) == causes.of(4) == ((0,), False)


def test_a_delete_has_the_cause_of_the_request_that_brought_the_fork() -> None:
    workers = Workers(2)
    ask(workers, (0, 1), (10, 60), "a", rref(7, fork=8))
    delete(workers, 1, 500, 7, 8)
    assert workers.run().causes.of(2) == ((0,), True)


def test_a_delete_of_a_fork_that_nobody_has_seen_may_be_of_any_call_before() -> None:
    workers = Workers(2)
    ask(workers, (0, 1), (10, 60), "a", 1)
    delete(workers, 1, 500, 7, 8)
    assert workers.run().causes.of(2) == ((0,), False)


def test_who_began_a_pass_is_not_told_where_requests_are_missing() -> None:
    workers = passed_on((0, 1), (1, 2))
    for one in workers.pipes:
        one.visible = Visibility.NO_HANDSHAKE
    causes = workers.run().causes
    assert causes.of(0) == ((), False)

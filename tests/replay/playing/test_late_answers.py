"""Answers that a live worker may give only when a backward pass is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rpcinspect.replay.planning.model import PlannedSession
from rpcinspect.replay.planning.plan import PlanOptions, plan
from rpcinspect.replay.playing.late_answers import late_answers
from rpcinspect.replay.playing.schedule import Schedule
from rpcinspect.rpc.command import (
    ExceptionResponse,
    PropagateGradientsReq,
    PropagateGradientsResp,
    PythonRemoteCall,
    RemoteRet,
    RRefBackwardReq,
    RRefBackwardResp,
)
from rpcinspect.rpc.envelope import AutogradMetadata
from rpcinspect.rpc.types import GloballyUniqueId
from rpcinspect.run.exchanges import Exchange
from rpcinspect.run.run import Run
from tests.replay.talks import Workers, udf

CONTEXT = 7
RREF, FORK = GloballyUniqueId(0, 1), GloballyUniqueId(0, 2)


def gradient(edge: int) -> PropagateGradientsReq:
    return PropagateGradientsReq(AutogradMetadata(CONTEXT, edge), (), False)


def forward(workers: Workers, begin: int, edge: int) -> None:
    """w0 calls w1; the gradient of the answer has the edge 1000 + `edge`."""
    workers.call(0, 1, begin, begin + 5, context=(CONTEXT, edge), grads=(1, 1))


def backward(workers: Workers, caller: int, begin: int, end: int, edge: int) -> None:
    workers.call(caller, 1 - caller, begin, end, gradient(edge), PropagateGradientsResp())


class Played:
    """w0 is played; its messages are named by when they were sent."""

    def __init__(self, workers: Workers) -> None:
        session, messages = workers.heard()
        self.calls: Mapping[int, Exchange] = Run(session, messages).calls
        self.planned: PlannedSession
        (self.planned,) = plan(session, messages, PlanOptions(roles=("w0",), trust=True)).sessions
        self.schedule = Schedule(self.planned, self.calls)

    def ready(self) -> Sequence[int]:
        """What may be sent now."""
        found = []
        for due in self.schedule.ready(0.0):
            call = self.calls[due.step.message]
            found.append(call.begin_ns if due.step.action == "send" else call.answered_ns or 0)
        return sorted(found)

    def _call(self, begin: int) -> Exchange:
        (call,) = (call for call in self.calls.values() if call.begin_ns == begin)
        return call

    def answered(self, begin: int) -> Sequence[int]:
        call = self._call(begin)
        assert call.answer is not None
        self.schedule.answered(call.index)
        self.schedule.arrived(call.answer)
        return self.ready()

    def asked(self, begin: int) -> Sequence[int]:
        self.schedule.asked(self._call(begin).index)
        return self.ready()


def test_a_gradient_waits_for_no_answer_to_another() -> None:
    workers = Workers(2)
    for number, begin in enumerate((10, 20, 30), 1):
        forward(workers, begin, number)
    backward(workers, 0, 50, 90, 1001)  # w1 took it up first, and answered it last
    backward(workers, 0, 52, 60, 1002)
    backward(workers, 1, 70, 85, 1)
    backward(workers, 0, 75, 80, 1003)  # w0 sent it while it served #70
    workers.call(0, 1, 95, 99)
    played = Played(workers)
    assert played.ready() == [10]
    assert played.answered(10) == [20]
    assert played.answered(20) == [30]
    assert played.answered(30) == [50, 52]
    assert played.answered(50) == []  # now w1 took up #52 first
    assert played.asked(70) == [75, 84]
    assert played.answered(75) == []
    assert played.answered(52) == [95]


def test_another_pass_waits_for_the_answers_of_the_one_before() -> None:
    """Two passes over one graph, as `retain_graph` allows; together they would be one."""
    workers = Workers(2)
    forward(workers, 10, 1)
    forward(workers, 20, 2)
    for begin in (50, 70):
        backward(workers, 0, begin, begin + 10, 1001)
        backward(workers, 0, begin + 2, begin + 12, 1002)
    played = Played(workers)
    assert played.ready() == [10]
    assert played.answered(10) == [20]
    assert played.answered(20) == [50, 52]
    assert played.answered(52) == []
    assert played.answered(50) == [70, 72]


def test_a_gradient_that_fails_is_answered_in_its_time() -> None:
    workers = Workers(2)
    forward(workers, 10, 1)
    backward(workers, 0, 50, 60, 1001)
    workers.call(1, 0, 55, 70, gradient(1), ExceptionResponse(b"no"))
    played = Played(workers)
    assert played.ready() == [10]
    assert played.answered(10) == [50]
    assert played.asked(55) == []
    assert played.answered(50) == [69]


def test_a_backward_pass_may_begin_before_its_remote_object_is_announced() -> None:
    workers = Workers(2)
    forward(workers, 10, 1)
    made = PythonRemoteCall(
        tensors=(),
        serialized_py_obj=udf("app.loss"),
        ret_rref_id=RREF,
        ret_fork_id=FORK,
        is_async_execution=False,
    )
    workers.call(0, 1, 30, 40, made, RemoteRet(RREF, FORK), context=(CONTEXT, 2), grads=(1, 0))
    workers.call(0, 1, 32, 90, RRefBackwardReq(RREF, CONTEXT, False), RRefBackwardResp())
    backward(workers, 1, 50, 80, 2)
    backward(workers, 0, 55, 60, 1001)
    workers.call(0, 1, 95, 99)
    played = Played(workers)
    assert set(late_answers(played.calls).values()) == {CONTEXT}
    assert played.ready() == [10]
    assert played.answered(10) == [30, 32]
    assert played.asked(50) == [55, 79]  # the answer to #30 has not come
    assert played.answered(55) == []
    assert played.answered(30) == []
    assert played.answered(32) == [95]

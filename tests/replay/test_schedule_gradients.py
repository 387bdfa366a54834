"""Schedules of gradients: a live worker answers last the one that it took up first, be it another than in the
capture.
"""

from __future__ import annotations

from rpcinspect.causes.calls import read_exchanges
from rpcinspect.replay.plan import PlanOptions, plan
from rpcinspect.replay.schedule import Schedule
from rpcinspect.rpc.command import Command, PropagateGradientsReq, PropagateGradientsResp
from rpcinspect.rpc.envelope import AutogradMetadata
from tests.replay.talks import Workers

CONTEXT = 7
TAKEN = PropagateGradientsResp()


def gradient(edge: int, context: int = CONTEXT) -> PropagateGradientsReq:
    return PropagateGradientsReq(AutogradMetadata(context, edge), (), False)


class Talked:
    """w0 is played; messages are named by when they began."""

    def __init__(self) -> None:
        workers = Workers(2)
        workers.call(0, 1, 10, 20, context=(CONTEXT, 1), grads=(1, 1))
        workers.call(0, 1, 30, 40, context=(CONTEXT, 2), grads=(1, 1))
        workers.call(0, 1, 42, 48, context=(CONTEXT, 3), grads=(1, 1))
        self._gradient(workers, 0, 50, 90, 1001)  # taken up first, so it is answered last
        self._gradient(workers, 0, 52, 60, 1002)
        self._gradient(workers, 1, 70, 85, 1)
        self._gradient(workers, 0, 75, 80, 1003)  # w0 sends it while it serves #70
        workers.call(0, 1, 95, 99)
        session, messages = workers.heard()
        self.calls = read_exchanges(session, messages).by_index()
        (self.planned,) = plan(session, messages, PlanOptions(roles=("w0",), trust=True)).sessions
        self.schedule = Schedule(self.planned, self.calls)

    def _gradient(self, workers: Workers, caller: int, begin: int, end: int, edge: int) -> None:
        request: Command = gradient(edge)
        workers.call(caller, 1 - caller, begin, end, request, TAKEN)

    def ready(self) -> list[int]:
        """What may be sent now."""
        found = []
        for due in self.schedule.ready(0.0):
            call = self.calls[due.step.message]
            found.append(call.begin_ns if due.step.action == "send" else call.answered_ns or 0)
        return found

    def answered(self, begin: int) -> None:
        (call,) = (call for call in self.calls.values() if call.begin_ns == begin)
        assert call.answer is not None
        self.schedule.answered(call.index)
        self.schedule.arrived(call.answer)

    def asked(self, begin: int) -> None:
        (call,) = (call for call in self.calls.values() if call.begin_ns == begin)
        self.schedule.asked(call.index)


def test_a_gradient_waits_for_no_answer_to_another() -> None:
    talked = Talked()
    assert talked.ready() == [10]
    talked.answered(10)
    assert talked.ready() == [30]
    talked.answered(30)
    assert talked.ready() == [42]
    talked.answered(42)
    assert talked.ready() == [50, 52]
    talked.answered(50)  # w1 took up #52 first: its answer comes when everything else of the context is done
    assert talked.ready() == []
    talked.asked(70)
    assert set(talked.ready()) == {84, 75}
    talked.answered(75)
    assert talked.ready() == []
    talked.answered(52)
    assert talked.ready() == [95]

"""Open requests of a played worker behind which torch stands, and their events."""

from __future__ import annotations

import time

from rpcinspect.replay.agent.messages import made
from rpcinspect.replay.agent.open import OpenRequests
from rpcinspect.replay.peers.events import PipeLost, RequestArrived, ResponseArrived, Unanswered
from rpcinspect.replay.peers.loop import Loop
from rpcinspect.rpc.command import PythonCall, PythonResp

CALL, ANSWER = PythonCall(b"N.", False), made(PythonResp(b"N."))


def test_each_request_has_one_event() -> None:
    with Loop() as loop:
        requests = OpenRequests(loop, "w0")
        numbers = [requests.add("w1", CALL, None, 5.0)[0] for _ in range(3)]
        requests.answered(numbers[0], ANSWER, [b"x"])
        requests.answered(numbers[0], ANSWER)
        requests.lost(numbers[1], "gone")
        requests.drop(numbers[2])
        requests.asked("w1", 7, made(CALL), [])
        first, second, third = loop.wait(0.0)
    assert isinstance(first, ResponseArrived)
    assert (first.to, first.message.id, first.tensors) == ("w1", numbers[0], (b"x",))
    assert isinstance(second, PipeLost)
    assert (second.other, second.unanswered) == ("w1", (numbers[1],))
    assert isinstance(third, RequestArrived)
    assert (third.sender, third.message.id) == ("w1", 7)


def test_time_runs_out_unless_it_is_given_again() -> None:
    with Loop() as loop:
        requests = OpenRequests(loop, "w0")
        late, renewed, patient = (requests.add("w1", CALL, None, limit)[0] for limit in (1.0, 1.0, None))
        then = time.monotonic() + 1.5
        one = requests.get(renewed)
        assert one is not None
        one.deadline = 0.0
        requests.renew(renewed)
        one.deadline += 1.0
        requests.overdue(then)
        (event,) = loop.wait(0.0)
        assert isinstance(event, Unanswered)
        assert (event.message_id, event.timeout_s) == (late, 1.0)
        assert [n for n, _ in requests] == [renewed, patient]

"""Open requests of a played worker, and their events."""

from __future__ import annotations

import time

from msgspec.structs import replace

from rpcinspect.replayer.peers.loop import Loop, PipeLost, RequestArrived, ResponseArrived, Unanswered
from rpcinspect.replayer.peers.open_requests import OpenRequests
from rpcinspect.rpc.command import PythonCall, PythonResp
from rpcinspect.rpc.command_codec import to_message
from rpcinspect.rpc.message import RpcMessage


def call(number: int) -> RpcMessage:
    """A request of this number."""
    return replace(to_message(PythonCall(b"N.", False)), id=number)


def answer(number: int) -> RpcMessage:
    """An answer to the request of this number."""
    return replace(to_message(PythonResp(b"N.")), id=number)


def test_each_request_has_one_event() -> None:
    with Loop() as loop:
        requests = OpenRequests[None](loop, "w0")
        numbers = [requests.add("w1", 5.0, None) for _ in range(3)]
        assert requests.answered(answer(numbers[0]), [b"x"])
        assert not requests.answered(answer(numbers[0]))
        requests.lost("w1", "gone", (numbers[1],))
        requests.drop(numbers[2])
        requests.asked("w1", call(7))
        first, second, third = loop.wait(0.0)
    assert isinstance(first, ResponseArrived)
    assert (first.to, first.message.id, first.tensors) == ("w1", numbers[0], (b"x",))
    assert isinstance(second, PipeLost)
    assert (second.other, second.unanswered) == ("w1", (numbers[1],))
    assert isinstance(third, RequestArrived)
    assert (third.sender, third.message.id) == ("w1", 7)


def test_time_runs_out_unless_it_is_given_again() -> None:
    with Loop() as loop:
        requests = OpenRequests[None](loop, "w0")
        late, renewed, patient = (requests.add("w1", limit, None) for limit in (1.0, 1.0, None))
        then = time.monotonic() + 1.5
        one = requests.on()[renewed]
        one.deadline = 0.0
        requests.renew(renewed)
        one.deadline += 1.0
        requests.overdue(then)
        (event,) = loop.wait(0.0)
        assert isinstance(event, Unanswered)
        assert (event.message_id, event.timeout_s) == (late, 1.0)
        assert list(requests.on()) == [renewed, patient]


def test_an_answer_counts_on_its_own_pipe_only_or_once_it_is_late() -> None:
    with Loop() as loop:
        requests = OpenRequests[None](loop, "w0")
        first, second = requests.add("w1", 1.0, None, 1), requests.add("w2", 1.0, None, 2)
        assert not requests.answered(answer(first), pipe=2)
        assert requests.forget(2) == (second,)
        requests.overdue(time.monotonic() + 2.0)
        assert requests.answered(answer(first), pipe=1)
        assert not requests.answered(answer(first), pipe=1)
        silence, late = loop.wait(0.0)
    assert isinstance(silence, Unanswered)
    assert isinstance(late, ResponseArrived)
    assert (late.to, late.late) == ("w1", True)

"""A player against scripted live workers: those that do as captured, and those that do anything else."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rpcinspect.equality.rules import Rules
from rpcinspect.replayer.peers.loop import PeerEvent, PeerLimits, RequestArrived, ResponseArrived
from rpcinspect.replayer.peers.open_requests import OpenRequests
from rpcinspect.replayer.peers.peer import Peer
from rpcinspect.replayer.playing import timeouts
from rpcinspect.replayer.playing.matching import NOTHING_LIKE_IT
from rpcinspect.replayer.playing.outcome import AMBIGUOUS, AMBIGUOUS_SENDER
from rpcinspect.replayer.playing.translate import LiveRecords
from rpcinspect.replayer.playing.uncaptured import NOT_THERE
from rpcinspect.replayer.workers.process_exit import EarlyExit, Exit
from rpcinspect.rpc.command import (
    CleanupAutogradContextReq,
    CleanupAutogradContextResp,
    Command,
    ExceptionResponse,
    PropagateGradientsReq,
    PropagateGradientsResp,
    PythonCall,
    PythonRemoteCall,
    PythonResp,
    PythonRRefFetchCall,
    PythonRRefFetchRet,
    RemoteRet,
    RRefAck,
    RRefUserDelete,
)
from rpcinspect.rpc.envelope import AutogradMetadata, RpcWithAutograd
from rpcinspect.rpc.message import NO_TENSORS, MessageType, RpcMessage
from rpcinspect.rpc.types import GloballyUniqueId, pack_id
from tests.replayer.scripted import STORAGE, Played, Scripted, captured_answer, message_of, planned_of, play
from tests.replayer.talks import NONE, Workers, udf
from tests.session.records import gradient
from tests.thorough import examples

Does = Callable[[Scripted, RequestArrived], None]

SEGFAULT = EarlyExit(who="the live worker w1", worker="w1", exit=Exit(-11))

TEXT = b"\x80\x02X\x03\x00\x00\x00%sq\x00."
"""A pickle of three letters."""


def text(letters: str) -> PythonResp:
    return PythonResp(TEXT % letters.encode())


def as_captured(workers: Workers) -> Does:
    """Answers what was answered, and asks for nothing."""

    def does(worker: Scripted, request: RequestArrived) -> None:
        answer = captured_answer(workers, request)
        if answer is not None:
            worker.peer.answer(request, answer, [STORAGE] * answer.tensor_table.count(b"FloatStorage"))

    return does


def function(request: RequestArrived) -> bytes:
    """The last letter of the called function's name."""
    return request.message.payload.partition(b"app\n")[2][:1]


def simple(count: int = 3) -> Workers:
    """w0 calls `app.f`, `app.g` … of w1, one after the other."""
    workers = Workers(2)
    for n in range(count):
        workers.call(0, 1, 100 * n, 100 * n + 50, f"app.{'fghijkl'[n]}", text(f"{n:03}"))
    return workers


def beside(count: int = 3) -> Workers:
    """The same, all at once."""
    workers = Workers(2)
    for n in range(count):
        workers.call(0, 1, n, 100 + n, f"app.{'fghijkl'[n]}", text(f"{n:03}"))
    return workers


def back(*, gap: int = 10) -> Workers:
    """w0 calls `f` of w1, which calls `g` and `h` of w0; then w0 calls `k`."""
    workers = Workers(2)
    workers.call(0, 1, 0, 100, "app.f", text("fff"))
    workers.call(1, 0, gap, 20 + gap, "app.g", text("ggg"))
    workers.call(1, 0, 30 + gap, 40 + gap, "app.h", text("hhh"))
    workers.call(0, 1, 200, 300, "app.k", text("kkk"))
    return workers


def steps_of(played: Played, *letters: str) -> list[str | None]:
    """Results of the steps that call these functions."""
    by_function = {played.calls[m].function: one.result for m, one in played.steps.items()}
    return [by_function[f"app.{letter}"] for letter in letters]


# --- as captured --------------------------------------------------------------------------------------------


def test_a_worker_that_answers_as_captured() -> None:
    workers = simple()
    done = itertools.count()
    played = play(workers, as_captured(workers), done=lambda _: next(done) and None)
    assert played.results() == ["identical"] * 3
    assert next(done) == 3
    for one in played.progress.all_outcomes():
        assert one.same_payload
        assert one.latency_s is not None
        assert one.differences == ()
    assert [function(request) for request in played.live["w1"].requests] == [b"f", b"g", b"h"]
    assert played.progress.failure is None
    assert played.progress.inbound == []


def test_a_worker_that_calls_back_gets_the_captured_answers() -> None:
    workers = back()

    def does(worker: Scripted, request: RequestArrived) -> None:
        if function(request) == b"f":
            worker.ask("w0", PythonCall(udf("app.g"), False))
            worker.ask("w0", PythonCall(udf("app.h"), False))
        as_captured(workers)(worker, request)

    played = play(workers, does)
    assert set(played.results()) == {"identical"}
    assert [message.payload for message in played.live["w1"].answers] == [
        message_of(text("ggg")).payload,
        message_of(text("hhh")).payload,
    ]
    assert [one.result for one in played.progress.inbound] == ["identical", "identical"]


def test_answers_come_in_another_order() -> None:
    workers = beside()
    waiting: list[RequestArrived] = []

    def does(worker: Scripted, request: RequestArrived) -> None:
        waiting.append(request)
        if len(waiting) == 3:
            for one in reversed(waiting):
                as_captured(workers)(worker, one)

    assert play(workers, does).results() == ["identical"] * 3


# --- other answers ------------------------------------------------------------------------------------------


def test_answers_that_are_swapped_are_different() -> None:
    workers = beside()
    other = {b"f": "001", b"g": "000", b"h": "002"}
    played = play(workers, lambda worker, request: worker.answer(request, text(other[function(request)])))
    assert steps_of(played, "f", "g", "h") == ["different", "different", "identical"]
    (first, *_) = played.progress.all_outcomes()
    assert [(d.code, d.a_value, d.b_value) for d in first.differences] == [("value", "000", "001")]
    assert first.same_payload is False


def test_an_exception_instead_of_an_answer() -> None:
    workers = simple()

    def does(worker: Scripted, request: RequestArrived) -> None:
        if function(request) == b"g":
            worker.answer(request, ExceptionResponse(b"ValueError: no"))
        else:
            as_captured(workers)(worker, request)

    played = play(workers, does)
    assert steps_of(played, "f", "g", "h") == ["identical", "different", "identical"]
    (difference,) = played.progress.all_outcomes()[1].differences
    assert (difference.code, difference.a_value) == ("error", None)
    assert "ValueError: no" in difference.b_value


def test_an_answer_that_never_comes() -> None:
    workers = simple()

    def does(worker: Scripted, request: RequestArrived) -> None:
        if function(request) != b"f":
            as_captured(workers)(worker, request)

    played = play(workers, does, timeout_s=0.3)
    assert steps_of(played, "f", "g", "h") == ["unanswered", "identical", "identical"]
    assert played.progress.all_outcomes()[0].text == "no answer within 0.3 s"
    assert played.wall_s < 2.0


def test_an_answer_that_comes_too_late_is_not_counted() -> None:
    workers = simple()
    late: list[RequestArrived] = []

    def does(worker: Scripted, request: RequestArrived) -> None:
        late.append(request)
        if function(request) == b"h":
            for one in late:
                as_captured(workers)(worker, one)

    played = play(workers, does, timeout_s=0.3)
    assert steps_of(played, "f", "g", "h") == ["unanswered", "unanswered", "identical"]


@pytest.mark.parametrize(("timeout_s", "f"), [(None, "identical"), (0.3, "unanswered")])
def test_the_time_of_a_request_stands_still_while_its_worker_waits_for_us(
    timeout_s: float | None, f: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """w1 asks back while it serves `f`, and is answered only when `k`, which never answers, is given up.
    `--timeout` bounds the whole wait for `f`."""
    monkeypatch.setattr(timeouts, "LEAST_S", 0.3)
    workers = Workers(2)
    workers.call(0, 1, 0, 100, "app.f", text("fff"))
    workers.call(1, 0, 10, 90, "app.g", text("ggg"))
    workers.call(0, 1, 20, 80, "app.k", text("kkk"))

    def does(worker: Scripted, request: RequestArrived) -> None:
        if function(request) != b"f":
            return
        worker.ask("w0", PythonCall(udf("app.g"), False))
        take = worker.take

        def goes_on(event: PeerEvent) -> None:
            take(event)
            if isinstance(event, ResponseArrived):
                as_captured(workers)(worker, request)

        worker.take = goes_on  # type: ignore[method-assign]

    played = play(workers, does, timeout_s=timeout_s)
    assert steps_of(played, "f", "g", "k") == [f, "identical", "unanswered"]
    assert [step.causes for step in played.planned.steps] == [(), (0,), ()]


def test_no_answer_where_the_capture_has_none() -> None:
    workers = Workers(2)
    workers.call(0, 1, 0, None, "app.f")
    workers.call(0, 1, 10, 20, "app.g")
    workers.call(0, 1, 10**10, 10**10 + 20, "app.h")
    played = play(
        workers,
        lambda worker, request: None if function(request) == b"f" else as_captured(workers)(worker, request),
        timeout_s=0.3,
    )
    assert set(played.results()) == {"identical"}
    assert "as in the capture" in (played.progress.all_outcomes()[0].text or "")


def test_an_answer_where_the_capture_has_none() -> None:
    workers = Workers(2)
    workers.call(0, 1, 0, None, "app.f")
    workers.call(0, 1, 10**10, 10**10 + 20, "app.h")
    played = play(workers, lambda worker, request: worker.answer(request, PythonResp(NONE)))
    assert steps_of(played, "f", "h") == ["different", "identical"]
    assert [d.code for d in played.progress.all_outcomes()[0].differences] == ["extra"]


def test_a_capture_that_ends_too_soon_can_not_be_compared() -> None:
    workers = Workers(2)
    workers.call(0, 1, 0, 20, "app.g")
    workers.call(0, 1, 30, None, "app.f")
    played = play(workers, lambda worker, request: worker.answer(request, PythonResp(NONE)))
    assert steps_of(played, "g", "f") == ["identical", None]


DAMAGED = [
    (b"", NO_TENSORS),
    (b"\x80\x02X\xff\xff\xff\x7fabc.", NO_TENSORS),
    (b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00trueq\x00\x85R.", NO_TENSORS),
    (b"\xff" * 40, NO_TENSORS),
    (NONE, b""),
    (NONE, b"\x80\x02]."),
    (NONE, b"\xff" * 40),
    (NONE, gradient(3)),
]


@pytest.mark.parametrize(("payload", "table"), DAMAGED)
def test_an_answer_that_is_damaged_is_different(payload: bytes, table: bytes) -> None:
    """The scripted worker's own peer would not send such tables: its pipe does."""
    workers = simple(2)

    def does(worker: Scripted, request: RequestArrived) -> None:
        if function(request) == b"f":
            answer = RpcMessage(int(MessageType.PYTHON_RET), request.message.id, payload, table)
            worker.peer._pipes[request.pipe].send(answer, [])
        else:
            as_captured(workers)(worker, request)

    played = play(workers, does)
    assert steps_of(played, "f", "g") == ["different", "identical"]
    assert played.progress.all_outcomes()[0].differences


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from([int(kind) for kind in MessageType]),
    st.binary(max_size=80),
    st.one_of(st.binary(max_size=80), st.just(NO_TENSORS), st.just(gradient(2))),
    st.lists(st.binary(max_size=9), max_size=3),
    st.booleans(),
)
def test_whatever_comes_the_session_ends(
    kind: int, payload: bytes, table: bytes, tensors: list[bytes], asks: bool
) -> None:
    workers = simple(2)

    def does(worker: Scripted, request: RequestArrived) -> None:
        pipe = worker.peer._pipes[request.pipe]
        if function(request) == b"f" and asks:
            worker.ask("w0", PythonCall(udf("app.x"), False))
            pipe = next(one for one in worker.peer._pipes.values() if not one.inbound)
            pipe.send(RpcMessage(kind, 1000, payload, table), tensors)
            as_captured(workers)(worker, request)
        elif function(request) == b"f":
            pipe.send(RpcMessage(kind, request.message.id, payload, table), tensors)
        else:
            as_captured(workers)(worker, request)

    played = play(workers, does, timeout_s=1.0)
    assert steps_of(played, "g") == ["identical"]
    assert steps_of(played, "f")[0] in ("identical", "different", "failed")
    assert played.wall_s < 3.0


# --- other requests -----------------------------------------------------------------------------------------


def refusals(played: Played) -> list[bytes]:
    """What scripted workers got as exceptions."""
    found = []
    for worker in played.live.values():
        found += [one.payload for one in worker.answers if one.type == MessageType.EXCEPTION]
    return found


def test_a_request_that_nothing_in_the_capture_is_like() -> None:
    workers = simple()

    def does(worker: Scripted, request: RequestArrived) -> None:
        worker.ask("w0", PythonCall(udf("app.unheard"), False))
        as_captured(workers)(worker, request)

    played = play(workers, does)
    assert played.results() == ["identical"] * 3
    assert [(one.captured, one.result) for one in played.progress.inbound] == [(None, "different")] * 3
    assert {one.text for one in played.progress.inbound} == {NOTHING_LIKE_IT}
    assert refusals(played) == [NOT_THERE] * 3


def test_a_request_that_comes_twice_is_answered_once() -> None:
    workers = back()

    def does(worker: Scripted, request: RequestArrived) -> None:
        if function(request) == b"f":
            for letter in "gghh":
                worker.ask("w0", PythonCall(udf(f"app.{letter}"), False))
        as_captured(workers)(worker, request)

    played = play(workers, does)
    assert set(played.results()) == {"identical"}
    assert [one.result for one in played.progress.inbound] == ["identical", "different"] * 2
    assert refusals(played) == [NOT_THERE] * 2


def lookups() -> Workers:
    """w1's own program asks `g` of w0; then w1 does it again while it serves `f`, for which or by itself."""
    workers = Workers(2)
    workers.call(1, 0, 0, 20, "app.g", text("own"))
    workers.call(0, 1, 100, 200, "app.f", text("fff"))
    workers.call(1, 0, 110, 150, "app.g", text("ggg"))
    return workers


def test_a_request_of_which_the_cause_is_not_certain_is_it_when_it_comes() -> None:
    workers = lookups()
    (step,) = [step for step in planned_of(workers)[0].steps if step.message == 3]
    assert (step.action, step.spare) == ("skip", "like")
    assert step.causes == (2,)

    def does(worker: Scripted, request: RequestArrived) -> None:
        worker.ask("w0", PythonCall(udf("app.g"), False))
        as_captured(workers)(worker, request)

    played = play(workers, does)
    assert [(one.captured, one.result) for one in played.progress.inbound] == [(3, "identical")]
    assert {m: one.result for m, one in played.steps.items()} == {0: None, 2: "identical", 3: "identical"}
    assert played.steps[3].step.action == "answer"
    assert "it came" in (played.steps[3].step.text or "")
    assert refusals(played) == []
    assert played.live["w1"].answers[0].payload == message_of(text("ggg")).payload


def test_a_request_of_which_the_cause_is_not_certain_may_stay_away() -> None:
    workers = lookups()
    played = play(workers, as_captured(workers))
    assert {m: one.result for m, one in played.steps.items()} == {0: None, 2: "identical", 3: None}
    assert played.wall_s < 1.0  # nobody waits for it


def test_a_request_of_a_workers_own_program_is_it_where_a_live_one_equals_it() -> None:
    """More come than the plan expects: the second is what only the own program sent, the third is nobody."""
    workers = lookups()

    def does(worker: Scripted, request: RequestArrived) -> None:
        for _ in range(3):
            worker.ask("w0", PythonCall(udf("app.g"), False))
        as_captured(workers)(worker, request)

    played = play(workers, does)
    assert [one.captured for one in played.progress.inbound] == [3, 0, None]
    assert [one.payload for one in played.live["w1"].answers[:2]] == [
        message_of(text(letters)).payload for letters in ("ggg", "own")
    ]
    assert refusals(played) == [NOT_THERE]


def test_a_gradient_of_a_request_that_the_plan_left_out() -> None:
    """Its edge is known once that request has come; then it is that gradient, whatever its values."""
    workers = Workers(2)
    context = pack_id(1, 1)
    workers.call(1, 0, 0, 20, "app.g", context=(context, pack_id(1, 1)), grads=(1, 0))
    workers.call(1, 0, 30, 40, *gradients_of(context, pack_id(1, 1)))
    workers.call(0, 1, 100, 200, "app.f", text("fff"))
    edge = pack_id(1, 5)

    def does(worker: Scripted, request: RequestArrived) -> None:
        called = RpcWithAutograd(
            message_type=MessageType.FORWARD_AUTOGRAD_REQ,
            autograd_metadata=AutogradMetadata(context, edge),
            from_worker_id=1,
            device_map={},
            wrapped_message_type=MessageType.PYTHON_CALL,
        )
        asked = message_of(PythonCall(udf("app.g"), False), called)
        table = workers.calls()[0].request.rpc.message.tensor_table
        worker.peer.send("w0", replace(asked, tensor_table=table), [STORAGE], timeout_s=5.0)
        worker.ask("w0", gradients_of(context, edge)[0])
        as_captured(workers)(worker, request)

    played = play(workers, does)
    assert [(one.captured, one.result) for one in played.progress.inbound] == [
        (0, "identical"),
        (2, "identical"),
    ]
    assert refusals(played) == []


def gradients_of(context: int, edge: int) -> tuple[PropagateGradientsReq, PropagateGradientsResp]:
    return PropagateGradientsReq(AutogradMetadata(context, edge), (), False), PropagateGradientsResp()


def test_an_unlike_request_first_does_not_take_the_place_of_an_equal_one() -> None:
    workers = Workers(2)
    workers.call(0, 1, 0, 100, "app.f")
    workers.call(1, 0, 10, 20, PythonCall(udf("app.g"), False), text("ggg"))

    def does(worker: Scripted, request: RequestArrived) -> None:
        for marked in (True, False):
            worker.ask("w0", PythonCall(udf("app.g"), marked))
        as_captured(workers)(worker, request)

    played = play(workers, does)
    assert [(one.captured, one.result) for one in played.progress.inbound] == [
        (1, "different"),
        (1, "identical"),
    ]
    assert [one.payload for one in played.live["w1"].answers] == [message_of(text("ggg")).payload] * 2


def test_what_a_recording_lacks_is_not_a_difference() -> None:
    """A live worker of which nothing was recorded asks for something: nobody knows what it was answered."""
    workers = simple(2)

    def does(worker: Scripted, request: RequestArrived) -> None:
        if function(request) != b"f":
            as_captured(workers)(worker, request)
            return
        worker.ask("w0", PythonCall(udf("app.x"), False))
        take = worker.take

        def goes_on(event: PeerEvent) -> None:
            take(event)
            if isinstance(event, ResponseArrived):
                worker.answer(request, ExceptionResponse(b"On w1: " + event.message.payload))

        worker.take = goes_on  # type: ignore[method-assign]

    played = play(workers, does, unheard=("w1",))
    assert steps_of(played, "f", "g") == [None, "identical"]
    assert [(one.captured, one.result) for one in played.progress.inbound] == [(None, None)]
    assert played.progress.inbound[0].text == "nothing that w1 sent is recorded"
    assert steps_of(play(workers, does), "f", "g") == ["different", "identical"]


def test_a_request_with_other_arguments_gets_the_answer_and_is_different() -> None:
    workers = Workers(2)
    workers.call(0, 1, 0, 100, "app.f")
    workers.call(1, 0, 10, 20, PythonCall(udf("app.g"), False), text("ggg"))

    def does(worker: Scripted, request: RequestArrived) -> None:
        worker.ask("w0", PythonCall(udf("app.g"), True))
        as_captured(workers)(worker, request)

    played = play(workers, does)
    assert steps_of(played, "f", "g") == ["identical", "different"]
    (inbound,) = played.progress.inbound
    assert [one.path for one in inbound.differences] == ["async"]
    assert played.live["w1"].answers[0].payload == message_of(text("ggg")).payload


def test_housekeeping_of_what_was_not_captured_is_acknowledged() -> None:
    workers = simple()
    fork = GloballyUniqueId(1, 40)

    def does(worker: Scripted, request: RequestArrived) -> None:
        if function(request) == b"f":
            worker.ask("w0", RRefUserDelete(GloballyUniqueId(0, 3), fork))
            worker.ask("w0", CleanupAutogradContextReq(pack_id(1, 9)))
        as_captured(workers)(worker, request)

    played = play(workers, does)
    assert [one.result for one in played.progress.inbound] == [None, None]
    kinds = [message.type for message in played.live["w1"].answers]
    assert kinds == [MessageType.RREF_ACK, MessageType.CLEANUP_AUTOGRAD_CONTEXT_RESP]


def test_a_request_that_never_comes_is_given_up_and_what_follows_is_sent() -> None:
    workers = back()
    played = play(workers, as_captured(workers))  # neither g nor h
    assert steps_of(played, "f", "g", "h", "k") == ["identical", "unanswered", "unanswered", "identical"]
    assert played.wall_s < 2.0
    outcome = next(one for one in played.progress.all_outcomes() if one.result == "unanswered")
    assert outcome.text == "w1 never sent it"


def test_a_request_of_which_nobody_knows_why_it_was_sent_is_ambiguous() -> None:
    """w1 serves three callers when it asks g; two of them are live here, and their own programs don't run."""
    workers = Workers(4)
    workers.call(2, 1, 0, 100, "app.a")
    workers.call(3, 1, 5, 100, "app.b")
    workers.call(0, 1, 10, 100, "app.c")
    workers.call(1, 0, 50, 60, "app.g")
    played = play(workers, as_captured(workers))
    (asked,) = [one for one in played.progress.all_outcomes() if one.step.action == "answer"]
    assert (asked.result, asked.text) == (None, AMBIGUOUS)
    assert "while it serves #" in asked.step.doubt
    assert steps_of(played, "c") == ["identical"]


def test_a_difference_of_which_nobody_knows_whose_it_is_is_ambiguous(monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch's agent hands on what several live workers may have asked."""
    asked = OpenRequests.asked

    def doubtful(self: OpenRequests[None], *args: Any, **more: Any) -> None:
        asked(self, *args, **{**more, "doubtful": True})

    monkeypatch.setattr(OpenRequests, "asked", doubtful)
    workers = Workers(2)
    workers.call(0, 1, 0, 100, "app.f")
    workers.call(1, 0, 10, 20, PythonCall(udf("app.g"), False))

    def does(worker: Scripted, request: RequestArrived) -> None:
        if function(request) == b"f":
            worker.ask("w0", PythonCall(udf("app.g"), True))
        as_captured(workers)(worker, request)

    played = play(workers, does)
    assert steps_of(played, "f", "g") == ["identical", None]
    (inbound,) = played.progress.inbound
    assert (inbound.result, inbound.text) == (None, AMBIGUOUS_SENDER)


def test_what_needs_an_object_that_was_not_made_is_not_waited_for() -> None:
    """w1 can't make the object: whoever uses it would wait for it at w1 until its time is over."""
    rref, fork = GloballyUniqueId(0, 1), GloballyUniqueId(0, 2)
    made = PythonRemoteCall(
        tensors=(),
        serialized_py_obj=udf("app.make"),
        ret_rref_id=rref,
        ret_fork_id=fork,
        is_async_execution=False,
    )
    workers = Workers(2)
    workers.call(0, 1, 0, 100, made, RemoteRet(rref, fork))
    workers.call(0, 1, 10, 110, PythonRRefFetchCall(1, rref), PythonRRefFetchRet((), NONE))
    workers.call(0, 1, 200, 300, PythonRRefFetchCall(1, rref), PythonRRefFetchRet((), NONE))
    workers.call(0, 1, 400, 500, "app.k")

    def does(worker: Scripted, request: RequestArrived) -> None:
        if request.message.type == MessageType.PYTHON_REMOTE_CALL:
            worker.answer(request, ExceptionResponse(b"ModuleNotFoundError: No module named 'app'"))
        elif request.message.type == MessageType.PYTHON_CALL:
            as_captured(workers)(worker, request)

    played = play(workers, does)
    results = [(one.step.message, one.result, one.text) for one in played.progress.all_outcomes()]
    needed = "it needs RRef 0:1, which #0 was to make and did not"
    assert [one[1] for one in results] == ["different", "failed", "failed", "identical"]
    assert [one[2] for one in results[1:3]] == [needed, f"not sent: {needed}"]
    assert played.wall_s < 2.0


def test_housekeeping_that_never_comes_is_no_failure() -> None:
    workers = Workers(2)
    rref, fork = GloballyUniqueId(0, 1), GloballyUniqueId(1, 1)
    workers.call(0, 1, 0, 100, "app.f")
    workers.call(1, 0, 110, 120, RRefUserDelete(rref, fork), RRefAck())
    workers.call(0, 1, 200, 300, "app.k")
    played = play(workers, as_captured(workers))
    kinds = {step.type: one.result for step, one in ((o.step, o) for o in played.progress.all_outcomes())}
    assert kinds["RREF_USER_DELETE"] is None
    assert steps_of(played, "f", "k") == ["identical", "identical"]
    assert played.wall_s < 2.0


def test_a_request_that_comes_after_it_was_given_up_is_answered() -> None:
    workers = back()

    def does(worker: Scripted, request: RequestArrived) -> None:
        if function(request) == b"k":
            worker.ask("w0", PythonCall(udf("app.h"), False))
            worker.ask("w0", PythonCall(udf("app.g"), False))
        as_captured(workers)(worker, request)

    played = play(workers, does)
    assert steps_of(played, "f", "g", "h", "k") == ["identical"] * 4
    assert refusals(played) == []


@pytest.mark.parametrize("what", ["unheard requests", "housekeeping", "control calls"])
def test_a_worker_that_never_stops_asking_does_not_make_the_session_last(what: str) -> None:
    """Such as one with a thread that reports to a played worker; g and h are waited for meanwhile."""
    workers = back()
    commands: dict[str, Command] = {
        "unheard requests": PythonCall(udf("app.unheard"), False),
        "housekeeping": RRefUserDelete(GloballyUniqueId(0, 3), GloballyUniqueId(1, 3)),
        "control calls": PythonCall(
            b"\x80\x02ctorch.distributed.rpc.internal\nPythonUDF\n"
            b"ctorch.distributed.rpc.backend_registry\n_get_device_infos\n)}\x87\x81.",
            False,
        ),
    }
    end = time.monotonic() + 8.0

    class Restless(Scripted):
        def take(self, event):  # type: ignore[no-untyped-def]
            super().take(event)
            if time.monotonic() < end:
                self.ask("w0", commands[what])

    def does(worker: Scripted, request: RequestArrived) -> None:
        worker.__class__ = Restless
        worker.ask("w0", commands[what])
        as_captured(workers)(worker, request)

    played = play(workers, does, timeout_s=0.5)
    assert steps_of(played, "f", "g", "h", "k") == ["identical", "unanswered", "unanswered", "identical"]
    assert len(played.live["w1"].events) > 10
    assert played.wall_s < 6.0


# --- gradients ----------------------------------------------------------------------------------------------

CONTEXT = pack_id(0, 1)


def backward_of(message: int, *, seen: int) -> PropagateGradientsReq:
    return PropagateGradientsReq(AutogradMetadata(CONTEXT, pack_id(seen, message)), (0,), False)


def training() -> Workers:
    """w0 calls f and g of w1 in a context with tensors, and sends the gradients of what came; w1 sends those
    of what it got."""
    workers = Workers(2)
    for n, letter in enumerate("fg"):
        workers.call(0, 1, 100 * n, 100 * n + 50, f"app.{letter}", context=(CONTEXT, n + 1), grads=(1, 1))
    return workers


def ask_back(workers: Workers) -> Workers:
    """As `training`, with the backward pass through both calls."""
    for n in range(2):
        begin = 300 + 100 * n
        request = backward_of(1001 + n, seen=0)
        workers.call(0, 1, begin, begin + 80, request, PropagateGradientsResp(), grads=(1, 0))
        answer = backward_of(n + 1, seen=0)
        workers.call(1, 0, begin + 20, begin + 40, answer, PropagateGradientsResp(), grads=(1, 0))
    return workers


class Trainer:
    """A live worker that numbers its own autograd messages otherwise, and sends gradients back."""

    def __init__(
        self, *, shift: int, values: tuple[bytes, bytes] = (STORAGE, STORAGE), crossed: bool = False
    ):
        self.shift, self.values, self.crossed = shift, values, crossed
        self.edges: dict[int, int] = {}
        """Autograd message id of a live answer → that of its request."""
        self.gradients: list[int] = []

    def __call__(self, worker: Scripted, request: RequestArrived) -> None:
        record = LiveRecords().decode(request.message, request.tensors).record
        if not isinstance(record.rpc.command, PropagateGradientsReq):
            (envelope,) = record.rpc.envelopes
            assert isinstance(envelope, RpcWithAutograd)
            asked = envelope.autograd_metadata.autograd_message_id
            captured = 1000 + asked
            self.edges[captured + self.shift] = asked
            back = RpcWithAutograd(
                message_type=MessageType.FORWARD_AUTOGRAD_RESP,
                autograd_metadata=AutogradMetadata(CONTEXT, captured + self.shift),
                from_worker_id=1,
                device_map={},
                wrapped_message_type=MessageType.PYTHON_RET,
            )
            worker.peer.answer(request, message_of(PythonResp(NONE), back, table=gradient(1)), [STORAGE])
            return
        edge = record.rpc.command.autograd_metadata.autograd_message_id
        self.gradients.append(edge)
        asked = self.edges[edge]
        if self.crossed:
            asked = 3 - asked
        back_command = PropagateGradientsReq(AutogradMetadata(CONTEXT, asked), (0,), False)
        worker.peer.send(
            "w0", message_of(back_command, table=gradient(1)), [self.values[asked - 1]], timeout_s=5
        )
        worker.answer(request, PropagateGradientsResp())


def test_gradients_go_to_the_edges_that_the_live_worker_made() -> None:
    trainer = Trainer(shift=57)
    played = play(ask_back(training()), trainer)
    assert set(played.results()) == {"identical"}
    assert sorted(trainer.gradients) == sorted(trainer.edges)
    assert len(played.progress.inbound) == 2


def test_one_gradient_that_is_another_is_told_of_its_own_edge() -> None:
    other = b"\0\0\0\x40"
    played = play(ask_back(training()), Trainer(shift=3, values=(STORAGE, other)))
    results = {
        played.calls[m].request.rpc.command.autograd_metadata.autograd_message_id: one.result
        for m, one in played.steps.items()
        if one.step.action == "answer"
    }
    assert results == {1: "identical", 2: "different"}


def test_gradients_that_cross_their_edges_keep_their_edges() -> None:
    """They come in the other order: each is taken for what it says it is."""
    played = play(ask_back(training()), Trainer(shift=3, crossed=True))
    assert set(played.results()) == {"identical"}
    assert [one.captured for one in played.progress.inbound] == sorted(
        (one.captured for one in played.progress.inbound), reverse=True
    )


def test_a_gradient_of_an_edge_that_nobody_sent_is_refused() -> None:
    class Wrong(Trainer):
        def __call__(self, worker: Scripted, request: RequestArrived) -> None:
            if request.message.type == MessageType.BACKWARD_AUTOGRAD_REQ:
                sent = message_of(backward_of(77, seen=0), table=gradient(1))
                worker.peer.send("w0", sent, [STORAGE], timeout_s=5)
            super().__call__(worker, request)

    played = play(ask_back(training()), Wrong(shift=3))
    assert set(played.results()) == {"identical"}
    assert [one.captured is None for one in played.progress.inbound] == [True, False, True, False]
    assert refusals(played) == [NOT_THERE] * 2


# --- losses -------------------------------------------------------------------------------------------------


def test_a_pipe_that_is_lost_fails_what_was_on_its_way_and_nothing_else() -> None:
    workers = beside(3)
    come: list[RequestArrived] = []

    def does(worker: Scripted, request: RequestArrived) -> None:
        come.append(request)
        if len(come) == 3:
            as_captured(workers)(worker, come[0])
            worker.peer._pipes[request.pipe].lose("a test")

    workers.call(0, 1, 1000, 1100, "app.l", text("lll"))
    played = play(
        workers,
        lambda worker, request: (
            as_captured(workers)(worker, request) if function(request) == b"l" else does(worker, request)
        ),
    )
    found = steps_of(played, "f", "g", "h", "l")
    assert found[1:] == ["failed", "failed", "identical"]
    assert found[0] in ("identical", "failed")  # its answer may have been lost with the pipe
    assert "the pipe to w1 was lost" in (played.progress.all_outcomes()[1].text or "")
    assert played.wall_s < 2.0


def test_a_worker_that_is_gone_ends_the_session() -> None:
    workers = back()
    gone: list[EarlyExit] = []

    def does(worker: Scripted, request: RequestArrived) -> None:
        if function(request) == b"f":
            worker.ask("w0", PythonCall(udf("app.g"), False))
            gone.append(SEGFAULT)

    played = play(workers, does, ended=lambda seconds, known: gone)
    text = played.progress.failure or ""
    assert text.startswith("the live worker w1 was ended by SIGSEGV; the last message sent to it is #")
    assert steps_of(played, "f", "h", "k") == ["failed", "failed", "failed"]
    assert steps_of(played, "g")[0] in ("identical", "failed")
    assert {one.text for one in played.progress.all_outcomes() if one.result == "failed"} == {text}
    assert played.wall_s < 2.0


def test_a_pipe_that_is_lost_with_its_worker() -> None:
    """The step that waited knows why at once, and nothing more is sent there."""
    workers = simple()
    gone: list[EarlyExit] = []

    def does(worker: Scripted, request: RequestArrived) -> None:
        worker.peer._pipes[request.pipe].lose("a test")

    def ended(seconds: float, known: int) -> list[EarlyExit]:
        """Its sockets are closed before the system tells."""
        if seconds:
            gone.append(SEGFAULT)
        return gone

    played = play(workers, does, ended=ended)
    text = "the live worker w1 was ended by SIGSEGV; the last message sent to it is #0"
    assert played.progress.failure == text
    assert played.results() == ["failed"] * 3
    assert [one.text for one in played.progress.all_outcomes()] == [
        text,
        f"not sent: {text}",
        f"not sent: {text}",
    ]
    assert len(played.live["w1"].requests) == 1
    assert played.wall_s < 2.0


def test_a_pipe_that_is_lost_with_another_worker() -> None:
    workers = simple(1)
    other = replace(SEGFAULT, who="the store", worker=None)

    def does(worker: Scripted, request: RequestArrived) -> None:
        worker.peer._pipes[request.pipe].lose("a test")

    played = play(workers, does, ended=lambda seconds, known: [other] if seconds else [])
    (one,) = played.progress.all_outcomes()
    assert (one.text or "").startswith("the pipe to w1 was lost: ")
    assert (one.text or "").endswith("; the store was ended by SIGSEGV")


@pytest.mark.parametrize(("code", "failed"), [(-9, True), (0, False), (3, False)])
def test_a_worker_that_ends_when_everything_is_answered(code: int, failed: bool) -> None:
    """It may have been asked to end itself, as when it was captured."""
    workers = simple()
    end = replace(SEGFAULT, exit=Exit(code))
    moments: list[float] = []

    def does(worker: Scripted, request: RequestArrived) -> None:
        as_captured(workers)(worker, request)
        moments.append(time.monotonic())

    def ended(seconds: float, known: int) -> list[EarlyExit]:
        """A moment after the last answer."""
        return [end] if len(moments) == 3 and time.monotonic() > moments[-1] + 0.03 else []

    played = play(workers, does, ended=ended)
    assert played.results() == ["identical"] * 3
    assert (played.progress.failure is not None) is failed


def test_what_was_sent_last_may_be_an_answer() -> None:
    workers = back()
    asked: list[Scripted] = []

    def does(worker: Scripted, request: RequestArrived) -> None:
        worker.ask("w0", PythonCall(udf("app.g"), False))
        asked.append(worker)

    played = play(workers, does, ended=lambda *_: [SEGFAULT] if asked and asked[0].answers else [])
    assert (played.progress.failure or "").endswith("; the last message sent to it is #2")


def test_a_worker_that_can_not_be_reached() -> None:
    workers = simple()
    played = play_unreachable(workers)
    assert played.results() == ["failed"] * 3
    assert "the address is not known of 'w1'" in (played.progress.all_outcomes()[0].text or "")


def play_unreachable(workers: Workers) -> Played:
    real = Peer.send

    def send(self, to, *args, **more):  # type: ignore[no-untyped-def]
        self.addresses.pop(to, None)
        return real(self, to, *args, **more)

    with mock.patch.object(Peer, "send", send):
        return play(workers, as_captured(workers))


def test_an_answer_that_nobody_reads_is_a_failure_of_its_step() -> None:
    """The pipe's queue is full: the session goes on."""
    workers = Workers(2)
    workers.call(0, 1, 0, 100, "app.f", text("fff"))
    workers.call(1, 0, 10, 20, "app.g", PythonResp(b"\x80\x02B\x00\x00\x02\x00" + b"x" * (1 << 17) + b"."))

    def does(worker: Scripted, request: RequestArrived) -> None:
        worker.ask("w0", PythonCall(udf("app.g"), False))
        as_captured(workers)(worker, request)

    played = play(workers, does, limits=PeerLimits(timeout_s=5.0, queued_bytes=1 << 10))
    assert steps_of(played, "f", "g") == ["identical", "failed"]


def test_requests_that_end_before_they_began_are_sent_all_the_same() -> None:
    """By the clocks of two captures, the answer came before the request."""
    workers = Workers(2)
    workers.call(0, 1, 100, 50, "app.f", text("fff"))
    workers.call(0, 1, 200, 150, "app.g", text("ggg"))
    played = play(workers, as_captured(workers))
    assert set(played.results()) == {"identical"}
    assert played.wall_s < 2.0


# --- pace ---------------------------------------------------------------------------------------------------


def test_the_captured_pace_is_kept() -> None:
    workers = Workers(2)
    for n, letter in enumerate("fgh"):
        workers.call(0, 1, n * 10**8, n * 10**8 + 50, f"app.{letter}", text("fff"))
    fast, slow = play(workers, as_captured(workers)), play(workers, as_captured(workers), speed=0.5)
    assert fast.results() == slow.results() == ["identical"] * 3
    assert fast.wall_s < 0.2 < 0.4 <= slow.wall_s < 1.0


def test_tolerances_make_a_difference() -> None:
    played = play(
        ask_back(training()),
        Trainer(shift=3, values=(STORAGE, b"\x01\0\x80?")),
        rules=Rules(strict=True, rtol=1e-3, atol=0.0),
    )
    assert sorted(str(one.result) for one in played.progress.all_outcomes()) == ["identical"] * 5 + [
        "tolerance"
    ]


def test_hundreds_of_messages_a_second() -> None:
    count = 500
    workers = Workers(2)
    for n in range(count):
        workers.call(0, 1, 10 * n, 10 * n + 5, "app.f", text("fff"))
    played = play(workers, lambda worker, request: worker.answer(request, text("fff")))
    assert set(played.results()) == {"identical"}
    assert played.wall_s < 5.0


def test_clean_up_is_answered_from_the_capture() -> None:
    workers = training()
    workers.call(0, 1, 500, 520, CleanupAutogradContextReq(CONTEXT), CleanupAutogradContextResp())
    played = play(
        workers,
        lambda worker, request: (
            worker.answer(request, CleanupAutogradContextResp())
            if request.message.type == MessageType.CLEANUP_AUTOGRAD_CONTEXT_REQ
            else Trainer(shift=0)(worker, request)
        ),
    )
    assert set(played.results()) == {"identical"}

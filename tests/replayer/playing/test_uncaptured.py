"""What is answered where nothing was captured: the commands that torch's agent would send, or a failure."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from rpcinspect.equality.ids import CONTEXT, FORK, RREF, WORKER, IdMap
from rpcinspect.replayer.planning.model import Step
from rpcinspect.replayer.planning.steps import NO_ANSWER
from rpcinspect.replayer.playing.uncaptured import (
    NOT_THERE,
    Leftovers,
    acknowledgement,
    receipt,
    refusal,
    refused_here,
    too_much,
)
from rpcinspect.rpc.command import (
    CleanupAutogradContextReq,
    Command,
    ExceptionResponse,
    PropagateGradientsReq,
    PythonCall,
    PythonRemoteCall,
    RRefChildAccept,
    RRefForkRequest,
    RRefUserDelete,
)
from rpcinspect.rpc.command_codec import from_message
from rpcinspect.rpc.envelope import AutogradMetadata
from rpcinspect.rpc.message import NO_TENSORS, MessageType, is_response
from rpcinspect.rpc.types import GloballyUniqueId, pack_id
from tests.replayer.talks import Workers, record_of, udf

ID = GloballyUniqueId(1, 2)
STEP = Step(message=3, type="PYTHON_CALL", role="w0", to="w1", action="send", sender="w0")


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        (RRefUserDelete(ID, ID), MessageType.RREF_ACK),
        (RRefForkRequest(ID, ID), MessageType.RREF_ACK),
        (RRefChildAccept(ID), MessageType.RREF_ACK),
        (CleanupAutogradContextReq(5), MessageType.CLEANUP_AUTOGRAD_CONTEXT_RESP),
    ],
)
def test_housekeeping_is_acknowledged(request_: Command, kind: MessageType) -> None:
    answer = acknowledgement(record_of(request_))
    assert answer is not None
    assert (answer.type, answer.payload, answer.tensor_table) == (kind, b"", NO_TENSORS)


def test_everything_else_is_refused() -> None:
    assert acknowledgement(record_of(PythonCall(udf("app.f"), False))) is None
    assert refusal().type == MessageType.EXCEPTION
    assert refusal().payload == NOT_THERE
    assert is_response(refusal().type)


def test_a_gradient_has_one_answer_whatever_it_is() -> None:
    answer = receipt(record_of(PropagateGradientsReq(AutogradMetadata(1, 2), (), False)))
    assert answer is not None
    assert (answer.type, answer.payload) == (MessageType.BACKWARD_AUTOGRAD_RESP, b"")
    assert receipt(record_of(PythonCall(udf("app.f"), False))) is None


@pytest.mark.parametrize(("text", "ours"), [(NOT_THERE, True), (b"it failed", False)])
def test_an_error_that_comes_from_a_refusal(text: bytes, ours: bool) -> None:
    answer = record_of(ExceptionResponse(text))
    answer.rpc.message.payload = b"On w1: " + text
    assert refused_here(answer) == ours


def test_an_answer_to_a_request_of_a_connection_without_any() -> None:
    live = record_of(PythonCall(udf("app.f"), False))
    found = too_much(replace(STEP, one_way=True), live, 0.5, cut_off=False)
    assert (found.result, found.text, found.differences) == (None, NO_ANSWER, ())


def test_an_answer_that_the_capture_does_not_have() -> None:
    live = record_of(PythonCall(udf("app.f"), False))
    live.rpc.message.type = MessageType.PYTHON_RET
    late = too_much(STEP, live, 0.5, cut_off=True)
    assert (late.result, late.differences, late.latency_s) == (None, (), 0.5)
    found = too_much(STEP, live, 0.5, cut_off=False)
    assert found.result == "different"
    assert [(d.code, d.path, d.b_value) for d in found.differences] == [("extra", "answer", "PYTHON_RET")]


LIVE = {"w0": 32767, "w1": 5}
"""Captured as 0 and 1."""


def ids() -> IdMap:
    found = IdMap()
    found.same(WORKER, 0, 32767)
    found.same(WORKER, 1, 5)
    for n in range(4):
        found.same(CONTEXT, pack_id(0, n), pack_id(32767, n))
        found.same(CONTEXT, pack_id(1, n), pack_id(5, n + 9))
        for kind in (RREF, FORK):
            found.same(kind, GloballyUniqueId(0, n), GloballyUniqueId(32767, n))
    return found


def remote(n: int) -> Command:
    return PythonRemoteCall(
        serialized_py_obj=udf("app.f"),
        ret_rref_id=GloballyUniqueId(0, n),
        ret_fork_id=GloballyUniqueId(0, n + 1),
        is_async_execution=False,
        tensors=(),
    )


def left(workers: Workers) -> list[tuple[str, str, Any]]:
    """After w0 has sent everything that it sent in the capture."""
    leftovers = Leftovers(ids(), LIVE)
    for call in workers.calls():
        leftovers.sent("w0", "w1", call.request)
    found = [
        (role, to, from_message(message.type, message.payload)) for role, to, message in leftovers.releases()
    ]
    assert list(leftovers.releases()) == []
    return found


def test_contexts_that_were_not_cleaned_up() -> None:
    workers = Workers(2)
    workers.call(0, 1, 0, 10, context=(pack_id(0, 0), 1))
    workers.call(0, 1, 20, 30, context=(pack_id(0, 0), 2))
    workers.call(0, 1, 40, 50, context=(pack_id(0, 1), 3))
    workers.call(0, 1, 60, 70, context=(pack_id(1, 0), 4))  # w1 cleans up its own
    workers.call(0, 1, 80, 90, CleanupAutogradContextReq(pack_id(0, 1)))
    assert left(workers) == [("w0", "w1", CleanupAutogradContextReq(pack_id(32767, 0)))]


def test_forks_that_were_not_deleted() -> None:
    workers = Workers(2)
    workers.call(0, 1, 0, 10, remote(0))
    workers.call(0, 1, 20, 30, remote(2))
    workers.call(0, 1, 40, 50, RRefUserDelete(GloballyUniqueId(0, 0), GloballyUniqueId(0, 1)))
    found = left(workers)
    assert found == [
        ("w0", "w1", RRefUserDelete(GloballyUniqueId(32767, 2), GloballyUniqueId(32767, 3))),
    ]


def test_a_fork_that_the_owner_was_asked_for() -> None:
    workers = Workers(2)
    workers.call(0, 1, 0, 10, RRefForkRequest(GloballyUniqueId(0, 1), GloballyUniqueId(0, 2)))
    assert [command for _, _, command in left(workers)] == [
        RRefUserDelete(GloballyUniqueId(32767, 1), GloballyUniqueId(32767, 2))
    ]

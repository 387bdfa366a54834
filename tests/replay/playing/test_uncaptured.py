"""What is answered where nothing was captured: the commands that torch's agent would send, or a failure."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rpcinspect.replay.peers.control_calls import NO_TENSORS
from rpcinspect.replay.planning.model import Step
from rpcinspect.replay.planning.steps import NO_ANSWER
from rpcinspect.replay.playing.uncaptured import (
    NOT_THERE,
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
    RRefChildAccept,
    RRefForkRequest,
    RRefUserDelete,
)
from rpcinspect.rpc.envelope import AutogradMetadata
from rpcinspect.rpc.message import MessageType, is_response
from rpcinspect.rpc.types import GloballyUniqueId
from tests.replay.talks import record_of, udf

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

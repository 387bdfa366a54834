"""What is noted of a message, and that requests and answers find each other whichever comes first."""

from __future__ import annotations

import pytest

from rpcinspect.checks.check import MAX_NAME, DigestPairs, MessageDigest, digest_of
from rpcinspect.rpc.command import ExceptionResponse
from rpcinspect.rpc.message import MessageType
from tests.replayer.talks import Workers


def notes(workers: Workers) -> list[MessageDigest]:
    return [digest_of(record) for record in workers.records]


def test_a_call_and_its_answer() -> None:
    workers = Workers(2)
    workers.call(0, 1, 0, 10, "app.f", context=(7, 1), grads=(1, 0))
    request, answer = notes(workers)
    assert (request.kind, request.types) == (MessageType.PYTHON_CALL, (MessageType.FORWARD_AUTOGRAD_REQ,))
    assert (request.wrapped, request.grads, request.what) == (True, True, "app.f")
    assert (request.builtin, request.failed, request.elsewhere, request.whole) == (False, False, False, True)
    assert (answer.types, answer.wrapped, answer.grads, answer.what) == ((), False, False, "PYTHON_RET")


def test_operators_and_errors() -> None:
    workers = Workers(2)
    workers.call(0, 1, 0, 10, "aten::add", ExceptionResponse(b"boom"))
    request, answer = notes(workers)
    assert (request.builtin, request.what, request.failed) == (True, "aten::add", False)
    assert (answer.failed, answer.what) == (True, "EXCEPTION")


def test_names_are_bounded() -> None:
    workers = Workers(2)
    workers.call(0, 1, 0, 10, f"app.{'f' * 5000}")
    assert len(notes(workers)[0].what) == MAX_NAME


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_pairs(order: tuple[int, int]) -> None:
    workers = Workers(2)
    workers.call(0, 1, 0, 10)
    workers.call(0, 1, 20, None)
    made = notes(workers)
    columns = workers.builder.columns
    pairs = DigestPairs(columns)
    first, second = order
    assert pairs.join(2, columns.partner[2], made[2]) is None
    assert pairs.join(first, columns.partner[first], made[first]) is None
    assert pairs.join(second, columns.partner[second], made[second]) is made[first]
    assert pairs.unanswered() == [(2, made[2])]

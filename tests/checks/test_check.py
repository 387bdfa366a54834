"""What a check is asked; what is kept of a message; groups of messages, pairs of requests and answers."""

from __future__ import annotations

import pytest

from rpcinspect.checks.capture_faults import NoRpc
from rpcinspect.checks.check import (
    MAX_NAME,
    Check,
    Crowd,
    DigestPairs,
    MessageDigest,
    MessageGroup,
    MessageGroups,
    digest_of,
)
from rpcinspect.checks.evidence import CaptureEvidence
from rpcinspect.checks.findings import CHECKS
from rpcinspect.checks.wire_facts import WireFacts
from rpcinspect.rpc.command import ExceptionResponse
from rpcinspect.rpc.message import MessageType
from rpcinspect.tcp.ranges import CaptureBytes
from tests.checks.talks import no_bytes
from tests.replayer.talks import Workers


def test_every_check_can_finish_without_a_message() -> None:
    workers = Workers(1)
    columns = workers.builder.columns
    run = CaptureEvidence(workers.finish(), WireFacts())
    for make in CHECKS:
        check = make(columns, CaptureBytes(no_bytes), DigestPairs(columns))
        assert isinstance(check, Check)
        assert [finding.code for finding in check.finish(run)] == (
            ["no-rpc"] if isinstance(check, NoRpc) else []
        )


def test_a_check_must_finish() -> None:
    with pytest.raises(TypeError, match="finish"):
        Check()  # type: ignore[abstract]


def digests(workers: Workers) -> list[MessageDigest]:
    return [digest_of(record) for record in workers.records]


def test_a_call_and_its_answer() -> None:
    workers = Workers(2)
    workers.call(0, 1, 0, 10, "app.f", context=(7, 1), grads=(1, 0))
    request, answer = digests(workers)
    assert (request.kind, request.types) == (MessageType.PYTHON_CALL, (MessageType.FORWARD_AUTOGRAD_REQ,))
    assert (request.wrapped, request.grads, request.what) == (True, True, "app.f")
    assert (request.builtin, request.failed, request.elsewhere, request.whole) == (False, False, False, True)
    assert (answer.types, answer.wrapped, answer.grads, answer.what) == ((), False, False, "PYTHON_RET")


def test_operators_and_errors() -> None:
    workers = Workers(2)
    workers.call(0, 1, 0, 10, "aten::add", ExceptionResponse(b"boom"))
    request, answer = digests(workers)
    assert (request.builtin, request.what, request.failed) == (True, "aten::add", False)
    assert (answer.failed, answer.what) == (True, "EXCEPTION")


def test_names_are_bounded() -> None:
    workers = Workers(2)
    workers.call(0, 1, 0, 10, f"app.{'f' * 5000}")
    assert len(digests(workers)[0].what) == MAX_NAME


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_requests_and_answers_find_each_other(order: tuple[int, int]) -> None:
    workers = Workers(2)
    workers.call(0, 1, 0, 10)
    workers.call(0, 1, 20, None)
    made = digests(workers)
    columns = workers.builder.columns
    pairs = DigestPairs(columns)
    first, second = order
    assert pairs.join(2, columns.partner[2], made[2]) is None
    assert pairs.join(first, columns.partner[first], made[first]) is None
    assert pairs.join(second, columns.partner[second], made[second]) is made[first]
    assert pairs.unanswered() == [(2, made[2])]


def test_groups() -> None:
    workers = Workers(2)
    workers.call(1, 0, 30, 40)
    workers.call(0, 1, 10, 20)
    workers.call(0, 1, 50, 60)
    groups = MessageGroups(workers.builder.columns)
    for row, what in ((4, "a"), (0, "a"), (2, "a"), (3, "a"), (4, "b")):
        groups.add(row, what)
    found = list(groups.finish(CaptureEvidence(workers.finish(), WireFacts())))
    assert found == [
        MessageGroup(0, "w0", "w1", "a", (0, 4)),
        MessageGroup(0, "w1", "w0", "a", (1, 2)),
        MessageGroup(0, "w0", "w1", "b", (4,)),
    ]


def test_what_many_pairs_do_is_told_once() -> None:
    workers = Workers(4)
    pairs = [(a, b) for a in range(4) for b in range(4) if a != b]
    for number, (a, b) in enumerate(pairs):
        workers.call(a, b, 100 * number, 100 * number + 50)
    groups = MessageGroups(workers.builder.columns)
    for number in range(len(pairs)):
        groups.add(2 * number, "all")
    for number in range(3):
        groups.add(2 * number, "few")
    crowd, *few = groups.gathered(CaptureEvidence(workers.finish(), WireFacts()))
    assert isinstance(crowd, Crowd)
    assert crowd.workers == ("w0", "w1", "w2", "w3")
    assert crowd.way == "between w0, w1, w2, w3"
    assert crowd.indexes == tuple(range(0, 2 * len(pairs), 2))
    assert [group.way for group in few] == ["from w0 to w1", "from w0 to w2", "from w0 to w3"]


def test_no_groups() -> None:
    workers = Workers(2)
    assert (
        list(MessageGroups(workers.builder.columns).finish(CaptureEvidence(workers.finish(), WireFacts())))
        == []
    )

"""What a check is asked; groups of messages."""

from __future__ import annotations

import pytest

from rpcinspect.checks.capture_faults import NoRpc
from rpcinspect.checks.check import Check, Crowd, MessageGroup, MessageGroups
from rpcinspect.checks.evidence import CaptureEvidence
from rpcinspect.checks.findings import CHECKS
from rpcinspect.checks.wire_facts import WireFacts
from rpcinspect.tcp.ranges import CaptureBytes
from tests.checks.talks import no_bytes
from tests.replayer.talks import Workers


def test_every_check_can_finish_without_a_message() -> None:
    workers = Workers(1)
    run = CaptureEvidence(workers.finish(), WireFacts())
    for make in CHECKS:
        check = make(CaptureBytes(no_bytes))
        assert isinstance(check, Check)
        assert [finding.code for finding in check.finish(run)] == (
            ["no-rpc"] if isinstance(check, NoRpc) else []
        )


def test_a_check_must_finish() -> None:
    with pytest.raises(TypeError, match="finish"):
        Check()  # type: ignore[abstract]


def test_groups() -> None:
    workers = Workers(2)
    workers.call(1, 0, 30, 40)
    workers.call(0, 1, 10, 20)
    workers.call(0, 1, 50, 60)
    groups = MessageGroups()
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
    groups = MessageGroups()
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
    assert list(MessageGroups().finish(CaptureEvidence(workers.finish(), WireFacts()))) == []

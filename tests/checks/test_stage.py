"""Stages do what they override, and are only asked for that."""

from __future__ import annotations

import pytest

from rpcinspect.checks.capture_faults import NoRpc
from rpcinspect.checks.check import Check, DigestPairs
from rpcinspect.checks.evidence import CaptureEvidence
from rpcinspect.checks.findings import CHECKS
from rpcinspect.checks.wire_facts import WireFacts
from rpcinspect.tcp.ranges import CaptureBytes
from tests.checks.talks import no_bytes
from tests.replayer.talks import Workers


def test_every_stage_can_finish_without_a_message() -> None:
    workers = Workers(1)
    columns = workers.builder.columns
    run = CaptureEvidence(workers.finish(), WireFacts())
    for make in CHECKS:
        stage = make(columns, CaptureBytes(no_bytes), DigestPairs(columns))
        assert isinstance(stage, Check)
        assert [finding.code for finding in stage.finish(run)] == (
            ["no-rpc"] if isinstance(stage, NoRpc) else []
        )


def test_a_stage_must_finish() -> None:
    with pytest.raises(TypeError, match="finish"):
        Check()  # type: ignore[abstract]

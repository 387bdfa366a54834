"""Stages do what they override, and are only asked for that."""

from __future__ import annotations

import pytest

from rpcinspect.checks.evidence import CaptureEvidence
from rpcinspect.checks.findings import STAGES
from rpcinspect.checks.no_rpc import NoRpc
from rpcinspect.checks.notes import Pairs
from rpcinspect.checks.stage import Stage
from rpcinspect.checks.wire_facts import WireFacts
from rpcinspect.tcp.ranges import CaptureBytes
from tests.checks.talks import no_bytes
from tests.replayer.talks import Workers


def test_every_stage_can_finish_without_a_message() -> None:
    workers = Workers(1)
    columns = workers.builder.columns
    run = CaptureEvidence(workers.finish(), WireFacts())
    for make in STAGES:
        stage = make(columns, CaptureBytes(no_bytes), Pairs(columns))
        assert isinstance(stage, Stage)
        assert [finding.code for finding in stage.finish(run)] == (
            ["no-rpc"] if isinstance(stage, NoRpc) else []
        )


def test_a_stage_must_finish() -> None:
    with pytest.raises(TypeError, match="finish"):
        Stage()  # type: ignore[abstract]

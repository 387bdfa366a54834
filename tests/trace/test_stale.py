"""Optimizer steps between another context's forward and backward."""

from __future__ import annotations

import pytest

from rpcinspect.rpc.command import PropagateGradientsReq, PropagateGradientsResp, PythonCall, ScriptCall
from rpcinspect.rpc.envelope import AutogradMetadata
from rpcinspect.rpc.types import unpack_id
from rpcinspect.session.model import Finding
from tests.replay.talks import Workers
from tests.trace.talks import SECOND, findings, of_capture
from tests.truth import workload

STEP = (
    b"\x80\x02ctorch.distributed.rpc.internal\nPythonUDF\n"
    b"ctorch.distributed.optim.optimizer\n_local_optimizer_step\nNK%c\x86}\x87\x81."
)
SCRIPT_STEP = "__torch__.torch.distributed.optim.optimizer._script_local_optimizer_step"


def told(found: list[Finding]) -> list[Finding]:
    return [finding for finding in found if finding.code == "stale-gradient"]


def test_the_race_and_its_lock() -> None:
    run = workload("ps_race")
    died = {event["trainer"] for event in run.of("died")}
    won = {event["trainer"] for event in run.of("finished")}
    session, found = of_capture("ps_race")
    assert {finding.workers[1] for finding in told(found)} == died
    for finding in told(found):
        owner, victim, guilty = finding.workers
        assert (owner, finding.severity) == ("worker0", "warning")
        assert victim in died
        assert guilty in won
        # a step of the guilty one is among the messages
        assert guilty in {session.source(int(session.order[index])) for index in finding.messages}
    assert told(of_capture("ps_race_lock")[1]) == []


def train(step_at: int, step_context: int, *, script: bool = False, owner: int = 0) -> list[Finding]:
    """w1 in context 1: forward on w0 at 0 to 10, gradient from 50 on. w2 makes a step."""
    workers = Workers(3)
    workers.call(1, 0, 0, 10, context=(1 << 48, 1), grads=(0, 1))
    step: PythonCall | ScriptCall = PythonCall(STEP % step_context, False)
    if script:
        step = ScriptCall(args=(None, step_context), schema=None, qualified_name=SCRIPT_STEP)
    workers.call(2, owner, step_at, step_at + 2, step)
    gradient = PropagateGradientsReq(AutogradMetadata(1 << 48, 1001), (), False)
    workers.call(1, 0, 50, 60, gradient, PropagateGradientsResp())
    return told(findings(workers, until=SECOND))


@pytest.mark.parametrize("script", [False, True])
def test_a_step_in_between(script: bool) -> None:
    [finding] = train(20, 7, script=script)
    assert finding.workers[:2] == ("w0", "w1")
    assert "of context 1:0 on w0" in finding.text
    assert "of context 0:7" in finding.text
    assert len(finding.messages) == 3


@pytest.mark.parametrize(
    ("at", "owner"),
    [(-5, 0), (5, 0), (55, 0), (20, 1)],
    ids=["before", "during forward", "after", "elsewhere"],
)
def test_steps_that_spoil_nothing(at: int, owner: int) -> None:
    assert train(at, 7, owner=owner) == []


def test_its_own_step_is_no_fault() -> None:
    workers = Workers(2)
    workers.call(1, 0, 0, 10, context=(7, 1), grads=(0, 1))
    workers.call(1, 0, 20, 22, PythonCall(STEP % 7, False))
    gradient = PropagateGradientsReq(AutogradMetadata(7, 1001), (), False)
    workers.call(1, 0, 50, 60, gradient, PropagateGradientsResp())
    assert unpack_id(7) == (0, 7)
    assert told(findings(workers, until=SECOND)) == []

"""Outcomes of replays that a test makes up, upon plans of real captures or of made up conversations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from rpcinspect.equality.difference import Difference, Elements
from rpcinspect.replayer.planning.gate import ExecutionPolicy
from rpcinspect.replayer.planning.model import Plan, PlannedSession
from rpcinspect.replayer.planning.plan import PlanOptions, plan
from rpcinspect.replayer.playing.outcome import InboundOutcome, ReplayOutcome, SessionOutcome, StepOutcome
from rpcinspect.run.run import RunModel

CAPTURES = Path(__file__).resolve().parent.parent.parent / "captures"

ONE_ULP = Difference(
    code="ulp",
    path="tensors[0].elements[5]",
    a_value=0.5,
    b_value=0.5000000596046448,
    a_bits="0x3f000000",
    b_bits="0x3f000001",
    elements=Elements(
        numel=12,
        differing=1,
        beyond=1,
        kinds=(("ulp", 1),),
        first=5,
        worst=5,
        max_abs=5.960464477539063e-08,
        max_rel=1.1920928955078125e-07,
        max_ulp=1,
    ),
)
"""As the comparison of two tensors finds it."""
FORM = Difference(code="form", path="tensors[0].stride", a_value=[4, 1], b_value=[1, 3])
TOLERATED = replace(ONE_ULP, tolerated=True)


@cache
def planned(name: str, **options: Any) -> Plan:
    """The plan of a bundled capture, with everything allowed."""
    with RunModel.open([str(CAPTURES / name)]) as opened:
        return plan(opened, PlanOptions(trust=True, **options))


@cache
def refused(name: str) -> Plan:
    """The plan of a bundled capture, with nothing allowed."""
    with RunModel.open([str(CAPTURES / name)]) as opened:
        return plan(opened, PlanOptions(), ExecutionPolicy())


def session_of(
    planned: PlannedSession,
    steps: Mapping[int, Mapping[str, Any]] | None = None,
    inbound: Sequence[InboundOutcome] = (),
    **fields: Any,
) -> SessionOutcome:
    """All identical but `steps`, by message, of which some fields are given."""
    changed = steps or {}
    outcomes = []
    for step in planned.steps:
        given: dict[str, Any] = {"result": None if step.action == "skip" else "identical"}
        if step.action == "send":
            given["latency_s"] = 0.0015
        outcomes.append(StepOutcome(step=step, **(given | dict(changed.get(step.message, {})))))
    return SessionOutcome(
        planned=planned, steps=tuple(outcomes), inbound=tuple(inbound), **({"wall_s": 0.25} | fields)
    )


def outcome_of(plan: Plan, *runs: Sequence[SessionOutcome], **fields: Any) -> ReplayOutcome:
    """Without runs given: one in which everything is identical."""
    made = runs or (tuple(session_of(session) for session in plan.sessions),)
    given: dict[str, Any] = {"engine": "wire", "device": "cpu", "wall_s": 3.5, "captured_wall_s": 1.25}
    return ReplayOutcome(plan=plan, runs=tuple(tuple(run) for run in made), **(given | fields))


def not_started(plan: Plan) -> ReplayOutcome:
    """As where the plan is refused, or a worker can't be started."""
    return ReplayOutcome(plan=plan, runs=(), engine="wire", device="cpu", wall_s=0.0, captured_wall_s=1.25)

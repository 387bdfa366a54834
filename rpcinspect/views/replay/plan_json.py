"""A plan as JSON Lines: the contract's `step` lines without results, then the `plan` line.

In: a plan. Out: bytes that end with a line. Fields beyond the contract: of a step `session`, `sender`,
`after`, `envelopes` and `note`; of the plan `sessions`, `ambiguous`, `overlaps`, `notes`, `left_out`,
`trusted`, and each refused name's `reason`.
"""

from __future__ import annotations

from collections.abc import Iterator

from rpcinspect.fields.plain import Json, picked, text
from rpcinspect.replayer.planning.model import GlobalUse, Plan, PlannedSession, Step
from rpcinspect.replayer.planning.sessions import LIVE
from rpcinspect.views.jsonl.lines import lines


def plan_lines(plan: Plan) -> bytes:
    """Returns all lines of a plan."""
    return lines(_objects(plan))


def _objects(plan: Plan) -> Iterator[Json]:
    for session in plan.sessions:
        for step in session.steps:
            yield step_json(step, session)
    yield plan_json(plan)


def step_json(step: Step, session: PlannedSession) -> Json:
    """A `step` line; `result` and `difference` are for a replay to fill."""
    skipped = step.action == "skip"
    return {
        "kind": "step",
        "session": session.number,
        **picked("message type role to action")(step),
        "reason": text(f"{step.code}: {step.text}") if skipped else None,
        "result": None,
        "answer": step.answer,
        "difference": None,
        **picked("sender after envelopes")(step),
        "note": None if skipped or step.text is None else text(step.text),
    }


def plan_json(plan: Plan) -> Json:
    """The `plan` line."""
    return {
        "kind": "plan",
        **picked("roles")(plan),
        "sends": plan.count("send"),
        "answers": plan.count("answer"),
        "skips": dict(plan.skips()),
        "globals": [global_json(use, trusted=plan.trusted) for use in plan.globals],
        "missing": [one or None for one in plan.missing],
        "sessions": [
            {
                "session": session.number,
                **picked("job roles live why")(session.cast),
                "sends": session.count("send"),
                "answers": session.count("answer"),
                "skips": dict(session.skips()),
                **picked("arrivals")(session),
                "stand_ins": stand_ins_json(session),
                "provided": [picked("rref owner source")(one) for one in session.provided],
                "loads": [picked("rref owner after file message")(one) for one in session.loads],
                "needed": [picked("rref owner users functions type stand_in")(one) for one in session.needed],
            }
            for session in plan.sessions
        ],
        "ambiguous": [picked("message parents decided text")(one) for one in plan.ambiguities],
        "overlaps": [
            {"session": session.number, **picked("message others")(one)}
            for session in plan.sessions
            for one in session.overlaps
        ],
        "groups": {"captured": list(plan.captured_groups), "live": LIVE},
        **picked("notes random left_out trusted")(plan),
    }


def stand_ins_json(session: PlannedSession) -> list[Json]:
    """What live workers get for RRefs that are older than the capture."""
    names = "rref owner message forks changed"
    return [{"session": session.number, **picked(names)(one)} for one in session.stand_ins]


def global_json(use: GlobalUse, *, trusted: bool = False) -> Json:
    """A name that would be imported or called."""
    return {
        "name": text(use.name),
        "allowed": use.allowed or trusted,
        "messages": list(use.messages),
        "reason": text(use.reason) or None,
        "allow": use.allow or None,
    }

"""Plans as JSON Lines, held to the contract's text."""

from __future__ import annotations

import json
from typing import Any

from rpcinspect.replayer.planning.gate import ExecutionPolicy
from rpcinspect.replayer.planning.model import REASONS, Plan
from rpcinspect.replayer.planning.plan import PlanOptions
from rpcinspect.views.replay.plan_json import plan_lines
from tests.contract import MAYBE_COUNT, TYPE, check, count, map_of
from tests.replayer.talks import Workers

STEP = {
    "kind": {"step"},
    "message": count,
    "type": TYPE,
    "role": str,
    "to": str,
    "action": {"send", "answer", "skip"},
    "reason": (str, None),
    "result": None,
    "answer": MAYBE_COUNT,
    "difference": None,
}
PLAN = {
    "kind": {"plan"},
    "roles": [str],
    "sends": count,
    "answers": count,
    "skips": map_of(count),
    "globals": [{"name": str, "allowed": bool, "messages": [count]}],
}


def lines_of(plan: Plan) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    objects = [json.loads(line) for line in plan_lines(plan).splitlines()]
    check_contract(objects)
    return objects[:-1], objects[-1]


def check_contract(objects: list[dict[str, Any]]) -> None:
    """Step lines, then one plan line that sums them up."""
    *steps, plan = objects
    check(steps, [STEP], "step")
    check(plan, PLAN, "plan")
    actions = [step["action"] for step in steps]
    assert (plan["sends"], plan["answers"]) == (actions.count("send"), actions.count("answer"))
    assert sum(plan["skips"].values()) == actions.count("skip")
    for step in steps:
        assert (step["reason"] is not None) == (step["action"] == "skip")
        if step["reason"] is not None:
            code, colon, text = step["reason"].partition(": ")
            assert code in REASONS
            assert colon
            assert text
    assert set(plan["skips"]) <= set(REASONS)


def conversation() -> Workers:
    workers = Workers(3)
    workers.call(0, 1, 10, 60)
    workers.call(1, 0, 20, 50)
    workers.call(1, 2, 25, 30)
    workers.call(2, 2, 70, None)
    return workers


def test_steps_and_sums() -> None:
    steps, plan = lines_of(conversation().plan())
    assert [(s["session"], s["message"], s["action"]) for s in steps] == [
        (0, 0, "send"),
        (0, 1, "answer"),
        (0, 2, "skip"),
        (0, 6, "skip"),
        (1, 0, "skip"),
        (1, 1, "skip"),
        (1, 2, "skip"),
        (1, 6, "skip"),
    ]
    assert plan["roles"] == ["w0", "w2"]
    assert [s["live"] for s in plan["sessions"]] == [["w1", "w2"], ["w0", "w1"]]
    assert plan["sessions"][0]["arrivals"] == [1, 5]
    assert plan["skips"] == {"driver-not-live": 3, "nested-in-answer": 1, "self-call": 2}


def test_refusals_are_listed_and_trust_is_told() -> None:
    steps, plan = lines_of(conversation().plan(PlanOptions(roles=("w0",)), ExecutionPolicy()))
    assert steps[0]["reason"] == "not-allowed: app.f: you haven't allowed it"
    assert plan["globals"][0] == {
        "name": "app.f",
        "allowed": False,
        "messages": [0],
        "reason": "you haven't allowed it",
        "allow": "app:f",
    }
    assert plan["trusted"] is False
    _, trusting = lines_of(conversation().plan(PlanOptions(roles=("w0",), trust=True), ExecutionPolicy()))
    assert all(use["allowed"] for use in trusting["globals"])
    assert trusting["trusted"] is True


def test_nothing_to_replay() -> None:
    steps, plan = lines_of(Workers(2).plan())
    assert steps == []
    assert (plan["sends"], plan["sessions"]) == (0, [])


def test_doubts_are_lines_of_the_plan() -> None:
    workers = Workers(3)
    workers.call(1, 2, 1, 5, "app.own")
    workers.call(0, 1, 10, 60, "app.a")
    workers.call(1, 2, 20, 50, "app.b")
    _, plan = lines_of(workers.plan())
    (doubt,) = plan["ambiguous"]
    assert (doubt["message"], doubt["parents"], doubt["decided"]) == (3, [2], 2)

"""What torch's agent can't be made to do, on made up conversations."""

from __future__ import annotations

import pytest

from rpcinspect.replay.agent.limits import cannot
from rpcinspect.replay.planning.plan import PlanOptions
from rpcinspect.rpc.command import (
    CleanupAutogradContextReq,
    CleanupAutogradContextResp,
    Command,
    ExceptionResponse,
    PropagateGradientsReq,
    PropagateGradientsResp,
    ScriptCall,
)
from rpcinspect.rpc.envelope import AutogradMetadata
from rpcinspect.rpc.pickles.tree import Call, Global
from tests.replay.talks import Workers

GRADIENT = PropagateGradientsReq(AutogradMetadata(0, 1001), (), False)
OBJECT = ScriptCall(args=(Call(Global("app", "Thing"), ()),), schema=None, qualified_name="__torch__.f")


def reason(
    caller: int, callee: int, *what: Command | str, context: tuple[int, int] | None = None
) -> str | None:
    talk = Workers(2)
    talk.call(caller, callee, 0, 10, *what, context=context)  # type: ignore[arg-type]
    (call,) = talk.calls()
    return cannot(call, ("w0",), {})


@pytest.mark.parametrize("what", ["app.f", "aten::add"])
def test_calls_in_any_context_and_outside_of_all(what: str) -> None:
    assert reason(0, 1, what) is None
    assert reason(0, 1, what, context=(7, 1)) is None
    assert reason(0, 1, what, context=(1 << 48, 1)) is None


def test_gradients_and_clean_ups() -> None:
    assert reason(0, 1, GRADIENT, PropagateGradientsResp()) is None
    assert reason(1, 0, GRADIENT, PropagateGradientsResp()) is None
    assert reason(0, 1, CleanupAutogradContextReq(0), CleanupAutogradContextResp()) is None
    assert "by itself" in str(reason(1, 0, CleanupAutogradContextReq(0), CleanupAutogradContextResp()))


def test_questions_of_live_workers() -> None:
    assert reason(1, 0, "app.f") is None
    assert "by itself" in str(reason(1, 0, "aten::add"))
    assert "answer with EXCEPTION" in str(reason(1, 0, "app.f", ExceptionResponse(b"no")))
    assert "made to fail" in str(reason(1, 0, GRADIENT, ExceptionResponse(b"no")))


def test_what_it_can_not_send() -> None:
    assert "an object" in str(reason(0, 1, OBJECT))
    assert "speak for a live worker" in str(reason(1, 1, "app.f"))


def test_the_plan_skips_it_and_what_builds_on_it() -> None:
    """w1 asks w0 an operator: torch answers, and the gradients of that edge are not ours either."""
    talk = Workers(2)
    talk.call(0, 1, 0, 40, "app.f", context=(0, 1), grads=(1, 1))
    talk.call(1, 0, 10, 20, "aten::add", context=(0, 1 << 48), grads=(0, 1))
    talk.call(
        0, 1, 50, 90, PropagateGradientsReq(AutogradMetadata(0, 1001), (), False), PropagateGradientsResp()
    )
    edge = AutogradMetadata(0, (1 << 48) + 1000)
    talk.call(1, 0, 55, 70, PropagateGradientsReq(edge, (), False), PropagateGradientsResp())
    plans = [
        talk.plan(PlanOptions(roles=("w0",), trust=True, engine=engine)).sessions[0]
        for engine in ("wire", "agent")  # type: ignore[arg-type]
    ]
    wire, agent = ([(step.action, step.code) for step in plan.steps] for plan in plans)
    assert wire == [("send", None), ("answer", None), ("send", None), ("answer", None)]
    assert agent == [("send", None), ("skip", "unsupported"), ("send", None), ("skip", "unsupported")]

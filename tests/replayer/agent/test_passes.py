"""Which gradients belong to one backward pass, on made up conversations."""

from __future__ import annotations

import pytest

from rpcinspect.pickles.tree import Global, PickleCall
from rpcinspect.replayer.agent.passes import RolePasses, cannot, read_passes
from rpcinspect.replayer.planning.facts import read_facts
from rpcinspect.replayer.planning.plan import PlanOptions
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
from tests.replayer.talks import Workers

GRADIENT = PropagateGradientsReq(AutogradMetadata(0, 1001), (), False)
OBJECT = ScriptCall(args=(PickleCall(Global("app", "Thing"), ()),), schema=None, qualified_name="__torch__.f")


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
    assert "send for a live worker" in str(reason(1, 1, "app.f"))


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


CONTEXT = 0


def gradient(
    talk: Workers, caller: int, callee: int, begin: int, end: int, edge: int, *, retain: bool = False
) -> None:
    request = PropagateGradientsReq(AutogradMetadata(CONTEXT, edge), (), retain)
    talk.call(caller, callee, begin, end, request, PropagateGradientsResp())


def passes_of(talk: Workers, role: str = "w0") -> RolePasses:
    calls = {call.index: call for call in talk.calls()}
    return read_passes(calls, calls, read_facts(talk.run())[0].edges, role)


def test_a_pass_of_its_own() -> None:
    talk = Workers(2)
    talk.call(0, 1, 0, 10, context=(CONTEXT, 1), grads=(1, 1))
    talk.call(0, 1, 20, 30, context=(CONTEXT, 2), grads=(1, 1))
    gradient(talk, 0, 1, 40, 80, 1002)
    gradient(talk, 1, 0, 50, 52, 2)
    gradient(talk, 0, 1, 60, 70, 1001)
    gradient(talk, 1, 0, 65, 67, 1)
    found = passes_of(talk)
    (one,) = found.of(CONTEXT)
    assert (one.root, one.edges, one.arrived) == (True, [1002, 1001], [2, 1])
    assert not found.leaves
    assert not found.loose
    # Of two gradients, the one that was answered last stands for the end of the pass.
    assert {found_at(talk, index) for index in found.early} == {60}


def found_at(talk: Workers, index: int) -> int:
    return next(call.begin_ns for call in talk.calls() if call.index == index)


def test_the_same_edge_again_begins_another_pass() -> None:
    talk = Workers(2)
    talk.call(0, 1, 0, 10, context=(CONTEXT, 1), grads=(1, 1))
    for start in (20, 60):
        gradient(talk, 0, 1, start, start + 20, 1001, retain=True)
        gradient(talk, 1, 0, start + 5, start + 8, 1, retain=True)
    assert [one.edges for one in passes_of(talk).of(CONTEXT)] == [[1001], [1001]]


def test_what_is_kept_begins_another_pass_too() -> None:
    talk = Workers(2)
    talk.call(0, 1, 0, 10, context=(CONTEXT, 1), grads=(0, 1))
    talk.call(0, 1, 12, 18, context=(CONTEXT, 2), grads=(0, 1))
    gradient(talk, 0, 1, 20, 30, 1001, retain=True)
    gradient(talk, 0, 1, 22, 40, 1002, retain=False)
    assert [(one.edges, one.retain) for one in passes_of(talk).of(CONTEXT)] == [
        ([1001], True),
        ([1002], False),
    ]


@pytest.mark.parametrize("begin", [25, 50])
def test_gradients_of_what_was_received_before_are_one_pass_at_once_and_in_turn(begin: int) -> None:
    talk = Workers(2)
    talk.call(0, 1, 0, 10, context=(CONTEXT, 1), grads=(0, 1))
    talk.call(0, 1, 12, 18, context=(CONTEXT, 2), grads=(0, 1))
    gradient(talk, 0, 1, 20, 40, 1001)
    gradient(talk, 0, 1, begin, 60, 1002)
    assert [one.edges for one in passes_of(talk).of(CONTEXT)] == [[1001, 1002]]


def test_the_gradient_of_what_was_received_since_begins_another_pass() -> None:
    talk = Workers(2)
    talk.call(0, 1, 0, 10, context=(CONTEXT, 1), grads=(0, 1))
    gradient(talk, 0, 1, 20, 40, 1001)
    talk.call(0, 1, 42, 48, context=(CONTEXT, 2), grads=(0, 1))
    gradient(talk, 0, 1, 50, 60, 1002)
    assert [one.edges for one in passes_of(talk).of(CONTEXT)] == [[1001], [1002]]


def test_a_pipeline_is_one_pass_though_its_second_stage_has_answered() -> None:
    """The gradient of the first stage leaves after that of the second was answered: it waits for that only
    which came from there."""
    talk = Workers(3)
    talk.call(0, 1, 0, 10, context=(CONTEXT, 1), grads=(0, 1))
    talk.call(0, 2, 12, 18, context=(CONTEXT, 2), grads=(1, 1))
    gradient(talk, 0, 2, 20, 40, 1002)
    gradient(talk, 2, 0, 25, 30, 2)
    gradient(talk, 0, 1, 50, 60, 1001)
    found = passes_of(talk)
    (one,) = found.of(CONTEXT)
    assert (one.root, one.edges, one.arrived) == (True, [1002, 1001], [2])
    assert {found_at(talk, index) for index in found.early} == {20}


def test_a_pass_that_another_worker_began() -> None:
    """w1 calls w0, which answers; the gradient of the answer sets off that of the request."""
    talk = Workers(2)
    talk.call(1, 0, 0, 10, context=(CONTEXT, 1), grads=(1, 1))
    gradient(talk, 1, 0, 20, 40, 1001)
    gradient(talk, 0, 1, 25, 30, 1)
    found = passes_of(talk)
    (one,) = found.of(CONTEXT)
    assert (one.root, one.edges, one.arrived) == (False, [1], [1001])
    assert found.leaves == {(CONTEXT, 1001): (1,)}


def test_a_gradient_that_nothing_received_later_can_set_off() -> None:
    """Its message came after what it would have to hang at was sent."""
    talk = Workers(2)
    talk.call(1, 0, 0, 10, context=(CONTEXT, 1), grads=(0, 1))
    talk.call(1, 0, 12, 18, context=(CONTEXT, 2), grads=(1, 0))
    gradient(talk, 1, 0, 20, 40, 1001)
    gradient(talk, 0, 1, 25, 30, 2)
    found = passes_of(talk)
    assert {found_at(talk, index) for index in found.loose} == {25}
    assert not found.leaves

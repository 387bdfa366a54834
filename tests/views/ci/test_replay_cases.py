"""Replays as tests: the verdict is the exit code's, and a case for each kind of message."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from rpcinspect.cli.replaying import exit_code
from rpcinspect.replayer.playing.outcome import InboundOutcome, ReplayOutcome
from rpcinspect.replayer.playing.report import report
from rpcinspect.run.run import RunModel
from rpcinspect.views.ci.replay_cases import replay_suite
from rpcinspect.views.ci.suite import CaseResult, SuiteResult
from tests.replayer.outcomes import (
    CAPTURES,
    ONE_ULP,
    TOLERATED,
    not_started,
    outcome_of,
    planned,
    refused,
    session_of,
)

CHAIN = "basic_chain.pcap"
SCALE = "answer worker1 → worker0 basic_chain.scale"


def suite_of(outcome: ReplayOutcome, *, require_all: bool = False, error: str | None = None) -> SuiteResult:
    made = report(outcome)
    with RunModel.open([str(CAPTURES / CHAIN)]) as run:
        failed = exit_code(made, require_all=require_all) != 0
        return replay_suite(outcome, made, run, failed=failed, require_all=require_all, error=error)


def chain(steps: dict[int, dict[str, Any]], **fields: Any) -> ReplayOutcome:
    plan = planned(CHAIN)
    return outcome_of(plan, [session_of(plan.sessions[0], steps, **fields)])


def case(suite: SuiteResult, name: str) -> CaseResult:
    return next(case for case in suite.cases if case.name == name)


def test_everything_identical() -> None:
    suite = suite_of(outcome_of(planned(CHAIN)))
    assert {one.outcome for one in suite.cases} == {"passed"}
    assert [one.name for one in suite.cases] == [
        "verdict",
        SCALE,
        "answer worker1 → worker0 aten::add.Tensor",
        "gradients worker0 → worker1",
        "gradients worker1 → worker0",
        "answer worker1 → worker0 CLEANUP_AUTOGRAD_CONTEXT_REQ",
        "request worker1 → worker0 CLEANUP_AUTOGRAD_CONTEXT_REQ",
    ]
    assert case(suite, "verdict").lines[-1].startswith("identical: 4 of 4 gradients")
    assert case(suite, SCALE).seconds == 0.0015
    assert suite.annotations == ()


@pytest.mark.parametrize(
    ("result", "outcome"), [("different", "failure"), ("unanswered", "failure"), ("failed", "error")]
)
def test_what_did_not_come_as_captured(result: str, outcome: str) -> None:
    suite = suite_of(chain({6: {"result": result, "differences": (ONE_ULP,), "text": "the code changed"}}))
    found = case(suite, SCALE)
    assert found.outcome == outcome
    assert found.message.startswith(
        "1 of 1 not as captured, first #6  worker0 → worker1  FORWARD_AUTOGRAD_REQ"
    )
    assert found.message.endswith("the code changed")
    assert [one.name for one in suite.cases if one.bad] == ["verdict", SCALE]
    assert [mark.title for mark in suite.annotations] == ["rpcinspect replay", f"rpcinspect replay: {SCALE}"]


def test_what_is_within_the_tolerance_passes_and_says_so() -> None:
    suite = suite_of(chain({6: {"result": "tolerance", "differences": (TOLERATED,)}}))
    assert {one.outcome for one in suite.cases} == {"passed"}
    assert case(suite, SCALE).lines == ("1 of 1 as captured", "1 of these within the tolerance")


def test_what_has_nothing_to_compare_with_is_skipped() -> None:
    suite = suite_of(chain({6: {"result": None, "text": "its answer was not captured"}}))
    assert case(suite, SCALE).outcome == "skipped"
    assert case(suite, "verdict").outcome == "passed"


@pytest.mark.parametrize("required", [False, True])
def test_requests_that_are_skipped_count_where_all_are_required(required: bool) -> None:
    plan = planned(CHAIN)
    (session,) = plan.sessions
    steps = [
        replace(step, action="skip", code="older-rref", text=None) if step.message == 6 else step
        for step in session.steps
    ]
    plan = replace(plan, sessions=(replace(session, steps=tuple(steps)),))
    suite = suite_of(outcome_of(plan), require_all=required)
    told = case(suite, SCALE)
    assert told.outcome == ("failure" if required else "skipped")
    assert "older-rref: it uses an RRef that was made before the capture began" in told.message
    assert case(suite, "verdict").bad == required


def test_a_request_that_nobody_captured_fails_the_verdict_alone() -> None:
    strange = InboundOutcome(
        captured=None,
        type="PYTHON_CALL",
        sender="worker1",
        role="worker0",
        result="different",
        text="like none",
    )
    suite = suite_of(chain({}, inbound=(strange,)))
    assert [one.name for one in suite.cases if one.bad] == ["verdict"]
    (mark,) = suite.annotations
    assert "not expected: 1 request of live workers" in "\n".join(mark.lines)


def test_a_refusal_is_an_error_that_says_what_to_allow() -> None:
    suite = suite_of(not_started(refused(CHAIN)))
    (verdict,) = suite.cases
    assert (verdict.outcome, verdict.message) == ("error", "refused: nothing was replayed")
    assert "--allow basic_chain:scale" in "\n".join(verdict.lines)
    assert "--allow basic_chain:scale" in "\n".join(suite.annotations[0].lines)


def test_workers_that_do_not_start_are_an_error() -> None:
    suite = suite_of(not_started(planned(CHAIN)), error="worker1 did not start\nits output")
    assert (suite.cases[0].outcome, suite.cases[0].message) == ("error", "worker1 did not start")


def test_a_session_that_ended_early() -> None:
    steps = {
        step.message: {"result": "failed"}
        for step in planned(CHAIN).sessions[0].steps
        if step.action != "skip"
    }
    suite = suite_of(chain(steps, failure="worker1 was killed by SIGKILL"))
    assert case(suite, "verdict").outcome == "error"
    assert "worker1 was killed by SIGKILL" in "\n".join(case(suite, "verdict").lines)

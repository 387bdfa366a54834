"""What a replay came to: every count by the contract's own words."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rpcinspect.replayer.planning.plan import PlanOptions
from rpcinspect.replayer.playing.outcome import InboundOutcome, Result
from rpcinspect.replayer.playing.report import Counts, first_difference, merged, report, worst
from rpcinspect.rpc.command import PropagateGradientsReq
from rpcinspect.rpc.envelope import AutogradMetadata
from tests.replayer.outcomes import (
    FORM,
    ONE_ULP,
    TOLERATED,
    not_started,
    outcome_of,
    planned,
    refused,
    session_of,
)
from tests.replayer.talks import Workers

CHAIN = "basic_chain.pcap"
"""worker0 sends #6, #8, #10, #13, #18; worker1 sends #11, #15, #19 back. Gradients: #10, #11, #13, #15."""


def test_everything_identical() -> None:
    made = report(outcome_of(planned(CHAIN)))
    assert made.verdict == "identical"
    assert (made.sent, made.answered, made.failed, made.unanswered) == (5, 3, 0, 0)
    assert made.skipped == made.not_replayed == {"control": 4}
    assert made.responses == Counts(expected=5, identical=5)
    assert made.gradients == Counts(expected=4, identical=4)
    assert made.gradients_back == Counts(expected=2, identical=2)
    assert (made.not_observed, made.self_calls, made.out_of_reach, made.unexpected) == (0, 0, 0, 0)
    assert (made.runs, made.identical_runs) == (1, 1)
    assert (made.wall_s, made.captured_wall_s, made.messages_wall_s) == (3.5, 1.25, 0.25)
    assert made.same
    assert made.lost == 0


@pytest.mark.parametrize(
    ("message", "result", "verdict"),
    [
        (11, "tolerance", "tolerance"),
        (11, "different", "different"),
        (11, "unanswered", "different"),
        (11, "failed", "failed"),
        (6, "different", "different"),
    ],
)
def test_one_step_decides_the_verdict(message: int, result: Result, verdict: str) -> None:
    plan = planned(CHAIN)
    made = report(outcome_of(plan, [session_of(plan.sessions[0], {message: {"result": result}})]))
    assert made.verdict == verdict
    assert made.same == (verdict == "tolerance")
    assert made.identical_runs == (verdict == "tolerance")
    gradient, answer = message == 11, message == 6
    assert made.gradients.identical == 4 - gradient
    assert getattr(made.gradients, result) == gradient
    assert made.gradients_back.identical == 2 - gradient
    assert made.responses.identical == 5 - answer
    assert made.answered == 3 - (result in ("unanswered", "failed"))
    assert made.sent == 5


def test_what_was_not_sent_is_not_counted_as_sent() -> None:
    plan = planned(CHAIN)
    steps = {8: {"result": "failed"}, 10: {"result": "unanswered"}, 13: {"result": "failed"}}
    made = report(outcome_of(plan, [session_of(plan.sessions[0], steps)]))
    assert (made.sent, made.failed, made.unanswered) == (3, 2, 1)
    assert made.responses == Counts(expected=5, identical=2, unanswered=1, failed=2)
    assert made.gradients == Counts(expected=4, identical=2, unanswered=1, failed=1)


def test_an_unexpected_request_is_a_difference() -> None:
    plan = planned(CHAIN)
    came = InboundOutcome(
        captured=None, type="PYTHON_CALL", sender="worker1", role="worker0", result="different"
    )
    made = report(outcome_of(plan, [session_of(plan.sessions[0], inbound=[came])]))
    assert (made.verdict, made.unexpected) == ("different", 1)


def test_a_session_that_ended_early_has_failed() -> None:
    plan = planned(CHAIN)
    made = report(outcome_of(plan, [session_of(plan.sessions[0], failure="worker1 has ended")]))
    assert (made.verdict, made.identical_runs) == ("failed", 0)


def test_refused_and_nothing_to_replay() -> None:
    made = report(not_started(refused(CHAIN)))
    assert made.verdict == "refused"
    assert [use.name for use in made.refused] == ["basic_chain.scale"]
    assert (made.sent, made.answered, made.failed) == (0, 0, 0)
    assert made.gradients.identical == 0
    assert made.gradients.expected == 4
    hidden = report(not_started(planned("transport_matrix_default.pcap")))
    assert (hidden.verdict, hidden.gradients.expected) == ("nothing-to-replay", 0)
    blind = report(not_started(planned("transport_matrix_uv_only.pcap.gz")))
    assert blind.verdict == "nothing-to-replay"
    assert blind.gradients == Counts(expected=2, skipped=2)
    assert blind.lost == 7


def test_what_could_not_start_has_failed() -> None:
    made = report(not_started(planned(CHAIN)))
    assert made.verdict == "failed"
    assert (made.sent, made.failed) == (0, 8)
    assert made.responses == Counts(expected=5, failed=5)


def gradient(context: int, edge: int) -> PropagateGradientsReq:
    return PropagateGradientsReq(AutogradMetadata(context, edge), (), False)


# --- several sessions and runs ------------------------------------------------------------------------------


def test_nothing_is_counted_twice_over_sessions() -> None:
    plan = planned("bwd_boom.pcap.gz")
    assert len(plan.sessions) == 1
    made = report(outcome_of(plan))
    assert made.not_replayed == {"control": 8, "nested-in-answer": 4}
    assert (made.gradients.expected, made.not_observed) == (1, 1)
    assert made.lost == 0
    both = planned("bwd_boom.pcap.gz", roles=("worker0", "worker1"))
    seen = report(outcome_of(both))
    assert (seen.gradients.expected, seen.not_observed) == (2, 0)


def test_gradients_that_only_live_workers_see() -> None:
    plan = planned("bwd_boom.pcap.gz", roles=("worker1",))
    made = report(outcome_of(plan, [session_of(plan.sessions[0])]))
    assert made.gradients == Counts(expected=1, skipped=1)
    assert made.not_observed == 1
    assert made.verdict == "nothing-to-replay"


def test_the_worst_session_decides_and_skips_do_not() -> None:
    """The same gradient in two sessions: skipped in one, sent in the other."""
    plan = planned("ps_race.pcap.gz")
    once = plan.sessions[0]
    gradient = next(s for s in once.steps if s.type == "BACKWARD_AUTOGRAD_REQ" and s.action == "send")
    skipped = tuple(
        replace(step, action="skip", code="driver-not-live", text="as a test says") for step in once.steps
    )
    twice = replace(plan, sessions=(once, replace(once, number=1, steps=skipped)))
    expected = report(outcome_of(plan)).gradients
    assert report(outcome_of(twice)).gradients == expected
    assert report(outcome_of(twice)).not_replayed == report(outcome_of(plan)).not_replayed
    again = replace(plan, sessions=(once, replace(once, number=1)))
    bad = session_of(again.sessions[1], {gradient.message: {"result": "different"}})
    made = report(outcome_of(again, [session_of(once), bad]))
    assert made.gradients == replace(expected, identical=expected.identical - 1, different=1)
    assert made.responses.expected == report(outcome_of(plan)).responses.expected
    assert made.sent == 2 * report(outcome_of(plan)).sent


def test_the_worst_run_decides() -> None:
    plan = planned(CHAIN)
    (session,) = plan.sessions
    runs = [
        [session_of(session)],
        [session_of(session, {11: {"result": "different", "differences": (ONE_ULP,)}})],
        [session_of(session, {11: {"result": "tolerance"}})],
    ]
    outcome = outcome_of(plan, *runs)
    made = report(outcome)
    assert (made.verdict, made.runs, made.identical_runs) == ("different", 3, 2)
    assert made.gradients == Counts(expected=4, identical=3, different=1)
    assert made.sent == 5
    (found,) = [one for one in merged(outcome)[0].steps if one.step.message == 11]
    assert found.differences == (ONE_ULP,)


def test_an_interrupted_replay() -> None:
    workers = Workers(3)
    workers.call(0, 1, 10, 20)
    workers.call(2, 1, 30, 40)
    plan = workers.plan()
    first, *others = plan.sessions
    assert others
    made = report(outcome_of(plan, [session_of(first)], interrupted=True))
    assert (made.verdict, made.same) == ("failed", False)
    assert made.failed == sum(session.count("send") + session.count("answer") for session in others)
    whole = report(outcome_of(plan, interrupted=True))
    assert (whole.verdict, whole.same) == ("identical", False)


def test_gradients_to_oneself_and_between_played_workers() -> None:
    workers = Workers(3)
    workers.call(0, 1, 10, 20, context=(7, 1), grads=(0, 1))
    workers.call(0, 1, 30, 40, gradient(7, 1001))
    workers.call(0, 2, 50, 60, context=(7, 2), grads=(0, 1))
    workers.call(0, 2, 70, 80, gradient(7, 1002))
    workers.call(0, 0, 90, 95, gradient(7, 1003))
    made = report(outcome_of(workers.plan()))
    assert (made.gradients.expected, made.self_calls, made.out_of_reach) == (2, 1, 0)
    two = report(outcome_of(workers.plan(PlanOptions(roles=("w0", "w2"), trust=True))))
    assert (two.gradients.expected, two.self_calls, two.out_of_reach) == (1, 1, 1)
    assert two.not_replayed == {"both-played": 2, "self-call": 1}
    assert two.lost == 3


# --- small parts --------------------------------------------------------------------------------------------


def test_the_first_difference_that_counts() -> None:
    late = replace(ONE_ULP, code="latency")
    assert first_difference([late, TOLERATED, FORM], "different") is FORM
    assert first_difference([late, TOLERATED], "tolerance") is TOLERATED
    assert first_difference([late], "identical") is None
    assert first_difference([ONE_ULP], "identical") is None
    lacking, error = replace(ONE_ULP, code="envelope"), replace(ONE_ULP, code="error")
    assert first_difference([lacking, error], "different") is error


def test_the_worst_of_several() -> None:
    plan = planned(CHAIN)
    step = plan.sessions[0].steps[0]
    results: list[Result] = ["identical", "failed", "different", "unanswered", "tolerance"]
    outcomes = [
        session_of(plan.sessions[0], {step.message: {"result": result}}).steps[0] for result in results
    ]
    assert worst(outcomes).result == "failed"
    assert worst(outcomes[2:]).result == "unanswered"

"""Steps of a replay with their results."""

from __future__ import annotations

from typing import Any

import pytest

from rpcinspect.replayer.playing.outcome import StepOutcome
from rpcinspect.replayer.playing.report import merged
from rpcinspect.views.replay.replay_steps import outcome_lines, show_steps
from tests.cli.runner import visible
from tests.replayer.outcomes import ONE_ULP, not_started, outcome_of, planned, refused, session_of
from tests.views.opened import file_console, terminal_console

CHAIN = "basic_chain.pcap"


def step(message: int, **fields: Any) -> StepOutcome:
    plan = planned(CHAIN)
    session = session_of(plan.sessions[0], {message: fields})
    (found,) = (one for one in session.steps if one.step.message == message)
    return found


@pytest.mark.parametrize(
    ("message", "fields", "told"),
    [
        (8, {}, ["worker0 → worker1  FORWARD_AUTOGRAD_REQ  identical to #9"]),
        (11, {}, ["worker1 → worker0  BACKWARD_AUTOGRAD_REQ  identical"]),
        (11, {"result": None}, ["worker1 → worker0  BACKWARD_AUTOGRAD_REQ  did not come"]),
        (
            8,
            {"result": "unanswered"},
            ["worker0 → worker1  FORWARD_AUTOGRAD_REQ  nothing came, #9 was captured"],
        ),
        (
            8,
            {"result": "failed", "text": "the pipe\nwas lost"},
            ["worker0 → worker1  FORWARD_AUTOGRAD_REQ  failed", "the pipe\\nwas lost"],
        ),
        (
            11,
            {"result": "different", "differences": (ONE_ULP,) * 3, "text": "rounding"},
            [
                "worker1 → worker0  BACKWARD_AUTOGRAD_REQ  different",
                (
                    "tensors[0].elements[5]: captured 0.5, live 0.5000000596046448 "
                    "(1 ulp; 1 of 12 elements differs); 2 more differences"
                ),
                "rounding",
            ],
        ),
    ],
)
def test_one_step(message: int, fields: dict[str, Any], told: list[str]) -> None:
    head, *why = outcome_lines(step(message, **fields))
    assert [head.removeprefix(f"#{message}  "), *why] == told


def test_a_session() -> None:
    plan = planned(CHAIN)
    changed = {11: {"result": "different", "differences": (ONE_ULP,)}}
    (session,) = merged(outcome_of(plan, [session_of(plan.sessions[0], changed)]))
    console, out = file_console()
    show_steps(session, console, 1)
    title, *rows, blank = out.getvalue().splitlines()
    assert title == "session 1 of 1: worker0 played, worker1 live"
    assert blank == ""
    assert [int(row[:6]) for row in rows] == [one.step.message for one in session.steps]
    assert visible(out.getvalue())
    console, out = terminal_console(60)
    show_steps(session, console, 1)
    (different,) = (line for line in out.getvalue().splitlines() if "different" in line)
    assert different.startswith("\x1b[31m")


def test_what_was_refused_was_not_begun() -> None:
    (session,) = merged(not_started(refused(CHAIN)))
    console, out = file_console()
    show_steps(session, console, 1)
    rows = {int(row[:6]): row for row in out.getvalue().splitlines()[1:-1]}
    assert "not-allowed: basic_chain.scale" in rows[6]
    assert rows[8].endswith("not begun")
    assert rows[0].endswith("control: the agents' own call")

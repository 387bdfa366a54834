"""Cells of two replays: values where they differ, and what is said where there is none."""

from __future__ import annotations

import io

from rich.console import Console

from rpcinspect.equality.difference import Difference
from rpcinspect.replayer.against import MessagePair, PairVerdict, SourceResult
from rpcinspect.replayer.playing.outcome import Result, StepOutcome
from rpcinspect.replayer.playing.report import report
from rpcinspect.views.replay.against import show_against
from tests.cli.runner import CHAIN
from tests.replayer.outcomes import not_started, planned

PLAN = planned(CHAIN.name)
STEP = next(step for step in PLAN.sessions[0].steps if step.action == "send")


def outcome(result: Result | None, path: str = "", live: object = None) -> StepOutcome:
    difference = Difference(code="value", path=path, a_value=0.5, b_value=live)
    return StepOutcome(step=STEP, result=result, differences=(difference,) if path else ())


def row(first: StepOutcome | None, second: StepOutcome | None, verdict: PairVerdict) -> str:
    """The row of one message, without the columns that say which it is."""
    made = not_started(PLAN)
    sides = [SourceResult(label=name, outcome=made, report=report(made), error=None) for name in ("a", "b")]
    pair = MessagePair(session=0, step=STEP, first=first, second=second, verdict=verdict)
    console = Console(file=io.StringIO(), width=400)
    show_against(sides[0], sides[1], [pair], console, every=True)
    return console.file.getvalue().splitlines()[1].partition(STEP.type)[2].strip()  # type: ignore[attr-defined]


def test_values_at_one_place_and_at_two() -> None:
    one, same = outcome("different", "value.a", 1.5), outcome("different", "value.a", 2.5)
    assert row(one, same, "all-differ").split() == ["value.a", "0.5", "1.5", "2.5", "all-differ"]
    other = outcome("different", "value.b", 2.5)
    assert row(one, other, "all-differ").split() == ["value.a", "0.5", "1.5", "value.b:", "2.5", "all-differ"]


def test_what_has_no_value() -> None:
    one = outcome("different", "value.a", 1.5)
    assert "nothing came" in row(one, outcome("unanswered"), "all-differ")
    assert "not compared" in row(one, outcome(None), "not-compared")
    assert "not planned" in row(one, None, "not-compared")
    assert "as captured" in row(one, outcome("identical"), "first-differs")

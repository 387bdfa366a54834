"""Steps of a replay with their results, a line each.

In: steps with what came of them. Out: lines of printable text.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from rpcinspect.equality.difference import Difference
from rpcinspect.replay.model import Step
from rpcinspect.replay.outcome import Result, StepOutcome
from rpcinspect.replay.report import SessionResult, first_difference
from rpcinspect.views.difference import difference_phrase
from rpcinspect.views.phrases import duration, printable
from rpcinspect.views.plan_table import session_title, skip_phrase, step_ends, step_heads
from rpcinspect.views.table import write_line

RESULT_WORDS: dict[Result, str] = {
    "identical": "identical",
    "tolerance": "within the tolerance",
    "different": "different",
    "unanswered": "nothing came",
    "failed": "failed",
}
RESULT_STYLES: dict[Result, str] = {
    "identical": "",
    "tolerance": "yellow",
    "different": "red",
    "unanswered": "red",
    "failed": "red",
}
SIDES = ("captured", "live")


def show_steps(session: SessionResult, console: Console, of: int) -> None:
    """Every step of a session, in its order."""
    write_line(console, session_title(session.planned, of), "bold")
    heads = step_heads([one.step for one in session.steps])
    for one, head in zip(session.steps, heads, strict=True):
        style = "dim" if one.result is None else RESULT_STYLES[one.result]
        write_line(console, f"{head}  {_came(one)}".rstrip(), style)
    write_line(console, "")


def outcome_line(one: StepOutcome) -> str:
    """A step that is told by itself: `#14  worker1 → worker0  BACKWARD_AUTOGRAD_REQ  different: …`."""
    return f"#{one.step.message}  {step_ends(one.step)}  {one.step.type}  {_came(one)}"


def _came(one: StepOutcome) -> str:
    if one.result is None:
        return skip_phrase(one.step) if one.step.action == "skip" else "not begun"
    word = f"{RESULT_WORDS[one.result]}{_to(one.step, one.result)}"
    why = told(one.differences, one.result, one.text)
    if why:
        return f"{word}: {why}"
    if one.latency_s is not None and one.result == "identical":
        return f"{word}, {duration(round(one.latency_s * 1e9))}"
    return word


def _to(step: Step, result: Result) -> str:
    """Which captured message a sent one's answer was compared with."""
    if step.action != "send" or step.answer is None or result == "failed":
        return ""
    return f" to #{step.answer}" if result != "unanswered" else f", #{step.answer} was captured"


def told(differences: Sequence[Difference], result: Result, text: str | None) -> str:
    """Why a result is what it is: the first difference that counts, then the engine's words."""
    words = []
    first = first_difference(differences, result)
    if first is not None:
        words.append(difference_phrase(first, SIDES))
    if len(differences) > 1:
        words.append(
            f"{len(differences) - 1} more differences" if len(differences) > 2 else "1 more difference"
        )
    if text:
        words.append(printable(text))
    return "; ".join(words)

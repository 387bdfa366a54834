"""Steps of a replay with their results, a line each.

In: steps with what came of them. Out: lines of printable text.
"""

from __future__ import annotations

from collections.abc import Sequence

from rpcinspect.equality.difference import Difference
from rpcinspect.fields.phrases import counted, duration, printable
from rpcinspect.replayer.playing.outcome import FAILED_HERE, Result, StepOutcome, error_line
from rpcinspect.replayer.playing.report import SessionResult, first_difference
from rpcinspect.views.difference import difference_phrase
from rpcinspect.views.replay.plan_table import session_title, skip_phrase, step_ends, step_heads
from rpcinspect.views.text.console import TextConsole
from rpcinspect.views.text.table import write_line

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


def show_steps(session: SessionResult, console: TextConsole, of: int) -> None:
    """Every step of a session, in its order."""
    write_line(console, session_title(session.planned, of), "bold")
    heads = step_heads([one.step for one in session.steps])
    for one, head in zip(session.steps, heads, strict=True):
        style = "dim" if one.result is None else RESULT_STYLES[one.result]
        write_line(console, f"{head}  {_came(one)}".rstrip(), style)
    write_line(console, "")


def outcome_lines(one: StepOutcome) -> list[str]:
    """Returns the lines of a step that is shown by itself: the step, its result, then the reasons."""
    head = f"#{one.step.message}  {step_ends(one.step)}  {one.step.type}  {_result(one)}"
    return [head, *told(one.differences, one.result, one.text)]


def _came(one: StepOutcome) -> str:
    """The same in what is left of a line."""
    if one.step.action == "skip":
        return skip_phrase(one.step)
    why = told(one.differences, one.result, one.text)
    if why:
        return f"{_result(one)}: {'; '.join(why)}"
    if one.latency_s is not None and one.result == "identical":
        return f"{_result(one)}, {duration(round(one.latency_s * 1e9))}"
    return _result(one)


def _result(one: StepOutcome) -> str:
    """The result, and which captured message the answer to a sent one was compared with."""
    if one.result is None:
        return "not begun" if one.step.action == "send" else "did not come"
    word = RESULT_WORDS[one.result]
    if one.step.action != "send" or one.step.answer is None or one.result == "failed":
        return word
    if one.result == "unanswered":
        return f"{word}, #{one.step.answer} was captured"
    if one.result == "different":
        return f"differs from #{one.step.answer}"
    return f"{word} to #{one.step.answer}"


def told(differences: Sequence[Difference], result: Result | None, text: str | None) -> list[str]:
    """Returns the reasons of a result: the first difference that counts, then the engine's words."""
    lines = []
    first = first_difference(differences, result)
    if first is not None:
        more = len(differences) - 1
        rest = f"; {counted(more, 'more difference')}" if more else ""
        if first.code == "error" and first.a_value is None and isinstance(first.b_value, str):
            now = error_line(first.b_value)
            if text and text.startswith(FAILED_HERE):
                now, text = text.removeprefix(FAILED_HERE), None
            lines.append(printable(f"captured: a result; now: {now}"))
        else:
            lines.append(f"{difference_phrase(first, SIDES)}{rest}")
    if text:
        lines.append(printable(text))
    return lines

"""A plan for people: each session's steps in order, then what is skipped and why, and what would be run.

In: a plan. Out: lines of printable text on a console.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console

from rpcinspect.replay.model import REASONS, Plan, PlannedSession, Step
from rpcinspect.views.phrases import counted, printable
from rpcinspect.views.table import end_label, join_ends, pad, write_line

MAX_INDEXES = 8
MAX_DOUBTS = 10
STYLES = {"send": "", "answer": "cyan", "skip": "dim"}


def show_plan(plan: Plan, console: Console, *, control: bool = False) -> None:
    """Prints everything; `control`: the agents' own calls too."""
    for session in plan.sessions:
        _show_session(session, console, len(plan.sessions), control=control)
    for line, style in _closing(plan):
        write_line(console, line, style)


def _show_session(session: PlannedSession, console: Console, of: int, *, control: bool) -> None:
    cast = session.cast
    played, live = ", ".join(map(end_label, cast.roles)), ", ".join(map(end_label, cast.live))
    title = f"session {session.number + 1} of {of}: {played} played, {live or 'nobody'} live"
    write_line(console, f"{title} ({printable(cast.why)})", "bold")
    steps = [step for step in session.steps if control or step.code != "control"]
    ends = max((cell_len(_ends(step)) for step in steps), default=0)
    kinds = max((len(step.type) for step in steps), default=0)
    for step in steps:
        answer = "" if step.answer is None else f"#{step.answer}"
        line = f"{step.message:>6}  {step.action:<6}  {pad(_ends(step), ends)}  {step.type:<{kinds}}  "
        write_line(console, f"{line}{_told(step) or answer}".rstrip(), STYLES[step.action])
    sums = f"{session.count('send')} to send, {counted(session.count('answer'), 'answer')} to give"
    write_line(console, f"{sums}, {sum(session.skips().values())} skipped")
    if session.overlaps:
        shown = _indexes([one.message for one in session.overlaps])
        write_line(console, f"{shown}: overlapped calls of other played workers; they go by their answers")
    write_line(console, "")


def _ends(step: Step) -> str:
    """Who sends the request to whom."""
    receiver = step.to if step.sender == step.role else step.role
    return join_ends(end_label(step.sender), end_label(receiver))


def _told(step: Step) -> str:
    if step.action != "skip":
        return printable(step.text or "")
    return printable(f"{step.code}: {step.text}" if step.text else step.code or "")


def _closing(plan: Plan) -> Iterator[tuple[str, str]]:
    """(line, style) of what holds for all sessions."""
    if plan.sessions:
        sessions = f" in {counted(len(plan.sessions), 'session')}" if len(plan.sessions) > 1 else ""
        sums = f"{plan.count('send')} to send, {counted(plan.count('answer'), 'answer')} to give{sessions}"
        yield sums, "bold"
    else:
        yield "Nothing to replay: no worker started anything of its own.", "yellow"
    if plan.left_out:
        yield f"{counted(plan.left_out, 'request')} left out: not of this context, and not needed for it", ""
    for code, count in plan.skips().items():
        yield f"{count:>6}  {code}: {REASONS[code]}", ""
    for note in plan.notes:
        yield f"note: {printable(note)}", "yellow"
    for doubt in plan.ambiguities[:MAX_DOUBTS]:
        yield f"ambiguous: {printable(doubt.text)}", "yellow"
    if len(plan.ambiguities) > MAX_DOUBTS:
        more = counted(len(plan.ambiguities) - MAX_DOUBTS, "more ambiguous request")
        yield f"and {more}; --role NAME decides them, --format jsonl lists them", "yellow"
    yield from _names(plan)


def _names(plan: Plan) -> Iterator[tuple[str, str]]:
    if plan.globals:
        yield "", ""
        yield "what the live workers would import and call:", "bold"
    for use in plan.globals:
        allowed = use.allowed or plan.trusted
        mark, style = ("allowed", "") if allowed else ("REFUSED", "bold red")
        reason = f"  {printable(use.reason)}" if use.reason else ""
        yield f"  {mark}  {printable(use.name)}{reason} ({_indexes(use.messages)})", style
    if plan.refused:
        count = counted(len(plan.refused), "name")
        yield f"A replay would be refused: {count} that nobody allowed.", "bold red"
    elif plan.trusted and any(not use.allowed for use in plan.globals):
        yield "Nothing is refused: --trust-capture lets this capture run whatever it names.", "bold yellow"


def _indexes(messages: Sequence[int]) -> str:
    shown = ", ".join(f"#{index}" for index in messages[:MAX_INDEXES])
    more = len(messages) - MAX_INDEXES
    return f"{shown} and {more:,} more" if more > 0 else shown

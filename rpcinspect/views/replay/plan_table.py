"""A plan for people: what would be run, each session's steps in order, then what is skipped and why.

In: a plan. Out: lines of printable text on a console.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len

from rpcinspect.fields.phrases import counted, end_label, indexes, join_ends, printable
from rpcinspect.pickles.safe_names import STANDARD_LIBRARY
from rpcinspect.replayer.planning.allowances import ATEN, BY_MAIN
from rpcinspect.replayer.planning.model import (
    REASONS,
    GlobalUse,
    NeededObject,
    Plan,
    PlannedSession,
    Step,
    some_of,
)
from rpcinspect.replayer.planning.sources import MAIN_NAMES
from rpcinspect.views.text.console import TextConsole
from rpcinspect.views.text.table import pad, write_line

MAX_DOUBTS = 10
STYLES = {"send": "", "answer": "cyan", "skip": "dim"}


def show_plan(plan: Plan, console: TextConsole, *, control: bool = False) -> None:
    """Prints everything, what would be refused first; `control`: the agents' own calls too."""
    for line, style in _names(plan):
        write_line(console, line, style)
    for session in plan.sessions:
        _show_session(session, console, len(plan.sessions), control=control)
    for line, style in _closing(plan):
        write_line(console, line, style)


def _show_session(session: PlannedSession, console: TextConsole, of: int, *, control: bool) -> None:
    write_line(console, f"{session_title(session, of)} ({printable(session.cast.why)})", "bold")
    for line in given_lines(session):
        write_line(console, line, "yellow")
    steps = [step for step in session.steps if control or step.code != "control"]
    heads = step_heads(steps)
    for step, head in zip(steps, heads, strict=True):
        answer = "" if step.answer is None else f"answer #{step.answer}"
        told = skip_phrase(step) if step.action == "skip" else printable(step.text or "")
        write_line(console, f"{head}  {told or answer}".rstrip(), STYLES[step.action])
    if of > 1:
        sums = f"{session.count('send')} to send, {counted(session.count('answer'), 'answer')} to give"
        write_line(console, f"{sums}, {sum(session.skips().values())} skipped")
    if session.overlaps:
        shown = indexes([one.message for one in session.overlaps])
        write_line(
            console, f"{shown}: overlapped other played workers' calls; they wait for the answers before them"
        )
    write_line(console, "")


def session_title(session: PlannedSession, of: int) -> str:
    """`session 1 of 2: worker0 played, worker1 live`."""
    cast = session.cast
    played, live = ", ".join(map(end_label, cast.roles)), ", ".join(map(end_label, cast.live))
    return f"session {session.number + 1} of {of}: {played} played, {live or 'nobody'} live"


def given_lines(session: PlannedSession) -> Iterator[str]:
    """Yields what live workers get that is not in the messages of the capture."""
    for made in session.provided:
        yield printable(f"{made.owner} gets an {made.text}")
    for stand_in in session.stand_ins:
        yield printable(f"{stand_in.owner} gets a {stand_in.text}")
    for one in session.loads:
        yield printable(f"{one.owner}: {one.text}")


def needed_lines(needed: Sequence[NeededObject]) -> Iterator[tuple[str, str]]:
    """Yields (line, style): the RRefs that skipped requests need, each with options to paste."""
    if needed:
        yield "Skipped requests need these objects, which were made before the capture began:", "bold"
    for one in needed:
        name = f"{one.rref[0]}:{one.rref[1]}"
        kind = "" if one.type == "PyObject" else f", a TorchScript {one.type.rpartition('.')[2]}"
        functions = some_of([end_label(function) for function in one.functions], 3)
        users = some_of([f"#{index}" for index in one.users], 5)
        yield printable(f"  RRef {name} of {one.owner}{kind}: for {users} ({functions})"), ""
        stand_in = "" if one.stand_in is None else f"; or --stand-ins, from #{one.stand_in}"
        yield f"    --provide {name}=MODULE:FUNCTION{stand_in}", "cyan"


def step_heads(steps: Sequence[Step]) -> list[str]:
    """What each line begins with, in columns: number, action, ends, type."""
    ends = max((cell_len(step_ends(step)) for step in steps), default=0)
    kinds = max((len(step.type) for step in steps), default=0)
    return [
        f"{step.message:>6}  {step.action:<6}  {pad(step_ends(step), ends)}  {step.type:<{kinds}}"
        for step in steps
    ]


def step_ends(step: Step) -> str:
    """Who sends the request to whom."""
    receiver = step.to if step.sender == step.role else step.role
    return join_ends(end_label(step.sender), end_label(receiver))


def skip_phrase(step: Step) -> str:
    """Returns why a step is skipped: code and words."""
    return printable(f"{step.code}: {step.text}" if step.text else step.code or "")


def _closing(plan: Plan) -> Iterator[tuple[str, str]]:
    """(line, style) of what holds for all sessions."""
    if plan.sessions:
        sessions = f" in {counted(len(plan.sessions), 'session')}" if len(plan.sessions) > 1 else ""
        sums = f"{plan.count('send')} to send, {counted(plan.count('answer'), 'answer')} to give{sessions}"
        yield sums, "bold"
    else:
        yield "Nothing to replay: no worker's own program made a call.", "yellow"
    if plan.left_out:
        yield f"{counted(plan.left_out, 'request')} left out: not in this context, and not needed for it", ""
    for code, count in plan.skips().items():
        yield f"{count:>6}  {code}: {REASONS[code]}", ""
    yield from needed_lines([one for session in plan.sessions for one in session.needed])
    for note in (*plan.notes, *filter(None, [plan.random])):
        yield f"note: {printable(note)}", "yellow"
    for doubt in plan.ambiguities[:MAX_DOUBTS]:
        yield f"ambiguous: {printable(doubt.text)}", "yellow"
    if len(plan.ambiguities) > MAX_DOUBTS:
        more = counted(len(plan.ambiguities) - MAX_DOUBTS, "more ambiguous request")
        yield f"and {more}; --role NAME decides them, --format jsonl lists them", "yellow"


def _names(plan: Plan) -> Iterator[tuple[str, str]]:
    if plan.globals:
        yield "what the live workers would import and call:", "bold"
    for use in plan.globals:
        yield name_line(use, allowed=use.allowed or plan.trusted)
    if plan.refused:
        count = counted(len(plan.refused), "name")
        yield f"A replay would be refused: {count} that you haven't allowed.", "bold red"
        yield allow_line(plan.missing), "bold"
    elif plan.trusted and any(not use.allowed for use in plan.globals):
        yield "Nothing is refused: --trust-capture lets this capture run all that it names.", "bold yellow"
    if plan.globals:
        yield "", ""


def allow_line(missing: Sequence[str]) -> str:
    """What to add to the command so that nothing is refused, to be pasted."""
    options = ["--main SCRIPT.py"] if BY_MAIN in missing else []
    options += [f"--allow {one}" for one in missing if one not in ("", BY_MAIN)]
    line = f"To allow this, add: {printable(' '.join(options))}"
    if any(map(_is_in_a_file, missing)):
        line += " (--path DIR instead allows what your files there define)"
    if "" not in missing:
        return line
    rest = "What is refused here" if not options else f"{line}\nThe rest of what is refused here"
    return (
        f"{rest} would run code, or can't be judged, so no option is offered. Find out who wrote the "
        "capture; --trust-capture runs everything that it names."
    )


def _is_in_a_file(allow: str) -> bool:
    """Whether `--path` may stand for an `--allow`: of a function or class of a module of the user's."""
    module, colon, name = allow.partition(":")
    root = module.partition(".")[0]
    of_others = root in MAIN_NAMES or root in ("torch", "numpy") or root in STANDARD_LIBRARY
    return bool(colon) and not (of_others or "." in name or allow.startswith(ATEN))


def name_line(use: GlobalUse, *, allowed: bool) -> tuple[str, str]:
    """Returns a name with the gate's decision and the messages that bring the name; and a style."""
    mark, style = ("allowed", "") if allowed else ("REFUSED", "bold red")
    reason = f"  {printable(use.reason)}" if use.reason else ""
    return f"  {mark}  {printable(use.name)}{reason} ({indexes(use.messages)})", style

"""What came of a replay for people: gradients first, then answers, then what live workers sent, skips,
failures, and the verdict as the last line.

In: an outcome and its report. Out: lines of printable text on a console; a screen or less where everything is
identical. `replay_steps` has the list of all steps. Longer than other modules: one part after the other of
the same page of text.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from rpcinspect.fields.phrases import (
    counted,
    duration,
    end_label,
    indexes,
    join_ends,
    packed,
    path_label,
    printable,
)
from rpcinspect.replayer.peers.traffic_pcap import NOT_RECORDED
from rpcinspect.replayer.planning.model import REASONS
from rpcinspect.replayer.planning.sessions import LIVE
from rpcinspect.replayer.playing.outcome import (
    InboundOutcome,
    ReplayOutcome,
    SessionOutcome,
    StepOutcome,
    TrafficRecording,
)
from rpcinspect.replayer.playing.report import GRADIENT, RANK, Counts, Report, SessionResult, merged
from rpcinspect.replayer.workers.live_group import LeafGradient
from rpcinspect.rpc.dtypes import DTYPES, element_value
from rpcinspect.rpc.message import type_name
from rpcinspect.rpc.questions import CLEAN_UP
from rpcinspect.views.replay.plan_table import allow_line, given_lines, name_line, needed_lines, session_title
from rpcinspect.views.replay.replay_steps import RESULT_STYLES, outcome_lines, show_steps, told
from rpcinspect.views.text.columns import Line
from rpcinspect.views.text.console import StyledText, TextConsole

UNTIMELY = frozenset(type_name(kind) for kind in CLEAN_UP)
"""Types of what agents send when Python drops something."""
MAX_SHOWN = 10
MAX_ALIKE = 3
"""Failures with the same reason that are shown one by one."""
MAX_SESSIONS = 12
MAX_OUTPUT_LINES = 15
MAX_VALUES = 6

COLUMNS = {
    "expected": "expected",
    "identical": "identical",
    "within tolerance": "tolerance",
    "different": "different",
    "missing": "unanswered",
    "failed": "failed",
    "skipped": "skipped",
}
"""Their titles, and where `Counts` has them."""
ALWAYS = ("expected", "identical")

VERDICT_STYLES = {"identical": "bold green", "tolerance": "bold green", "nothing-to-replay": "bold yellow"}
VERDICT_WORDS = {"tolerance": "within the tolerance", "nothing-to-replay": "nothing to replay"}


def show_replay(
    outcome: ReplayOutcome,
    made: Report,
    console: TextConsole,
    *,
    every_step: bool = False,
    error: str | None = None,
) -> None:
    """Prints everything. `every_step`: the list of steps too; `error`: why nothing could be started."""
    if every_step:
        sessions = merged(outcome)
        for session in sessions:
            show_steps(session, console, len(sessions))
    for line, style in report_lines(outcome, made, error):
        console.print(StyledText(line, style=style), soft_wrap=not console.is_terminal)


def report_lines(outcome: ReplayOutcome, made: Report, error: str | None = None) -> Iterator[Line]:
    """Yields everything but the list of steps."""
    sessions = merged(outcome)
    if made.verdict == "refused":
        yield "Refused. The replay would call these names, which you haven't allowed:", "bold"
        yield from (name_line(use, allowed=False) for use in made.refused)
        yield allow_line(made.missing), "bold"
        yield verdict_line(made)
        return
    if error is not None:
        yield from _quoted(error)
    if outcome.runs:
        yield from _sessions(sessions)
        yield from _given(outcome)
        yield from _results(outcome, made, sessions)
    yield from _held(outcome)
    if error is None:
        yield from _skips(made, sessions)
    if outcome.runs:
        yield from _groups(outcome)
        yield from _failures(outcome)
        yield from _times(made)
        yield from needed_lines([one for session in outcome.plan.sessions for one in session.needed])
    yield from _searches(outcome)
    yield from _recording(outcome.recording)
    drawn = [outcome.plan.random] if made.verdict == "different" and outcome.plan.random else []
    for note in (*outcome.plan.notes, *drawn):
        yield f"note: {printable(note)}", "yellow"
    if outcome.plan.ambiguities:
        count = len(outcome.plan.ambiguities)
        doubts = counted(count, "request")
        yield f"note: the cause of {doubts} is not certain; --plan names {'it' if count == 1 else 'them'}", ""
    yield verdict_line(made)


def _sessions(sessions: Sequence[SessionResult]) -> Iterator[Line]:
    """Who was played in each, in a line."""
    left_out = 0
    for place, session in enumerate(sessions):
        counts = Counts.of(one.result for one in session.steps if one.result is not None)
        if place >= MAX_SESSIONS and counts.alike == counts.expected:
            left_out += 1
            continue
        happened = any(one.step.action != "skip" for one in session.steps)
        did = "nothing that can be compared" if happened else "nothing to do"
        if counts.expected:
            did = f"{counts.alike} of {counts.expected} messages as captured"
        title = session_title(session.planned, len(sessions))
        alone = counts.expected and len(sessions) == 1  # then the table below has the numbers
        yield title if alone else f"{title}; {did}", "bold"
    if left_out:
        yield f"and {counted(left_out, 'more session')}, everything as captured", ""


def _results(outcome: ReplayOutcome, made: Report, sessions: Sequence[SessionResult]) -> Iterator[Line]:
    """A table of gradients, answers and requests of live workers, then each that is not as captured."""
    several = len(sessions) > 1
    steps = [(one, session.planned.number) for session in sessions for one in session.steps]
    gradients = [pair for pair in steps if pair[0].step.type == GRADIENT]
    others = [pair for pair in steps if pair[0].step.type != GRADIENT]
    answers = [pair for pair in others if pair[0].step.action == "send"]
    requests = [pair for pair in others if pair[0].step.action == "answer" and pair[0].result is not None]
    kinds = (
        ("gradients", made.gradients, gradients),
        ("answers", made.responses, answers),
        ("requests", made.requests, requests),
    )
    rows = [(name, counts) for name, counts, _ in kinds if counts.expected]
    if rows:
        yield from _counts_table(rows)
    if made.gradients.expected:
        yield _directions(made), _style(made.gradients)
    for name, _, its in kinds:
        bad = list(_bad(its, several))
        if bad:
            yield f"{name} that are not identical:", "bold"
            yield from bad
    yield from _unexpected(outcome, sessions)
    yield from _not_compared(outcome, steps)


def _not_compared(outcome: ReplayOutcome, steps: Sequence[tuple[StepOutcome, int]]) -> Iterator[Line]:
    """Messages that came, or were waited for, and of which the capture has not enough, by the reason; but not
    what agents send in their own time."""
    reasons = Counter(
        one.text
        for one, _ in steps
        if one.step.action != "skip" and one.result is None and one.step.type not in UNTIMELY
    )
    reasons += Counter(
        one.text
        for run in outcome.runs
        for session in run
        for one in session.inbound
        if one.captured is None and one.result is None and one.type not in UNTIMELY
    )
    for text, count in reasons.most_common():
        yield f"not compared: {counted(count, 'message')}: {printable(text or '')}", "yellow"


def _counts_table(rows: Sequence[tuple[str, Counts]]) -> Iterator[Line]:
    """How many there are of each kind, and what came of them; no column of zeros."""
    shown = [
        (title, [getattr(counts, name) for _, counts in rows])
        for title, name in COLUMNS.items()
        if title in ALWAYS or any(getattr(counts, name) for _, counts in rows)
    ]
    width = max(len(name) for name, _ in rows)
    yield " " * width + "".join(f"  {title}" for title, _ in shown), "bold"
    for place, (name, counts) in enumerate(rows):
        numbers = "".join(f"  {column[place]:>{len(title)},}" for title, column in shown)
        yield f"{name:<{width}}{numbers}", _style(counts)


def _directions(made: Report) -> str:
    """How many of the gradients were sent, which says that they were taken, and how many came back, which
    says that they were computed again.
    """
    back, all_ = made.gradients_back, made.gradients
    taken, sent = all_.alike - back.alike, all_.expected - back.expected
    parts = [f"{taken} of {sent} sent were accepted"] if sent else []
    parts.append(f"{back.alike} of {back.expected} returned match" if back.expected else "none return")
    return f"of the gradients {', '.join(parts)}"


def _style(counts: Counts) -> str:
    return "" if counts.alike == counts.expected else "bold red"


def _bad(pairs: Sequence[tuple[StepOutcome, int]], several: bool) -> Iterator[Line]:
    """The steps that are not identical, the worst first; a few of those that failed for the same reason."""
    bad = [pair for pair in pairs if pair[0].result not in ("identical", None)]
    bad.sort(key=lambda pair: -RANK[pair[0].result or "identical"])
    shown = 0
    reasons: Counter[str | None] = Counter()
    for one, session in bad:
        reasons[one.text] += 1
        if shown == MAX_SHOWN or (one.result == "failed" and reasons[one.text] > MAX_ALIKE):
            continue
        shown += 1
        head, *why = outcome_lines(replace(one, text=one.text if reasons[one.text] == 1 else None))
        where = f" (session {session + 1})" if several else ""
        yield f"  {head}{where}", RESULT_STYLES[one.result or "identical"]
        yield from ((f"      {line}", "") for line in why)
    if len(bad) > shown:
        yield f"  and {len(bad) - shown:,} more; --all lists every step", "yellow"


def _unexpected(outcome: ReplayOutcome, sessions: Sequence[SessionResult]) -> Iterator[Line]:
    """Yields messages of live workers that belong to no step, and are not as captured."""
    steps = {
        (session.planned.number, one.step.message)
        for session in sessions
        for one in session.steps
        if one.step.action == "answer"
    }
    bad: list[tuple[InboundOutcome, str]] = []
    for number, run in enumerate(outcome.runs):
        for session in run:
            where = f" (session {session.planned.number + 1})" if len(sessions) > 1 else ""
            where += f" (run {number + 1})" if len(outcome.runs) > 1 else ""
            for one in session.inbound:
                known = one.captured is not None and (session.planned.number, one.captured) in steps
                if one.result not in ("identical", None) and not known:
                    bad.append((one, where))
    if bad:
        yield f"not expected: {counted(len(bad), 'request')} of live workers", "bold red"
    for one, where in bad[:MAX_SHOWN]:
        like = printable(one.text or "") if one.captured is None else f"#{one.captured}"
        text = None if one.captured is None else one.text
        ends = join_ends(end_label(one.sender), end_label(one.role))
        yield f"  {ends}  {one.type}  {like}{where}", RESULT_STYLES[one.result or "identical"]
        yield from ((f"      {line}", "") for line in told(one.differences, one.result, text))
    if len(bad) > MAX_SHOWN:
        yield f"  and {len(bad) - MAX_SHOWN:,} more; --format jsonl lists them", "yellow"


def _skips(made: Report, sessions: Sequence[SessionResult]) -> Iterator[Line]:
    """Requests that no session replayed. Why an engine can't do it has many reasons: each is told."""
    for code, count in made.not_replayed.items():
        texts = Counter(_texts(sessions, code).values()) if code == "unsupported" else Counter()
        if texts.total() == count:
            shown = texts.most_common(MAX_SHOWN)
            yield from ((f"skipped: {its:,} {code}: {printable(text)}", "yellow") for text, its in shown)
            if rest := count - sum(its for _, its in shown):
                yield f"skipped: {rest:,} {code}: for other reasons; --plan lists them", "yellow"
            continue
        yield f"skipped: {count:,} {code}: {REASONS.get(code, code)}", "" if code == "control" else "yellow"
    left: dict[str, list[int]] = defaultdict(list)
    for message, reason in made.gradients_left.items():
        left[reason].append(message)
    for reason, its in left.items():
        told = f"{counted(len(its), 'gradient')} ({indexes(its)})"
        yield f"not compared: {told}: {printable(reason)}", "yellow"


def _texts(sessions: Sequence[SessionResult], code: str) -> dict[int, str]:
    """Returns message → why it is skipped, of those with this code."""
    steps = [one.step for session in sessions for one in session.steps]
    return {step.message: step.text or code for step in steps if step.code == code}


def _failures(outcome: ReplayOutcome) -> Iterator[Line]:
    for number, run in enumerate(outcome.runs):
        where = f" of run {number + 1}" if len(outcome.runs) > 1 else ""
        for session in run:
            if session.failure is not None:
                first, *rest = session.failure.splitlines() or [""]
                title = f"session {session.planned.number + 1}{where} ended early: {printable(first)}"
                yield title, "bold red"
                yield from _rest(rest)
            yield from _output(session)


def _output(session: SessionOutcome) -> Iterator[Line]:
    """Processes that ended early, and the end of what they wrote."""
    for one in session.ended:
        written = [line for line in one.output.splitlines() if line.strip()]
        if one.text not in (session.failure or ""):
            yield printable(one.text), "yellow"
        wrote = f"the last output of {one.who}:" if written else f"{one.who} had written nothing"
        yield printable(wrote), "yellow"
        yield from _rest(written[-MAX_OUTPUT_LINES:])


def _rest(rows: Sequence[str]) -> Iterator[Line]:
    for row in rows:
        yield f"  {printable(row)}", ""


def _quoted(error: str) -> Iterator[Line]:
    first, *rest = error.splitlines() or [""]
    yield printable(first), "bold red"
    yield from _rest(rest)


def _times(made: Report) -> Iterator[Line]:
    runs = f" in {made.runs} runs" if made.runs > 1 else ""
    times = [_seconds(value) for value in (made.messages_wall_s, made.captured_wall_s, made.wall_s)]
    yield f"the messages took {times[0]}{runs}, {times[1]} in the capture; the whole replay {times[2]}", ""


def _recording(made: TrafficRecording | None) -> Iterator[Line]:
    if made is not None:
        yield f"recorded in {path_label(str(made.path))}. {NOT_RECORDED}", ""
    if made is not None and made.failure is not None:
        yield f"the recording ends early: {printable(made.failure)}", "bold red"


def _groups(outcome: ReplayOutcome) -> Iterator[Line]:
    """What kind of group this was played in, where the captured one was of another kind."""
    others = [kind for kind in outcome.plan.captured_groups if kind != LIVE]
    if others:
        yield "note: the captured group had a world_size, the live one has none; this changes no result", ""


def _given(outcome: ReplayOutcome) -> Iterator[Line]:
    """What live workers got that is not what the capture began with."""
    for session in outcome.plan.sessions:
        where = f" (session {session.number + 1})" if len(outcome.plan.sessions) > 1 else ""
        yield from ((f"{line}{where}", "yellow") for line in given_lines(session))


def _searches(outcome: ReplayOutcome) -> Iterator[Line]:
    """Which seeds were found, and what they explain."""
    for one in outcome.searches:
        where = f" (session {one.session + 1})" if len(outcome.plan.sessions) > 1 else ""
        tried = f"{counted(one.tried, 'seed')} tried in {_seconds(one.wall_s)}{where}"
        for found in one.found:
            told = f"with it {indexes(found.explains)} as captured, without it not"
            yield f"seed: {end_label(found.worker)} had {found.seed}: {told}; {tried}", "green"
        for worker, message in one.missing.items():
            over = ", out of time" if one.out_of_time else ""
            none = f"none from {one.tries[0]} to {one.tries[-1]} explains #{message} of {end_label(worker)}"
            yield f"seed: {none}; {tried}{over}", "yellow"
        if one.failure is not None:
            yield f"seed: not searched, since the session ends early{where}", "yellow"
        elif not one.found and not one.missing:
            yield f"seed: nothing to search for: everything matches without one{where}", ""


def _seconds(value: float) -> str:
    return duration(round(value * 1e9))


def _held(outcome: ReplayOutcome) -> Iterator[Line]:
    """What live workers accumulated in the last run, context by context, if that was asked for."""
    for session in outcome.runs[-1] if outcome.runs else ():
        if session.gradients is None:
            continue
        where = f" (session {session.planned.number + 1})" if len(outcome.plan.sessions) > 1 else ""
        if not any(session.gradients.values()):
            yield f"live workers got no gradients{where}", ""
        for worker, contexts in session.gradients.items():
            yield from _contexts(worker, contexts, where)


def _contexts(worker: str, contexts: Mapping[int, Sequence[LeafGradient]], where: str) -> Iterator[Line]:
    for context, gradients in contexts.items():
        leaves = counted(len(gradients), "gradient")
        yield f"{end_label(worker)} has {leaves} in context {packed(context)}{where}", "bold"
        for gradient in gradients:
            yield f"  {gradient_phrase(gradient)}", ""


def gradient_phrase(gradient: LeafGradient) -> str:
    """`Stage2.fc.weight [4,16] float32: 0.5 1.0 …`, of what no module has `[3,4] float32 parameter: …`."""
    words = [] if gradient.name is None else [gradient.name]
    words += [f"[{','.join(map(str, gradient.shape))}]", gradient.dtype]
    if gradient.layout != "strided":
        words.append(f"{gradient.layout}, shown dense")
    if gradient.parameter and gradient.name is None:
        words.append("parameter")
    values = _first_values(gradient)
    return printable(f"{' '.join(words)}: {values}")


def _first_values(gradient: LeafGradient) -> str:
    dtype = DTYPES.get(gradient.dtype)
    if gradient.data is None:
        return "too many bytes to show"
    if dtype is None:
        return f"{len(gradient.data):,} bytes"
    size = dtype.item_bytes
    starts = range(0, min(len(gradient.data), MAX_VALUES * size), size)
    shown = [str(element_value(dtype, gradient.data[start : start + size])) for start in starts]
    return " ".join(shown) + (" …" if len(gradient.data) > MAX_VALUES * size else "")


def verdict_line(made: Report) -> Line:
    """`identical: 12 of 12 gradients, 24 of 24 answers; 3 skipped (2 control, 1 self-call)`, or what is not
    as captured: `different: 4 of 12 gradients don't match`.
    """
    word = VERDICT_WORDS.get(made.verdict, made.verdict)
    style = VERDICT_STYLES.get(made.verdict, "bold red")
    kinds = [(made.gradients, "gradient"), (made.responses, "answer"), (made.requests, "request")]
    # What an interrupted replay did not come to counts as failed.
    wrong = [
        f"{count:,} of {counted(counts.expected, noun)}"
        for counts, noun in kinds
        if (count := counts.wrong - (counts.failed if made.interrupted else 0))
    ]
    if made.interrupted:
        until = "identical until then" if made.verdict == "failed" and not wrong else word
        word, style = f"interrupted; {until}", "bold red"
    if made.verdict == "refused" or (made.verdict == "failed" and not (made.runs or made.interrupted)):
        return f"{word}: nothing was replayed", style
    if made.runs > 1:
        word = f"{word} ({made.identical_runs} of {made.runs} runs as captured)"
    out = f"{word}: "
    if made.interrupted and not made.identical_runs and not _differs(made):
        out = "interrupted; nothing was compared"
    elif wrong:
        out += f"{' and '.join([', '.join(wrong[:-1]), wrong[-1]][len(wrong) == 1 :])} don't match"
    else:
        out += ", ".join(_n_of_m(counts, noun) for counts, noun in kinds[:2])
    if made.unexpected:
        out += f"; {counted(made.unexpected, 'request')} came that the capture lacks"
    skipped = sum(made.not_replayed.values())
    if skipped:
        reasons = ", ".join(f"{count:,} {code}" for code, count in made.not_replayed.items())
        out += f"; {skipped:,} skipped ({reasons})"
    return out, style


def _differs(made: Report) -> bool:
    """Whether anything came, as captured or otherwise."""
    kinds = (made.gradients, made.responses, made.requests)
    return any(one.alike or one.different or one.unanswered for one in kinds)


def _n_of_m(counts: Counts, noun: str) -> str:
    if not counts.expected:
        return f"no {noun}s"
    near = f" (and {counts.tolerance} within the tolerance)" if counts.tolerance else ""
    return f"{counts.identical} of {counted(counts.expected, noun)}{near}"

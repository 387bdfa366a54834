"""What stands below the table: sums, workers, counts by type, findings, problems.

In: the session. Out: rich texts, a paragraph or a table each, that a terminal of any width can wrap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING

from rpcinspect.fields.phrases import amount, counted, duration, indexes, path_label, pieces, printable
from rpcinspect.problems import Problem
from rpcinspect.session.model import CaptureInfo, Finding, Session
from rpcinspect.tcp.clocks import ClockOffset
from rpcinspect.views.columns import Column, Table, table
from rpcinspect.views.questions.session import WORKER, lasts
from rpcinspect.views.text.columns import table_lines
from rpcinspect.views.text.console import StyledText, TextConsole
from rpcinspect.views.words import moment, place_words
from rpcinspect.views.worker_logs import file_lines

if TYPE_CHECKING:
    from rpcinspect.filter.matches import Shown

COUNTS = (
    Column(title="message", of=itemgetter(0)),
    Column(title="count", of=itemgetter(1), right=True),
)
SEVERITY_STYLES = {"error": "bold red", "warning": "yellow", "info": "cyan"}
MAX_PROBLEMS = 20
NEGLIGIBLE_NS = 1_000
"""Clocks that agree so well need no word."""


def show_summary(session: Session, console: TextConsole, *, hidden: int, shown: Shown | None = None) -> None:
    """Prints everything; in words that wrap at a terminal's edge, in whole lines to a file."""
    for part in summary(session, hidden, shown):
        console.print(part, soft_wrap=not console.is_terminal)


def summary(session: Session, hidden: int, shown: Shown | None = None) -> Iterator[StyledText]:
    """Paragraph by paragraph."""
    yield StyledText()
    yield from _captures(session)
    if shown is not None:
        match = "matches" if shown.count == 1 else "match"
        yield StyledText(f"{counted(shown.count, 'message')} {match} {printable(shown.text)}", style="bold")
        yield from (StyledText(f"  {hint}", style="yellow") for hint in shown.hints)
    if hidden:
        yield StyledText(hidden_words(hidden))
    yield from _sums(session)
    if session.worker_logs is not None:
        for line, strange in file_lines(session.worker_logs):
            yield StyledText(line, style="yellow" if strange else "")
    if session.workers:
        yield from _table(table(WORKER, session.workers))
    by_type = session.totals.by_type if shown is None else shown.by_type(session)
    if by_type:
        yield from _table(table(COUNTS, [*by_type.items()]))
    findings = session.findings if shown is None else shown.findings(session)
    for finding in findings:
        yield StyledText()
        yield finding_text(finding)
    others = len(session.findings) - len(findings)
    if others:
        name = "names" if others == 1 else "name"
        yield StyledText()
        yield StyledText(
            f"{counted(others, 'more finding')} {name} none of the messages that match: not shown"
        )
    if session.problems:
        yield StyledText()
        yield from _problems(session)


def hidden_words(count: int) -> str:
    """How many messages of housekeeping a view leaves out."""
    return f"{counted(count, 'housekeeping message')} hidden; --all shows them"


def _captures(session: Session) -> Iterator[StyledText]:
    messages = counted(session.totals.messages, "message")
    if len(session.captures) == 1:
        yield StyledText(f"{messages} in {_capture(session.captures[0])}", style="bold")
        return
    yield StyledText(f"{messages} in {len(session.captures)} captures", style="bold")
    for capture in session.captures:
        yield StyledText(f"  {_capture(capture)}")
        if capture.clock is not None and (
            capture.clock.certain or capture.clock.uncertainty_ns > NEGLIGIBLE_NS
        ):
            yield StyledText(f"    {_clock(capture.clock)}")


def _capture(capture: CaptureInfo) -> str:
    name = path_label(capture.path)
    told = f"{name} ({capture.format}, {pieces(capture.packets, capture.reader)}"
    if capture.first_time_ns is not None and capture.last_time_ns is not None:
        told += f", {lasts(capture)} from {moment(capture.first_time_ns)}"
    return f"{told})"


def _clock(clock: ClockOffset) -> str:
    """How a capture's clock differs from the first one's, and whether that was made up for."""
    way = "ahead of" if clock.offset_ns > 0 else "behind"
    size, doubt = duration(abs(clock.offset_ns)), duration(clock.uncertainty_ns)
    by = f"by {counted(clock.connections, 'connection')} that both hold"
    told = f"its clock is {size} {way} the first one's (± {doubt}, {by})"
    return (
        f"{told}: its times were {'set right' if clock.certain else 'left alone, since that is too little'}"
    )


def _sums(session: Session) -> Iterator[StyledText]:
    totals = session.totals
    sizes = [f"{amount(totals.rpc_bytes)} of RPC", f"{amount(totals.tensor_bytes)} of tensors"]
    if totals.missing_bytes:
        sizes.append(f"{amount(totals.missing_bytes)} missing")
    if totals.store_bytes:
        sizes.append(f"{amount(totals.store_bytes)} of the TCPStore")
    if totals.skipped_bytes:
        sizes.append(f"{amount(totals.skipped_bytes)} of other traffic")
    yield StyledText(", ".join(sizes))
    counts = []
    if session.contexts:
        counts.append(counted(len(session.contexts), "autograd context"))
    if session.rrefs:
        counts.append(counted(len(session.rrefs), "RRef"))
    counts.append(counted(totals.problems, "decoding problem"))
    yield StyledText(", ".join(counts))


def _table(part: Table) -> Iterator[StyledText]:
    """A header and rows."""
    yield StyledText()
    yield from (StyledText(line, style=style) for line, style in table_lines(part))


def finding_text(finding: Finding) -> StyledText:
    """A finding: severity and code, what it is, which messages, what helps."""
    text = StyledText()
    text.append(f"{finding.severity}: {finding.code}", style=SEVERITY_STYLES[finding.severity])
    text.append(f"  {printable(finding.text)}")
    if finding.messages:
        text.append(f" ({indexes(finding.messages)})")
    if finding.remedy:
        text.append(f"\n  {printable(finding.remedy)}")
    return text


def _problems(session: Session) -> Iterator[StyledText]:
    """Problems that belong to no message; those of messages are at their lines."""
    for problem in session.problems[:MAX_PROBLEMS]:
        yield StyledText(problem_line(problem, session.captures), style="yellow")
    more = len(session.problems) - MAX_PROBLEMS
    if more > 0:
        yield StyledText(f"… and {counted(more, 'more problem')}; --format jsonl lists all", style="yellow")


def problem_line(problem: Problem, captures: Sequence[CaptureInfo]) -> str:
    """Layer, reason, and as much of the place as is known."""
    where = problem.location
    place = []
    if where.capture is not None and len(captures) > 1:
        place.append(path_label(captures[where.capture].path))
    place += place_words(where)
    at = f" ({', '.join(place)})" if place else ""
    return f"problem: {problem.layer}: {printable(problem.reason)}{at}"

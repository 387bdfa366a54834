"""What a page tells of a run before anybody asks: sums, captures, workers, findings, tables.

In: a run and the part of it that is shown: everything, or what the messages that a filter picked take part
in. Out: a `Page` of plain data that a template writes down; all of its text is printable, none of it is
escaped for HTML.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from msgspec import Struct

from rpcinspect.fields.phrases import amount, captures_title, counted, duration, printable
from rpcinspect.fields.table import FIELDS
from rpcinspect.filter.matches import Shown
from rpcinspect.rpc.message import type_name
from rpcinspect.run.graph import ContextGraph
from rpcinspect.run.latency import for_people
from rpcinspect.run.run import RunModel
from rpcinspect.session.model import Finding, Session
from rpcinspect.views.columns import Column, Style, Table, table
from rpcinspect.views.html.kit import Bar, bars
from rpcinspect.views.page.charts import busiest, moved, slowest
from rpcinspect.views.questions.devices import maps_table, needed_lines
from rpcinspect.views.questions.disconnects import verdict
from rpcinspect.views.questions.latency import FUNCTION, PAIR, groups_table, stragglers_table
from rpcinspect.views.questions.rrefs import forks_table, rrefs_table
from rpcinspect.views.questions.session import (
    CAPTURE,
    PIPE,
    PipeEnds,
    pipes_of,
    workers_table,
)
from rpcinspect.views.words import moment, place_words

MAX_WORKERS = 200
MAX_PIPES = 200
MAX_PROBLEMS = 50
MAX_GROUPS = 100
MAX_STRAGGLERS = 50
MAX_RREFS = 300
MAX_MAPS = 200
MAX_FINDINGS = 300
MAX_NAMED = 300
"""Messages of a finding that a filter lists."""

SEVERITIES = ("error", "warning", "info")

PROBLEM = (
    Column(title="layer", of="layer"),
    Column(title="problem", of="reason", words=printable),
    Column(title="where", of="location", words=lambda location: ", ".join(place_words(location))),
)
"""Of those that belong to no message."""
FIELD = (
    Column(title="field", of="name"),
    Column(title="kind", of="kind.name"),
    Column(title="what it is", of="about", words=printable),
)


class KeyFigure(Struct, frozen=True):
    """A number that matters, large."""

    value: str
    name: str
    tab: str
    """Where there is more about it."""
    bad: bool = False


class FindingCard(Struct, frozen=True):
    """A finding with its number among all, and a filter that picks its messages."""

    number: int
    told: Finding
    filter: str


class RunPage(Struct, frozen=True):
    """The whole."""

    title: str
    lead: str
    filter: str | None
    facts: tuple[KeyFigure, ...]
    captures: Table
    workers: Table
    pipes: Table
    slowest: tuple[Bar, ...]
    busy: tuple[Bar, ...]
    moved: tuple[Bar, ...]
    types: tuple[Bar, ...]
    problems: Table
    closings: str | None
    findings: tuple[FindingCard, ...]
    findings_left_out: int
    findings_hidden: int
    functions: Table
    pairs: Table
    stragglers: Table
    housekeeping: str
    """How many exchanges the tables of latency leave out."""
    rrefs: Table
    forks: Table
    maps: Table
    map_lines: tuple[str, ...]
    fields: Table
    """What filters may name."""


def page_of(run: RunModel, part: PageSelection) -> RunPage:
    """Returns the content of the page."""
    session, answers = run.session, part.answers
    latency = for_people(answers.latency)
    cards = [FindingCard(number, one, _naming(one)) for number, one in enumerate(part.findings)]
    return RunPage(
        title=captures_title([capture.path for capture in session.captures]),
        lead=_lead(session),
        filter=None if part.filter is None else printable(part.filter),
        facts=tuple(_facts(run, part)),
        captures=table(CAPTURE, session.captures),
        workers=workers_table(run, part.indexes, MAX_WORKERS),
        pipes=table(PIPE, pipes_of(session), style=_pipe_style, most=MAX_PIPES),
        slowest=slowest(latency),
        busy=busiest(latency, run.session),
        moved=moved(run, part.indexes),
        types=_types(run, part),
        problems=table(PROBLEM, session.problems, most=MAX_PROBLEMS),
        closings=next(verdict(run.closings))[0] if run.closings.first or run.closings.first_ended else None,
        findings=tuple(sorted(cards, key=lambda card: SEVERITIES.index(card.told.severity))[:MAX_FINDINGS]),
        findings_left_out=max(0, len(cards) - MAX_FINDINGS),
        findings_hidden=part.hidden_findings,
        functions=groups_table(FUNCTION, latency.functions, MAX_GROUPS),
        pairs=groups_table(PAIR, latency.pairs, MAX_GROUPS),
        stragglers=stragglers_table(latency.stragglers, MAX_STRAGGLERS),
        housekeeping=counted(len(answers.latency.timings) - len(latency.timings), "exchange"),
        rrefs=rrefs_table(answers, MAX_RREFS),
        forks=forks_table(answers.rrefs, MAX_RREFS),
        maps=maps_table(answers, MAX_MAPS),
        map_lines=tuple(line for line, _ in needed_lines(answers))[:MAX_MAPS],
        fields=table(FIELD, FIELDS),
    )


def _lead(session: Session) -> str:
    times = session.messages.time_ns
    if not times:
        return "No message was found."
    took = duration(max(session.messages.end_time_ns) - min(times))
    return f"{counted(session.totals.messages, 'message')} in {took}, from {moment(min(times), 3)}"


def _facts(run: RunModel, part: PageSelection) -> Iterable[KeyFigure]:
    totals = run.session.totals
    shown = len(part.indexes)
    if part.filter is None:
        yield _number(shown, "message", "messages", "messages")
    else:
        yield KeyFigure(f"{shown:,} of {totals.messages:,}", "messages", "messages")
    yield _number(len(run.session.workers), "worker", "workers", "workers")
    yield _number(len(part.graphs), "autograd context", "autograd contexts", "contexts")
    lacking = sum(len(graph.missing) for graph in part.graphs)
    if lacking:
        yield _number(lacking, "gradient never came", "gradients never came", "contexts", bad=True)
    found = Counter(finding.severity for finding in part.findings)
    yield _number(found["error"], "error found", "errors found", "findings", bad=found["error"] > 0)
    yield _number(found["warning"], "warning", "warnings", "findings")
    bad = totals.problems > 0
    yield _number(totals.problems, "problem in the bytes", "problems in the bytes", "problems", bad=bad)
    size = totals.rpc_bytes + totals.tensor_bytes
    yield KeyFigure(amount(size), f"decoded, {amount(totals.tensor_bytes)} of tensors", "types")
    if totals.missing_bytes:
        yield KeyFigure(amount(totals.missing_bytes), "not captured", "problems", bad=True)


def _number(count: int, one: str, many: str, tab: str, *, bad: bool = False) -> KeyFigure:
    return KeyFigure(f"{count:,}", one if count == 1 else many, tab, bad)


def _pipe_style(ends: PipeEnds) -> Style:
    return "" if ends.pipe.visible.value == "full" else "odd"


def _types(run: RunModel, part: PageSelection) -> tuple[Bar, ...]:
    counts = Counter(type_name(run.messages[index].rpc.message.type) for index in part.indexes)
    return bars([(name, count, f"{count:,}", "") for name, count in counts.most_common()])


def _naming(finding: Finding) -> str:
    """A filter that picks the messages of a finding; of very many those of all findings of its code."""
    if len(finding.messages) > MAX_NAMED:
        return f"finding == {finding.code}"
    return f"index in {{{', '.join(map(str, finding.messages))}}}"


class PageSelection(Struct, frozen=True):
    """The part of a run that the page shows."""

    filter: str | None
    """None where everything is shown."""
    indexes: tuple[int, ...]
    """Of messages, ascending."""
    answers: RunModel
    graphs: tuple[ContextGraph, ...]
    """Each with the messages to be shown."""
    findings: tuple[Finding, ...]
    hidden_findings: int


def part_of(run: RunModel, shown: Shown | None) -> PageSelection:
    """Returns the part of the run that is shown."""
    session = run.session
    if shown is None:
        return PageSelection(None, tuple(range(len(run.messages))), run, run.graphs, session.findings, 0)
    narrowed = run.narrowed(shown.rows, shown.touched)
    findings = shown.findings(session)
    return PageSelection(
        filter=shown.text,
        indexes=tuple(sorted(narrowed.picked)),
        answers=narrowed,
        graphs=tuple(map(narrowed.shown, narrowed.graphs)),
        findings=findings,
        hidden_findings=len(session.findings) - len(findings),
    )

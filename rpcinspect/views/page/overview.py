"""What a page tells of a run before anybody asks: sums, captures, workers, findings, tables.

In: a run and the part of it that is shown: everything, or what the messages that a filter picked take part
in. Out: a `Page` of plain data that a template writes down; all of its text is printable, none of it is
escaped for HTML.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from msgspec import Struct

from rpcinspect.fields.phrases import amount, captures_title, counted, duration, printable, shorten
from rpcinspect.fields.table import FIELDS
from rpcinspect.filter.matches import Shown
from rpcinspect.rpc.message import type_name
from rpcinspect.run.closings import Closings
from rpcinspect.run.graph import ContextGraph
from rpcinspect.run.latency import for_people
from rpcinspect.run.run import RunModel
from rpcinspect.session.model import Finding, Session, Worker
from rpcinspect.session.process_end import ProcessEnd
from rpcinspect.session.words import lack_of_memory
from rpcinspect.views.html.kit import Bar, Cell, Table, bars, links, row, table
from rpcinspect.views.page.charts import busiest, moved, slowest
from rpcinspect.views.page.tables import (
    MAX_MAPS,
    captures_table,
    groups_table,
    maps_table,
    pipes_table,
    problems_table,
    rrefs_table,
    stragglers_table,
)
from rpcinspect.views.text.summary import moment
from rpcinspect.views.text.table import end_label

MAX_WORKERS = 200
MAX_FINDINGS = 300
MAX_TEXT = 2000
MAX_NAMED = 300
"""Messages of a finding that a filter lists."""

SEVERITIES = ("error", "warning", "info")


class KeyFigure(Struct, frozen=True):
    """A number that matters, large."""

    value: str
    name: str
    tab: str
    """Where there is more about it."""
    bad: bool = False


class FindingCard(Struct, frozen=True):
    """A finding."""

    number: int
    severity: str
    code: str
    text: str
    remedy: str | None
    messages: Cell
    """Links to those that it names."""
    filter: str
    """What picks them."""


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
    maps: Table
    map_lines: tuple[str, ...]
    fields: Table
    """What filters may name."""


def page_of(run: RunModel, part: PageSelection) -> RunPage:
    """Returns the content of the page."""
    session, answers = run.session, part.answers
    latency = for_people(answers.latency)
    cards = tuple(_card(number, finding) for number, finding in enumerate(part.findings))
    return RunPage(
        title=captures_title([capture.path for capture in session.captures]),
        lead=_lead(session),
        filter=None if part.filter is None else printable(part.filter),
        facts=tuple(_facts(run, part)),
        captures=captures_table(session.captures),
        workers=_workers(run, part),
        pipes=pipes_table(session),
        slowest=slowest(latency),
        busy=busiest(latency, run.session),
        moved=moved(run, part.indexes),
        types=_types(run, part),
        problems=problems_table(session.problems),
        closings=_closings(run.closings),
        findings=tuple(sorted(cards, key=lambda card: SEVERITIES.index(card.severity))[:MAX_FINDINGS]),
        findings_left_out=max(0, len(cards) - MAX_FINDINGS),
        findings_hidden=part.hidden_findings,
        functions=groups_table("function", latency.functions, latency),
        pairs=groups_table("from → to", latency.pairs, latency),
        stragglers=stragglers_table(latency.stragglers),
        housekeeping=counted(len(answers.latency.timings) - len(latency.timings), "exchange"),
        rrefs=rrefs_table(answers.rrefs, answers.calls),
        maps=maps_table(answers.device_maps),
        map_lines=tuple(
            f"on {end_label(one.caller)}: {printable(one.line)}"
            for one in answers.device_maps[:MAX_MAPS]
            if one.line is not None
        ),
        fields=table(("field", "kind", "what it is"), [row(f.name, f.kind.name, f.about) for f in FIELDS]),
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


def _workers(run: RunModel, part: PageSelection) -> Table:
    session = run.session
    sent: Counter[tuple[int, str]] = Counter()
    for index in part.indexes:
        at = run.messages[index].row
        sent[session.jobs[session.messages.pipe[at]], session.source(at)] += 1
    start = min(session.messages.time_ns, default=0)
    told = any(worker.ended is not None for worker in session.workers)
    rows = []
    for worker in session.workers[:MAX_WORKERS]:
        label, ended = _label(worker), worker.ended
        rows.append(
            row(
                end_label(label),
                "?" if worker.id is None else str(worker.id),
                f"job {worker.job}, group {worker.group}",
                f"{sent[worker.job, label]:,}",
                shorten(printable(", ".join((*worker.addresses, *worker.elsewhere))), 200),
                *([_ended(ended, start)] if told else []),
                style="bad" if ended is not None and ended.over and not ended.well else "",
            )
        )
    left_out = len(session.workers) - len(rows)
    header = ("worker", "id", "of", "sent", "listens at", *(["its process"] if told else []))
    return table(header, rows, (1, 3), left_out)


def _ended(ended: ProcessEnd | None, start_ns: int) -> str:
    """How a worker's process ended, and when."""
    if ended is None:
        return "?"
    at = (
        ""
        if ended.time_ns is None
        else f", {duration(max(0, ended.time_ns - start_ns))} after the first message"
    )
    return printable(f"{ended}{lack_of_memory(ended)}{at}")


def _label(worker: Worker) -> str:
    """Returns the session's label of a worker: without a name or id, the address where it listens."""
    if worker.name is not None:
        return worker.name
    if worker.id is not None:
        return f"worker:{worker.id}"
    return worker.addresses[0] if worker.addresses else "?"


def _types(run: RunModel, part: PageSelection) -> tuple[Bar, ...]:
    counts = Counter(type_name(run.messages[index].rpc.message.type) for index in part.indexes)
    return bars([(name, count, f"{count:,}", "") for name, count in counts.most_common()])


def _closings(closings: Closings) -> str | None:
    first = closings.first
    if first is None or not first.unanswered:
        return None
    waiting = counted(len(first.unanswered), "request")
    return f"{end_label(first.worker)} left first, with {waiting} to it unanswered: see its log"


def _card(number: int, finding: Finding) -> FindingCard:
    return FindingCard(
        number=number,
        severity=finding.severity,
        code=finding.code,
        text=shorten(printable(finding.text), MAX_TEXT),
        remedy=None if finding.remedy is None else shorten(printable(finding.remedy), MAX_TEXT),
        messages=links(finding.messages),
        filter=_naming(finding),
    )


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

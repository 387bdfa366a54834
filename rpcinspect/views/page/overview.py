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
from rpcinspect.filter.shown import Shown
from rpcinspect.rpc.message import type_name
from rpcinspect.run.closings import Closings
from rpcinspect.run.graph import ContextGraph
from rpcinspect.run.latency import for_people
from rpcinspect.run.run import Run
from rpcinspect.session.model import Finding, Session, Worker
from rpcinspect.views.page.tables import (
    MAX_LINKS,
    MAX_MAPS,
    Table,
    captures_table,
    groups_table,
    maps_table,
    pipes_table,
    problems_table,
    row,
    rrefs_table,
    stragglers_table,
    table,
)
from rpcinspect.views.text.summary import moment
from rpcinspect.views.text.table import end_label

MAX_WORKERS = 200
MAX_FINDINGS = 300
MAX_TEXT = 2000

SEVERITIES = ("error", "warning", "info")


class Fact(Struct, frozen=True):
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
    links: tuple[int, ...]
    count: int
    """Of messages that it names."""


class TypeCount(Struct, frozen=True):
    """How many messages there are of a type, and how that compares with the most frequent one."""

    name: str
    count: int
    share: float


class Page(Struct, frozen=True):
    """The whole."""

    title: str
    lead: str
    filter: str | None
    facts: tuple[Fact, ...]
    captures: Table
    workers: Table
    pipes: Table
    types: tuple[TypeCount, ...]
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


def page_of(run: Run, part: Part) -> Page:
    """Everything."""
    session, answers = run.session, part.answers
    latency = for_people(answers.latency)
    cards = tuple(_card(number, finding) for number, finding in enumerate(part.findings))
    return Page(
        title=captures_title([capture.path for capture in session.captures]),
        lead=_lead(session),
        filter=None if part.filter is None else printable(part.filter),
        facts=tuple(_facts(run, part)),
        captures=captures_table(session.captures),
        workers=_workers(run, part),
        pipes=pipes_table(session),
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
    )


def _lead(session: Session) -> str:
    times = session.messages.time_ns
    if not times:
        return "No message was found."
    took = duration(max(session.messages.end_time_ns) - min(times))
    return f"{counted(session.totals.messages, 'message')} in {took}, from {moment(min(times), 3)}"


def _facts(run: Run, part: Part) -> Iterable[Fact]:
    totals = run.session.totals
    shown = len(part.indexes)
    if part.filter is None:
        yield _number(shown, "message", "messages", "messages")
    else:
        yield Fact(f"{shown:,} of {totals.messages:,}", "messages", "messages")
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
    yield Fact(amount(size), f"decoded, {amount(totals.tensor_bytes)} of tensors", "types")
    if totals.missing_bytes:
        yield Fact(amount(totals.missing_bytes), "not captured", "problems", bad=True)


def _number(count: int, one: str, many: str, tab: str, *, bad: bool = False) -> Fact:
    return Fact(f"{count:,}", one if count == 1 else many, tab, bad)


def _workers(run: Run, part: Part) -> Table:
    session = run.session
    sent: Counter[tuple[int, str]] = Counter()
    for index in part.indexes:
        at = run.messages[index].row
        sent[session.jobs[session.messages.pipe[at]], session.source(at)] += 1
    rows = []
    for worker in session.workers[:MAX_WORKERS]:
        label = _label(worker)
        rows.append(
            row(
                end_label(label),
                "?" if worker.id is None else str(worker.id),
                f"job {worker.job}, group {worker.group}",
                f"{sent[worker.job, label]:,}",
                shorten(printable(", ".join((*worker.addresses, *worker.elsewhere))), 200),
            )
        )
    left_out = len(session.workers) - len(rows)
    return table(("worker", "id", "of", "sent", "listens at"), rows, (1, 3), left_out)


def _label(worker: Worker) -> str:
    """What the session calls it: where nobody told its name or its id, by where it listens."""
    if worker.name is not None:
        return worker.name
    if worker.id is not None:
        return f"worker:{worker.id}"
    return worker.addresses[0] if worker.addresses else "?"


def _types(run: Run, part: Part) -> tuple[TypeCount, ...]:
    if part.filter is None:
        counts = run.session.totals.by_type
    else:
        counts = dict(
            Counter(type_name(run.messages[index].rpc.message.type) for index in part.indexes).most_common()
        )
    most = max(counts.values(), default=1)
    return tuple(TypeCount(name, count, count / most) for name, count in counts.items())


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
        links=finding.messages[:MAX_LINKS],
        count=len(finding.messages),
    )


class Part(Struct, frozen=True):
    """See above."""

    filter: str | None
    """None where everything is shown."""
    indexes: tuple[int, ...]
    """Of messages, ascending."""
    answers: Run
    graphs: tuple[ContextGraph, ...]
    """Each with the messages to be shown."""
    findings: tuple[Finding, ...]
    hidden_findings: int


def part_of(run: Run, shown: Shown | None) -> Part:
    """What there is to show."""
    session = run.session
    if shown is None:
        return Part(None, tuple(range(len(run.messages))), run, run.graphs, session.findings, 0)
    narrowed = run.narrowed(shown.rows, shown.touched)
    findings = shown.findings(session)
    return Part(
        filter=shown.text,
        indexes=tuple(sorted(narrowed.picked)),
        answers=narrowed,
        graphs=tuple(map(narrowed.shown, narrowed.graphs)),
        findings=findings,
        hidden_findings=len(session.findings) - len(findings),
    )

"""What a page tells of a run before anybody asks: sums, captures, workers, findings, tables.

In: a run, or what a filter has left of it. Out: plain data by the names that a template asks for; all of its
text is printable, none of it is escaped for HTML.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from types import SimpleNamespace

from msgspec import Struct

from rpcinspect.fields.phrases import amount, captures_title, counted, duration, printable
from rpcinspect.fields.table import FIELDS
from rpcinspect.rpc.message import type_name
from rpcinspect.run.latency import for_people
from rpcinspect.run.run import RunModel
from rpcinspect.session.model import Finding, Session
from rpcinspect.views.columns import Column, Style, table
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


def page_of(part: RunModel, filter: str | None) -> SimpleNamespace:
    """Returns what the template of the page reads; `filter`: by which the run was narrowed."""
    run, session, indexes = part.whole, part.session, sorted(part.picked)
    latency = for_people(part.latency)
    cards = [
        SimpleNamespace(number=number, told=finding, filter=_naming(finding))
        for number, finding in enumerate(part.findings)
    ]
    return SimpleNamespace(
        title=captures_title([capture.path for capture in session.captures]),
        lead=_lead(session),
        filter=None if filter is None else printable(filter),
        facts=tuple(_facts(part)),
        captures=table(CAPTURE, session.captures),
        workers=workers_table(run, indexes, MAX_WORKERS),
        pipes=table(PIPE, pipes_of(session), style=_pipe_style, most=MAX_PIPES),
        slowest=slowest(latency),
        busy=busiest(latency, session),
        moved=moved(run, indexes),
        types=_types(run, indexes),
        problems=table(PROBLEM, session.problems, most=MAX_PROBLEMS),
        closings=next(verdict(run.closings))[0] if run.closings.first or run.closings.first_ended else None,
        findings=tuple(sorted(cards, key=lambda card: SEVERITIES.index(card.told.severity))[:MAX_FINDINGS]),
        findings_left_out=max(0, len(cards) - MAX_FINDINGS),
        findings_hidden=len(session.findings) - len(part.findings),
        functions=groups_table(FUNCTION, latency.functions, MAX_GROUPS),
        pairs=groups_table(PAIR, latency.pairs, MAX_GROUPS),
        stragglers=stragglers_table(latency.stragglers, MAX_STRAGGLERS),
        housekeeping=counted(len(part.latency.timings) - len(latency.timings), "exchange"),
        rrefs=rrefs_table(part, MAX_RREFS),
        forks=forks_table(part.rrefs, MAX_RREFS),
        maps=maps_table(part, MAX_MAPS),
        map_lines=tuple(line for line, _ in needed_lines(part))[:MAX_MAPS],
        fields=table(FIELD, FIELDS),
    )


def _lead(session: Session) -> str:
    times = session.messages.time_ns
    if not times:
        return "No message was found."
    took = duration(max(session.messages.end_time_ns) - min(times))
    return f"{counted(session.totals.messages, 'message')} in {took}, from {moment(min(times), 3)}"


def _facts(part: RunModel) -> Iterable[KeyFigure]:
    totals = part.session.totals
    if part.is_part:
        yield KeyFigure(f"{len(part.picked):,} of {totals.messages:,}", "messages", "messages")
    else:
        yield _number(len(part), "message", "messages", "messages")
    yield _number(len(part.workers), "worker", "workers", "workers")
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


def _types(run: RunModel, indexes: Sequence[int]) -> tuple[Bar, ...]:
    counts = Counter(type_name(run.messages[index].rpc.message.type) for index in indexes)
    return bars([(name, count, f"{count:,}", "") for name, count in counts.most_common()])


def _naming(finding: Finding) -> str:
    """A filter that picks the messages of a finding; of very many those of all findings of its code."""
    if len(finding.messages) > MAX_NAMED:
        return f"finding == {finding.code}"
    return f"index in {{{', '.join(map(str, finding.messages))}}}"

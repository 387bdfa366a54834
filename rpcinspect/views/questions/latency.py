"""Where the time went: exchanges by function and by pair of workers, then those that took unusually long.

In: a run. Out: tables, and lines of JSON, which have every exchange too. `begin_ns` and `end_ns` are times of
the capture, other `_ns` are lengths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rpcinspect.fields.phrases import amount, counted, duration, end_label, join_ends
from rpcinspect.fields.plain import Json, Picked, optional, text
from rpcinspect.rpc.message import type_name
from rpcinspect.run.latency import Latency, LatencyGroup, Straggler, for_people
from rpcinspect.run.run import RunModel
from rpcinspect.views.columns import Column, Links, Style, Table, json_of, table
from rpcinspect.views.graph_words import what_words
from rpcinspect.views.questions.question import Question
from rpcinspect.views.text.columns import Part

MAX_ROWS = 30
MAX_STRAGGLERS = 20
LEGEND = (
    "rows: sorted by total time",
    "times: from a request's first byte to its answer's last; own: at the callee, without nested",
    "nested: while its own calls were under way, or gradients until they came back",
    "nested, on the wire, requests, answers: sums over the group",
)


def _time(title: str, of: str | Callable[[Any], Any], key: str = "") -> Column:
    return Column(key, of=of, title=title, words=duration, right=True)


def _sum(key: str, title: str) -> Column:
    """A time in all; nothing where there is none, as of a log, which knows no wire."""
    return Column(key, title=title, words=lambda time_ns: duration(time_ns) if time_ns else "", right=True)


def _count(key: str, title: str, of: str | Callable[[LatencyGroup], int] = "") -> Column:
    """How many of a group; left out where no group has any."""
    return Column(key, of=of, title=title, words=lambda n: f"{n:,}" if n else "", right=True, unless="empty")


def _ends(group: LatencyGroup, _: Any) -> str:
    return join_ends(end_label(group.caller or "?"), end_label(group.callee or "?"))


_spread_json = optional(Picked("p50 p90 p99 max"))
FUNCTION = Column(title="function", of="what", words=what_words, gives_way=True)
PAIR = Column(title="from → to", cell=_ends, gives_way=True)
GROUP = (
    Column("by", of=lambda group: "pair" if group.what is None else "function"),
    Column("job", title="job", right=True, unless="same"),
    *(Column(key) for key in ("what", "caller", "callee")),
    Column("count", title="count", right=True),
    _count("", "open", lambda group: group.count - group.answered - group.given_up),
    Column("answered"),
    _count("failed", "failed"),
    _count("given_up", "given up"),
    Column("total_ns", of=lambda group: _spread_json(group.total)),
    Column("own_ns", of=lambda group: _spread_json(group.own)),
    *(_time(name, f"total.{name}") for name in ("p50", "p90", "p99", "max")),
    _time("own p50", "own.p50"),
    _sum("nested_ns", "nested"),
    _sum("wire_ns", "on the wire"),
    Column("request_bytes", title="requests", words=amount, right=True),
    Column("answer_bytes", title="answers", words=amount, right=True),
)


def _straggler_ends(one: Straggler, _: Any) -> str:
    return join_ends(end_label(one.timing.call.caller), end_label(one.timing.call.callee))


def _times(one: Straggler, _: Any) -> str:
    return f"{one.total_ns / one.median_ns:.0f}×" if one.median_ns else ""


STRAGGLER = (
    Column("request", of="timing.call.index", title="straggler", words=lambda index: Links((index,))),
    Column("what", of="timing.call.what"),
    Column("caller", of="timing.call.caller"),
    Column("callee", of="timing.call.callee"),
    _time("took", "total_ns", "total_ns"),
    Column("median_ns", title="of the median", cell=_times, right=True),
    Column(title="from → to", cell=_straggler_ends),
    Column(title="function", of="timing.call.what", words=what_words, gives_way=True),
    Column("nested", title="why", words=lambda it: "its own calls under way" if it else "", unless="empty"),
)

_timing = Picked(
    "request=call.index answer=call.answer job=call.job caller=call.caller callee=call.callee what=call.what "
    "function=call.function type=call.kind context_id=call.context control=call.control "
    "housekeeping=call.housekeeping parents=call.parents parent_certain=call.parent_certain "
    "begin_ns=call.begin_ns request_ns busy_ns nested_ns answer_ns total_ns "
    "request_bytes=call.request_bytes answer_bytes=call.answer_bytes failed=call.failed "
    "gave_up=call.failure gave_up_ns",
    "exchange",
    type=type_name,
    parents=lambda parents: [call.index for call in parents],
    gave_up=optional(lambda failure: text(failure.reason)),
)
_group = json_of(GROUP, "latency")
_straggler = json_of(STRAGGLER, "straggler")


def latency_json(latency: Latency) -> Iterator[Json]:
    """`exchange` lines, then `latency` lines by function and by pair, then `straggler` lines."""
    yield from map(_timing, latency.timings)
    yield from map(_group, (*latency.functions, *latency.pairs))
    yield from map(_straggler, latency.stragglers)


def _style(group: LatencyGroup) -> Style:
    return "bad" if group.failed else "odd" if group.answered < group.count else ""


def groups_table(by: Column, groups: Sequence[LatencyGroup], most: int | None = None) -> Table:
    """A line for each function, or for each pair of workers."""
    return table((by, *GROUP), groups, style=_style, most=most)


def stragglers_table(stragglers: Sequence[Straggler], most: int | None = None) -> Table:
    """A line for each call that took unusually long."""
    return table(STRAGGLER, stragglers, style=lambda _: "odd", most=most)


def _show(run: RunModel, every: bool) -> Iterator[Part]:
    latency = run.latency
    shown = for_people(latency, housekeeping=every)
    hidden = len(latency.timings) - len(shown.timings)
    if shown.functions:
        most = None if every else MAX_ROWS
        yield from _cut(groups_table(FUNCTION, shown.functions, most))
        yield "", ""
        yield from _cut(groups_table(PAIR, shown.pairs, most))
        if shown.stragglers:
            yield "", ""
            yield from _cut(stragglers_table(shown.stragglers, None if every else MAX_STRAGGLERS))
        yield "", ""
    else:
        yield "no call was seen" if hidden else "no request was seen", ""
    if hidden:
        yield f"{counted(hidden, 'housekeeping exchange')} hidden; --all shows them", ""
    if shown.functions:
        yield from ((line, "dim") for line in LEGEND)
    doubtful = sum(bool(one.call.parents) and not one.call.parent_certain for one in shown.timings)
    if doubtful:
        yield (
            f"{counted(doubtful, 'call')} may be nested, but not for certain: own has their time, too",
            "dim",
        )


def _cut(part: Table) -> Iterator[Part]:
    yield part
    if part.left_out:
        yield f"… and {part.left_out:,} more (--all shows them)", ""


def _count_of(run: RunModel, every: bool) -> int:
    return sum(every or not timing.call.housekeeping for timing in run.latency.timings)


QUESTION = Question(
    noun="exchange",
    kinds=("exchange", "latency", "straggler"),
    count=_count_of,
    show=_show,
    json=lambda run: latency_json(run.latency),
    shows=lambda run: bool(run.latency.timings),  # what it leaves out, it counts
)

"""Where the time went: exchanges by function and by pair of workers, then those that took unusually long.

In: a `Latency`. Out: lines of printable text on a console.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat

from rich.console import Console

from rpcinspect.fields.phrases import amount, counted, duration
from rpcinspect.run.latency import Latency, LatencyGroup, Straggler, for_people
from rpcinspect.views.graph_words import what_words
from rpcinspect.views.text.columns import Columns, Line, show_lines
from rpcinspect.views.text.table import end_label, join_ends

MAX_ROWS = 30
MAX_STRAGGLERS = 20

MEASURES = ("p50", "p90", "p99", "max", "own p50", "nested", "on the wire", "requests", "answers")
"""Of a group, as `group_cells` has them."""
HEADER = ("count", *MEASURES)

LEGEND = (
    "rows: what took most time in all comes first",
    "times: from a request's first byte to its answer's last; own: at the callee, without nested",
    "nested: waiting for its own calls, and for gradients to come back",
    "nested, on the wire, requests, answers: sums over the group",
)


def show_latency(latency: Latency, console: Console, *, show_all: bool = False) -> None:
    """Prints everything; with `show_all` every row, those of housekeeping too."""
    shown = for_people(latency, housekeeping=show_all)
    hidden = len(latency.timings) - len(shown.timings)
    show_lines(_lines(shown, show_all, hidden), console)


def _lines(latency: Latency, show_all: bool, hidden: int) -> Iterator[Line | Columns]:
    if not latency.functions:
        yield "no call was seen" if hidden else "no request was seen", ""
        yield from _hidden(hidden)
        return
    several = len({group.job for group in latency.functions}) > 1
    yield from _groups("function", latency.functions, show_all, several)
    yield "", ""
    yield from _groups("from → to", latency.pairs, show_all, several)
    yield from _stragglers(latency.stragglers, show_all)
    yield "", ""
    yield from _hidden(hidden)
    yield from ((line, "dim") for line in LEGEND)


def _hidden(count: int) -> Iterator[Line]:
    if count:
        yield f"{counted(count, 'housekeeping exchange')} hidden; --all shows them", ""


def _groups(
    name: str, groups: Sequence[LatencyGroup], show_all: bool, several: bool
) -> Iterator[Line | Columns]:
    shown = groups if show_all else groups[:MAX_ROWS]
    rows = [(group_label(group, several), _count(group), *group_cells(group)) for group in shown]
    yield Columns((name, *HEADER), rows, right=range(1, 1 + len(HEADER)))
    if len(groups) > len(shown):
        yield f"… and {len(groups) - len(shown):,} more (--all shows them)", ""


def group_label(group: LatencyGroup, several_jobs: bool) -> str:
    """What a group is of: a function, or a caller and a callee."""
    ends = join_ends(end_label(group.caller or "?"), end_label(group.callee or "?"))
    label = ends if group.what is None else what_words(group.what)
    return f"{label} (job {group.job})" if several_jobs else label


def _count(group: LatencyGroup) -> str:
    count = f"{group.count:,}"
    waiting = group.count - group.answered - group.given_up
    if waiting:
        count += f" ({waiting:,} open)"
    if group.given_up:
        count += f" ({group.given_up:,} given up)"
    if group.failed:
        count += f" ({group.failed:,} ✗)"
    return count


def group_cells(group: LatencyGroup) -> tuple[str, ...]:
    """Times and sizes of a group, as `MEASURES` calls them."""
    total = group.total
    spread = () if total is None else (total.p50, total.p90, total.p99, total.max)
    return (
        *(map(duration, spread) if spread else ("",) * 4),
        "" if group.own is None else duration(group.own.p50),
        duration(group.nested_ns) if group.nested_ns else "",
        duration(group.wire_ns) if group.wire_ns else "",  # a log does not tell it
        amount(group.request_bytes),
        amount(group.answer_bytes),
    )


def straggler_cells(one: Straggler) -> tuple[str, ...]:
    """What there is to say of one, but for its number."""
    call = one.timing.call
    return (
        duration(one.total_ns),
        f"{one.total_ns / one.median_ns:.0f}×" if one.median_ns else "",
        join_ends(end_label(call.caller), end_label(call.callee)),
        what_words(call.what),
        "waits for its own calls" if one.nested else "",
    )


def _stragglers(stragglers: Sequence[Straggler], show_all: bool) -> Iterator[Line | Columns]:
    if not stragglers:
        return
    shown = stragglers if show_all else stragglers[:MAX_STRAGGLERS]
    rows = [(f"#{one.timing.call.index}", *straggler_cells(one)) for one in shown]
    yield "", ""
    header = ("straggler", "took", "median", "from → to", "function", "")
    yield Columns(header, rows, right=(1, 2), gives_way=4, head="bold yellow", styles=repeat("yellow"))
    if len(stragglers) > len(shown):
        yield f"… and {counted(len(stragglers) - len(shown), 'more straggler')} (--all shows them)", "yellow"

"""Where the time went: exchanges by function and by pair of workers, then those that took unusually long.

In: a `Latency`. Out: lines of printable text on a console.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console

from rpcinspect.run.latency import Latency, LatencyGroup, Spread, Straggler
from rpcinspect.views.graph.words import what_words
from rpcinspect.views.phrases import amount, counted, duration
from rpcinspect.views.text.columns import columns
from rpcinspect.views.text.table import cut_line, end_label, join_ends, line_width, write_line

MAX_ROWS = 30
MAX_STRAGGLERS = 20

HEADER = ("count", "p50", "p90", "p99", "max", "own p50", "nested", "on the wire", "requests", "answers")

LEGEND = (
    "times: from a request's first byte to its answer's last; own: at the callee, but for nested",
    "nested: waiting for its own calls, and for gradients to come back",
    "nested, on the wire, requests, answers: sums over the group",
)


def show_latency(latency: Latency, console: Console, *, show_all: bool = False) -> None:
    """Prints everything; with `show_all` every row."""
    width = line_width(console)
    for line, style in _lines(latency, show_all, width):
        write_line(console, cut_line(line, width), style)


def _lines(latency: Latency, show_all: bool, width: int | None) -> Iterator[tuple[str, str]]:
    if not latency.functions:
        yield "no request was seen", ""
        return
    several = len({group.job for group in latency.functions}) > 1
    yield from _groups("function", latency.functions, show_all, several, width)
    yield "", ""
    yield from _groups("from → to", latency.pairs, show_all, several, width)
    yield from _stragglers(latency.stragglers, show_all)
    yield "", ""
    yield from ((line, "dim") for line in LEGEND)


def _groups(
    name: str, groups: Sequence[LatencyGroup], show_all: bool, several: bool, width: int | None
) -> Iterator[tuple[str, str]]:
    shown = groups if show_all else groups[:MAX_ROWS]
    rows = []
    for group in shown:
        label = what_words(group.what) if group.what is not None else _pair(group.caller, group.callee)
        rows.append((f"{label} (job {group.job})" if several else label, *_cells(group)))
    head, *lines = columns((name, *HEADER), rows, right=range(1, 1 + len(HEADER)), width=width)
    yield head, "bold"
    yield from ((line, "") for line in lines)
    if len(groups) > len(shown):
        yield f"… and {len(groups) - len(shown):,} more (--all shows them)", ""


def _pair(caller: str | None, callee: str | None) -> str:
    return join_ends(end_label(caller or "?"), end_label(callee or "?"))


def _cells(group: LatencyGroup) -> tuple[str, ...]:
    count = f"{group.count:,}"
    waiting = group.count - group.answered - group.given_up
    if waiting:
        count += f" ({waiting:,} open)"
    if group.given_up:
        count += f" ({group.given_up:,} given up)"
    if group.failed:
        count += f" ({group.failed:,} ✗)"
    return (
        count,
        *_times(group.total),
        "" if group.own is None else duration(group.own.p50),
        duration(group.nested_ns) if group.nested_ns else "",
        duration(group.wire_ns),
        amount(group.request_bytes),
        amount(group.answer_bytes),
    )


def _times(spread: Spread | None) -> tuple[str, str, str, str]:
    if spread is None:
        return "", "", "", ""
    return duration(spread.p50), duration(spread.p90), duration(spread.p99), duration(spread.max)


def _stragglers(stragglers: Sequence[Straggler], show_all: bool) -> Iterator[tuple[str, str]]:
    if not stragglers:
        return
    shown = stragglers if show_all else stragglers[:MAX_STRAGGLERS]
    rows = [
        (
            f"#{one.request}",
            duration(one.total_ns),
            f"{one.total_ns / one.median_ns:.0f}×" if one.median_ns else "",
            join_ends(end_label(one.caller), end_label(one.callee)),
            what_words(one.what),
            "waits for its own calls" if one.nested else "",
        )
        for one in shown
    ]
    yield "", ""
    head, *lines = columns(("straggler", "took", "median", "from → to", "function", ""), rows, right=(1, 2))
    yield head, "bold yellow"
    yield from ((line, "yellow") for line in lines)
    if len(stragglers) > len(shown):
        yield f"… and {counted(len(stragglers) - len(shown), 'more straggler')} (--all shows them)", "yellow"

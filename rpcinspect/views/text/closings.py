"""Who left first, on a terminal: the workers that ended connections, in the order of time.

In: `Closings`. Out: lines of printable text on a console.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console

from rpcinspect.fields.phrases import counted, indexes, printable
from rpcinspect.run.closings import Closings, Departure
from rpcinspect.session.words import lack_of_memory
from rpcinspect.views.text.columns import Columns, Line, show_lines
from rpcinspect.views.text.table import end_label
from rpcinspect.views.worker_logs import said

HEADER = ("seconds", "worker", "ended", "reset", "unanswered requests to it", "its own, not waited for")
SHOWN = 6
MAX_REPORTS = 30


def show_closings(closings: Closings, start_ns: int, console: Console) -> None:
    """Prints everything; times count from `start_ns`, the first message of the capture."""
    show_lines(_lines(closings, start_ns), console)


def _lines(closings: Closings, start_ns: int) -> Iterator[Line | Columns]:
    first = closings.first and (closings.first.job, closings.first.worker)
    if closings.departures:
        rows = [_row(departure, start_ns) for departure in closings.departures]
        styles = ["red" if (one.job, one.worker) == first else "" for one in closings.departures]
        yield Columns(HEADER, rows, right=(0,), gives_way=1, styles=styles)
        yield "", ""
    if closings.open_pipes:
        yield f"the end of {counted(closings.open_pipes, 'pipe')} was not captured", ""
    yield from _reports(closings, start_ns)
    yield from _processes(closings, start_ns)
    yield from _verdict(closings)


def _reports(closings: Closings, start_ns: int) -> Iterator[Line | Columns]:
    """What workers' own logs say."""
    if not closings.reports:
        return
    shown = closings.reports[:MAX_REPORTS]
    rows = [
        (
            "" if one.time_ns is None else f"{(one.time_ns - start_ns) / 1e9:.6f}",
            end_label(one.worker or "?"),
            end_label(one.peer or ""),
            said(one),
        )
        for one in shown
    ]
    yield Columns(("seconds", "log of", "lost", "what it says"), rows, right=(0,), gives_way=3)
    if len(closings.reports) > len(shown):
        yield f"… and {len(closings.reports) - len(shown):,} more", ""
    yield "", ""


def _processes(closings: Closings, start_ns: int) -> Iterator[Line | Columns]:
    """How the processes of workers ended, as their recorder knows."""
    if not closings.ended:
        return
    rows, styles = [], []
    for worker in closings.ended:
        ended = worker.ended
        assert ended is not None
        at = "" if ended.time_ns is None else f"{(ended.time_ns - start_ns) / 1e9:.6f}"
        rows.append((at, end_label(worker.name or "?"), printable(f"{ended}{lack_of_memory(ended)}")))
        styles.append("red" if ended.over and not ended.well else "")
    yield Columns(("seconds", "worker", "its process"), rows, right=(0,), gives_way=2, styles=styles)
    yield "", ""


def _verdict(closings: Closings) -> Iterator[Line]:
    first, report = closings.first, closings.first_report
    by_logs = None if report is None else report.peer
    if first is None:
        if report is not None:
            gone = (
                f"by their logs {end_label(by_logs or '?')} was gone first: {end_label(report.worker or '?')}"
            )
            yield f"{gone} says so; see the log of {end_label(by_logs or '?')}", "bold red"
        elif closings.departures:
            yield "no worker disconnected with a request pending", ""
        elif not closings.open_pipes:
            yield "no pipe was seen", ""
        return
    told = f"{end_label(first.worker)} left first, with "
    if first.unanswered:
        told += f"{counted(len(first.unanswered), 'request')} to it unanswered"
    else:
        told += f"{counted(len(first.waiting), 'request')} of its own not answered yet"
    yield f"{told}: see its log; later errors of the others follow from it", "bold red"
    if by_logs is not None and by_logs != first.worker:
        yield f"the logs disagree: the first worker they name is {end_label(by_logs)}", "yellow"


def _row(departure: Departure, start_ns: int) -> tuple[str, ...]:
    return (
        f"{(departure.time_ns - start_ns) / 1e9:.6f}",
        end_label(departure.worker),
        counted(len(departure.pipes), "pipe"),
        f"{departure.reset:,}" if departure.reset else "",
        indexes(departure.unanswered, SHOWN),
        indexes(departure.waiting, SHOWN),
    )

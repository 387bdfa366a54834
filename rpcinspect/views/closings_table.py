"""Who left first, on a terminal: the workers that ended connections, in the order of time.

In: `Closings`. Out: lines of printable text on a console.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console

from rpcinspect.trace.closings import Closings, Departure
from rpcinspect.views.columns import columns
from rpcinspect.views.phrases import counted
from rpcinspect.views.table import cut_line, end_label, line_width, write_line

HEADER = ("seconds", "worker", "ended", "reset", "unanswered requests to it", "its own, not waited for")
SHOWN = 6


def show_closings(closings: Closings, start_ns: int, console: Console) -> None:
    """Prints everything; times count from `start_ns`, the first message of the capture."""
    width = line_width(console)
    for line, style in _lines(closings, start_ns):
        write_line(console, cut_line(line, width), style)


def _lines(closings: Closings, start_ns: int) -> Iterator[tuple[str, str]]:
    first = closings.first and (closings.first.job, closings.first.worker)
    if closings.departures:
        rows = [_row(departure, start_ns) for departure in closings.departures]
        head, *lines = columns(HEADER, rows, right=(0,))
        yield head, "bold"
        for departure, line in zip(closings.departures, lines, strict=True):
            yield line, "red" if (departure.job, departure.worker) == first else ""
        yield "", ""
    if closings.open_pipes:
        yield f"of {counted(closings.open_pipes, 'pipe')} the end was not captured", ""
    yield from _verdict(closings)


def _verdict(closings: Closings) -> Iterator[tuple[str, str]]:
    first = closings.first
    if first is None:
        if closings.departures:
            yield "nobody left while a request was in flight that somebody waits for", ""
        elif not closings.open_pipes:
            yield "no pipe was seen", ""
        return
    told = f"{end_label(first.worker)} left first, with "
    if first.unanswered:
        told += f"{counted(len(first.unanswered), 'request')} to it unanswered"
    else:
        told += f"{counted(len(first.waiting), 'request')} of its own not answered yet"
    yield f"{told}: see its log; what others report after that follows from it", "bold red"


def _row(departure: Departure, start_ns: int) -> tuple[str, ...]:
    return (
        f"{(departure.time_ns - start_ns) / 1e9:.6f}",
        end_label(departure.worker),
        counted(len(departure.pipes), "pipe"),
        f"{departure.reset:,}" if departure.reset else "",
        _numbers(departure.unanswered),
        _numbers(departure.waiting),
    )


def _numbers(indexes: Sequence[int]) -> str:
    shown = ", ".join(f"#{index}" for index in indexes[:SHOWN])
    return f"{shown} and {len(indexes) - SHOWN:,} more" if len(indexes) > SHOWN else shown

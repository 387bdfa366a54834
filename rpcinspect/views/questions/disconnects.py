"""Who left first: the workers that ended connections, in the order of time, and what was open then.

In: a run. Out: tables of what packets, workers' logs and a recorder tell, then the verdict; `departure` and
`log` lines of JSON, and one `closings` line.
"""

from __future__ import annotations

from collections.abc import Iterator

from rpcinspect.fields.phrases import counted, end_label
from rpcinspect.fields.plain import Json, Picked, each, plain
from rpcinspect.run.closings import Closings, Departure, EndedWorker
from rpcinspect.run.run import RunModel
from rpcinspect.views.columns import Column, Links, Style, json_of, table
from rpcinspect.views.questions.question import Question
from rpcinspect.views.questions.session import ENDED, ENDED_AT, ended_json, ended_style
from rpcinspect.views.text.columns import Part
from rpcinspect.views.worker_logs import event_json, said

MAX_REPORTS = 30


_pipes = each(Picked("pipe client server how time_ns in_flight"))
DEPARTURE = (
    Column(title="seconds", cell=lambda one, run: run.seconds(one.time_ns), right=True),
    Column("job", title="job", right=True, unless="same"),
    Column("worker", title="worker", gives_way=True),
    Column(title="ended", of="pipes", words=lambda pipes: counted(len(pipes), "pipe")),
    Column("time_ns"),
    Column("reset", title="reset", words=lambda count: f"{count:,}" if count else ""),
    Column("unanswered", title="unanswered requests to it", words=Links),
    Column("waiting", title="its own, unanswered", words=Links),
    Column("pipes", of=lambda one: _pipes(one.pipes)),
)
REPORT = (
    Column(title="seconds", cell=lambda event, run: run.seconds(event.time_ns), right=True),
    Column(title="log of", of=lambda event: event.worker or "?"),
    Column(title="lost", of=lambda event: event.peer or ""),
    Column(title="what it says", cell=lambda event, _: said(event), gives_way=True),
)
PROCESS = (
    Column(title="worker", of=lambda one: one.label),
    ENDED_AT,
    ENDED,
)
departure_json = json_of(DEPARTURE, "departure")


def _show(run: RunModel, _: bool) -> Iterator[Part]:
    closings = run.closings
    first = closings.first and (closings.first.job, closings.first.worker)

    def style(one: Departure) -> Style:
        return "bad" if (one.job, one.worker) == first else ""

    if closings.departures:
        yield table(DEPARTURE, closings.departures, run, style=style)
        yield "", ""
    if closings.open_pipes:
        yield f"the end of {counted(closings.open_pipes, 'pipe')} was not captured", ""
    if closings.reports:
        reports = table(REPORT, closings.reports, run, most=MAX_REPORTS)
        yield reports
        if reports.left_out:
            yield f"… and {reports.left_out:,} more", ""
        yield "", ""
    if closings.ended:
        yield table(PROCESS, closings.ended, run, style=ended_style)
        yield "", ""
    yield from verdict(closings)


def verdict(closings: Closings) -> Iterator[tuple[str, str]]:
    """Yields lines with styles: who left first, by packets and by logs."""
    first, report = closings.first, closings.first_report
    by_logs = None if report is None else report.peer
    if first is None:
        if report is not None:
            gone = (
                f"by their logs {end_label(by_logs or '?')} was gone first: {end_label(report.worker or '?')}"
            )
            yield f"{gone} says so; see the log of {end_label(by_logs or '?')}", "bold red"
        elif closings.first_ended is not None:
            yield _ended_first(closings.first_ended), "bold red"
        elif closings.several_clocks:
            yield "which worker left first is not known: nobody compared the clocks of their hosts", ""
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


def _ended_first(one: EndedWorker) -> str:
    told = f"{end_label(one.worker.label)} was the first whose process ended badly: {one.worker.ended}"
    if one.unanswered:
        told += f", with {counted(len(one.unanswered), 'request')} to it unanswered"
    return f"{told}; see its log"


def closings_json(closings: Closings) -> Iterator[Json]:
    """Yields a `departure` line for each worker that ended pipes, a `log` line for each that the workers' own
    logs name, then one `closings` line, with `ended` and `first_by_processes` where a recorder noted how
    processes ended."""
    yield from map(departure_json, closings.departures)
    yield from map(event_json, closings.reports)
    ended = [
        {"worker": plain(worker.name), "job": worker.job, **ended_json(worker.ended)}
        for worker in closings.ended
    ]
    by_processes = None if closings.first_ended is None else plain(closings.first_ended.worker.label)
    yield {
        "kind": "closings",
        "first": None if closings.first is None else plain(closings.first.worker),
        "first_by_logs": None if closings.first_report is None else plain(closings.first_report.peer),
        "open_pipes": closings.open_pipes,
        **({"first_by_processes": by_processes, "ended": ended} if ended else {}),
    }


QUESTION = Question(
    noun="pipe",
    kinds=("departure",),
    count=lambda run, _: run.closings.pipes,
    show=_show,
    json=lambda run: closings_json(run.closings),
)

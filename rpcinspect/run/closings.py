"""Who left first: how each connection between workers ended, and which requests were in flight then.

In: exchanges, the ends of TCP connections and of processes, and what workers' own logs say of these. Out: a
`Departure` per worker that closed or reset a connection first, in the order of time. A worker that was killed
is the first to close connections while requests are in flight; those that close theirs after it only follow.
What an orderly shutdown closes has nothing in flight, but for cleanup, which nobody waits for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from rpcinspect.checks.wire_facts import ConnectionEnd, ConnectionEnds
from rpcinspect.checks.worker_logs import endings, first_gone
from rpcinspect.rpc.questions import CLEAN_UP
from rpcinspect.run.exchanges import Exchange
from rpcinspect.session.hosts import clocks, on_one_host
from rpcinspect.session.model import LogEvent, Session, Worker

HEARD_NS = 200_000_000
"""A caller may see that a connection ended so long before a recorder hears of the process."""


class PipeClosing(Struct, frozen=True, kw_only=True):
    """The end of a pipe."""

    pipe: int
    client: str
    server: str
    by: str
    """The worker that closed it first."""
    how: str
    time_ns: int
    in_flight: tuple[int, ...]
    """Requests on it that had begun and were not answered."""


class Departure(Struct, frozen=True, kw_only=True):
    """A worker that was the first to end some of its pipes."""

    job: int
    worker: str
    time_ns: int
    """When it ended the first of its pipes."""
    pipes: tuple[PipeClosing, ...]
    """That it ended, in the order of time; those of a part of the run only, where that is asked for."""
    reset: int
    """How many of them it reset."""
    unanswered: tuple[int, ...]
    """Requests to it that were in flight when it ended their pipe."""
    waiting: tuple[int, ...]
    """Requests of its own that it did not wait for."""


class EndedWorker(Struct, frozen=True, kw_only=True):
    """A worker of whose process a recorder tells how it ended."""

    worker: Worker
    unanswered: tuple[int, ...]
    """Requests to it that nobody had given up until then, and that were never answered."""


class Closings(Struct, frozen=True, kw_only=True):
    """How the pipes of a run ended, and who left first."""

    departures: tuple[Departure, ...]
    first: Departure | None
    """The first that left while requests were in flight that somebody waits for; None if there is none, or if
    clocks that nobody compared tell when."""
    open_pipes: int
    """Pipes whose end was not captured."""
    reports: tuple[LogEvent, ...] = ()
    """Lines of workers' own logs by which somebody is gone, of the whole run."""
    first_report: LogEvent | None = None
    """The one that tells of the first worker to go."""
    ended: tuple[Worker, ...] = ()
    """Workers of the whole run of whose process a recorder tells how it ended, in the order of time."""
    first_ended: EndedWorker | None = None
    """The first of them that ended with a sign of a fault, or with a request to it open; None if one ended
    nobody knows when, or how, or if they are on several hosts."""
    several_clocks: bool = False
    """Whether workers that left with requests open did so by clocks that nobody compared."""

    @property
    def pipes(self) -> int:
        """Returns the number of pipes in all departures, and of those that stayed open."""
        return self.open_pipes + sum(len(departure.pipes) for departure in self.departures)


def read_closings(session: Session, calls: Sequence[Exchange], ends: Iterable[ConnectionEnd]) -> Closings:
    """Who ended what, and what was in flight."""
    known = ConnectionEnds(ends)
    on_pipe: dict[int, list[Exchange]] = defaultdict(list)
    for call in calls:
        on_pipe[call.request.tp.pipe.number].append(call)
    found: dict[tuple[int, str], list[PipeClosing]] = defaultdict(list)
    closed = 0
    for pipe in session.pipes:
        end = known.of(pipe)
        if end is None:
            continue
        closed += 1
        client, server = session.clients[pipe.number], session.servers[pipe.number]
        by = client if end.by_client else server
        found[session.jobs[pipe.number], by].append(
            PipeClosing(
                pipe=pipe.number,
                client=client,
                server=server,
                by=by,
                how=end.how,
                time_ns=end.time_ns,
                in_flight=tuple(c.index for c in on_pipe[pipe.number] if _in_flight(c, end.time_ns)),
            )
        )
    departures = [_departure(job, worker, pipes) for (job, worker), pipes in found.items()]
    departures.sort(key=lambda departure: departure.time_ns)
    awaited = {call.index for call in calls if call.kind not in CLEAN_UP}
    missed = [d for d in departures if awaited.intersection((*d.unanswered, *d.waiting))]
    by_pipe = {pipe: clock for (pipe, _), clock in clocks(session).items()}
    of_missed = {by_pipe[one.pipe] for left in missed for one in left.pipes if one.pipe in by_pipe}
    several_clocks = len(missed) > 1 and len(of_missed) > 1
    logs = session.worker_logs
    ended = tuple(sorted([w for w in session.workers if w.ended is not None], key=_when))
    return Closings(
        departures=tuple(departures),
        first=None if several_clocks else next(iter(missed), None),
        several_clocks=several_clocks,
        open_pipes=len(session.pipes) - closed,
        reports=() if logs is None else endings(logs),
        first_report=None if logs is None else first_gone(logs),
        ended=ended,
        first_ended=_first_ended(ended, calls),
    )


def _first_ended(ended: Sequence[Worker], calls: Sequence[Exchange]) -> EndedWorker | None:
    if not on_one_host(ended):
        return None
    for worker in ended:  # in the order of time, those of which it is not known last
        end = worker.ended
        if end is None or end.how == "running":
            continue
        unanswered = () if end.time_ns is None else _unanswered(worker, end.time_ns, calls)
        if unanswered or not end.well:
            # an unknown end may have been a good one; one at an unknown time may have been earlier
            doubts = [one.ended for one in ended if one.ended is not None and not one.ended.well]
            unsure = not end.over or any(one.time_ns is None and one.how != "running" for one in doubts)
            return None if unsure else EndedWorker(worker=worker, unanswered=unanswered)
    return None


def _unanswered(worker: Worker, time_ns: int, calls: Sequence[Exchange]) -> tuple[int, ...]:
    """Requests that somebody waited for when a worker's process ended, and that it never answered."""
    return tuple(
        call.index
        for call in calls
        if (call.job, call.callee) == (worker.job, worker.label)
        and call.kind not in CLEAN_UP
        and call.answer is None
        and call.begin_ns <= time_ns
        and _in_flight(call, max(time_ns - HEARD_NS, call.begin_ns))
    )


def _when(worker: Worker) -> tuple[bool, int]:
    time_ns = None if worker.ended is None else worker.ended.time_ns
    return time_ns is None, time_ns or 0


def part_of(whole: Closings, pipes: Collection[int]) -> Closings:
    """What became of some of the pipes; when a worker left, and who was the first, is of the whole run."""
    departures = []
    for departure in whole.departures:
        its = [pipe for pipe in departure.pipes if pipe.pipe in pipes]
        if its:
            part = _departure(departure.job, departure.worker, its)
            departures.append(replace(part, time_ns=departure.time_ns))
    ended = sum(len(departure.pipes) for departure in departures)
    return replace(whole, departures=tuple(departures), open_pipes=len(pipes) - ended)


def _in_flight(call: Exchange, time_ns: int) -> bool:
    """Whether a request had begun by this time, its answer was not complete, and its caller still waited."""
    over = [at for at in (call.end_ns, call.gave_up_ns) if at is not None]
    return call.begin_ns <= time_ns and (not over or min(over) > time_ns)


def _departure(job: int, worker: str, pipes: Sequence[PipeClosing]) -> Departure:
    pipes = sorted(pipes, key=lambda pipe: (pipe.time_ns, pipe.pipe))
    served = [pipe for pipe in pipes if pipe.server == worker]
    own = [pipe for pipe in pipes if pipe.client == worker]
    return Departure(
        job=job,
        worker=worker,
        time_ns=pipes[0].time_ns,
        pipes=tuple(pipes),
        reset=sum(pipe.how == "reset" for pipe in pipes),
        unanswered=tuple(sorted(index for pipe in served for index in pipe.in_flight)),
        waiting=tuple(sorted(index for pipe in own for index in pipe.in_flight)),
    )

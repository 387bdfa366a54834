"""Workers' text logs beside a capture: whose lines they are, and when that was in the capture's time.

In: logs as `workerlog` reads them, the session, the ends of connections. Out: `WorkerLogs`. Logs say when in
the local time of a host, mostly without a zone and a year. Of one log all such times have one zone: the one
in which most lines are near the end of the connection or the request that they speak of, then most lines
within the capture. A zone that nothing speaks for is none: then the lines have no time. Loose times (see
`workerlog/prefix.py`) are put right by what lines speak of, if they agree.
"""

from __future__ import annotations

from calendar import timegm
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from rpcinspect.checks.wire_facts import ConnectionEnd, ConnectionEnds
from rpcinspect.session.model import LogEvent, LogFile, Session, WorkerLogs
from rpcinspect.session.words import duration, several
from rpcinspect.session.workers import names_by_id
from rpcinspect.workerlog.prefix import DAY_NS, SECOND_NS, Stamp
from rpcinspect.workerlog.read import LogLine, WorkerLog

NEAR_NS = 2 * SECOND_NS
"""A line is written within this time after what it speaks of."""
SLACK_NS = 60 * SECOND_NS
"""Lines may be so long before or after the capture and still be of its run."""
ZONES = tuple(range(-12 * 3600, 14 * 3600 + 1, 900))
"""Zones are whole quarters of an hour."""
MAX_FITTED = 2000
"""Lines of a log that its zone is judged by."""
AGREED_NS = SECOND_NS // 5
"""Lines that tell by what loose times are shifted differ by less."""
APART_NS = SECOND_NS
"""A busy host may be late by less."""
ENDINGS = frozenset({"ended", "crashed"})
"""What tells that a process is over."""


class _Fit(Struct, frozen=True):
    """How well a zone fits: more is better."""

    near: int
    inside: int
    zone_s: int
    apart_ns: int = 0
    """The farthest line from what it speaks of."""
    shift_ns: int | None = None
    """What is to be added to the part of a second of loose times; None where that is not known."""


def join_logs(
    session: Session, logs: Sequence[WorkerLog], ends: Iterable[ConnectionEnd], zone_s: int | None = None
) -> WorkerLogs:
    """Joins text logs with the session. `zone_s`: offset of times without a zone, if the user gives one."""
    known = _CaptureTimes(session, ends)
    files = []
    keyed: list[tuple[tuple[int, int, int], LogEvent]] = []
    for number, log in enumerate(logs):
        fit = known.fit(log, zone_s)
        before = known.first_ns
        for line in log.lines:
            event = known.event(number, line, fit)
            before = before if event.time_ns is None else event.time_ns
            keyed.append(((before, number, line.number), event))
        files.append(known.file(log, fit))
    keyed.sort(key=lambda item: item[0])
    return WorkerLogs(files=tuple(files), events=tuple(event for _, event in keyed))


def endings(logs: WorkerLogs) -> tuple[LogEvent, ...]:
    """Lines by which somebody is gone."""
    return tuple(event for event in logs.events if event.lost or event.what in ENDINGS)


def first_gone(logs: WorkerLogs) -> LogEvent | None:
    """Returns the line about the first worker that went: a worker that has lost another before only follows.
    Logs without times do not show the order: then the first was a worker that has lost nobody."""
    told = [event for event in logs.events if event.lost and event.worker and event.peer]
    return next((event for event in told if not _follows(event, told)), told[0] if told else None)


def _follows(event: LogEvent, told: Sequence[LogEvent]) -> bool:
    """Returns whether the lost worker had, or may have, lost another one before itself."""
    return any(
        other.worker == event.peer
        and (event.time_ns is None or other.time_ns is None or other.time_ns <= event.time_ns + SECOND_NS)
        for other in told
    )


def _uncertainty(log: WorkerLog, fit: _Fit | None) -> int | None:
    if fit is None or not fit.near:
        return None
    loose = any(line.stamp is not None and line.stamp.loose for line in log.lines)
    return fit.apart_ns + SECOND_NS if loose and fit.shift_ns is None else fit.apart_ns


def _apart(time_ns: int, anchor_ns: int, loose: bool) -> int:
    """How far a time is from what it is of; of loose ones the second as a whole."""
    if not loose:
        return abs(time_ns - anchor_ns)
    begin = time_ns // SECOND_NS * SECOND_NS
    return max(0, begin - anchor_ns, anchor_ns - begin - SECOND_NS)


class _CaptureTimes:
    """Times in the capture that lines of logs can be compared with."""

    def __init__(self, session: Session, ends: Iterable[ConnectionEnd]) -> None:
        self._session = session
        times = [t for c in session.captures for t in (c.first_time_ns, c.last_time_ns) if t is not None]
        self.first_ns, self.last_ns = min(times, default=0), max(times, default=0)
        known = ConnectionEnds(ends)
        self._ends: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        """(caller, callee) → when their pipes ended, or when calls failed since they had."""
        self._pipes: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        for pipe in session.pipes:
            pair = session.clients[pipe.number], session.servers[pipe.number]
            self._pipes[pair].append(pipe.number)
            end = known.of(pipe)
            if end is not None:
                self._ends[pair].append(end.time_ns)
        for failure in (*session.failures.values(), *session.lost_calls):
            if failure.reason == "connection":
                self._ends[failure.caller, failure.callee].append(failure.time_ns)
        self.names = {*session.clients, *session.servers, *(w.name for w in session.workers if w.name)}
        self._names_of = _names_of(session)

    def event(self, file: int, line: LogLine, fit: _Fit | None) -> LogEvent:
        statement = line.statement
        time_ns, placed = self._time(line, fit)
        peer = statement.peer
        if peer is None and statement.what in ("context-not-released", "raised-elsewhere"):
            peer = None if statement.node is None else self._names_of.get(statement.node)
        elif statement.what == "ended" and statement.rank is not None:
            peer = self._names_of.get(statement.rank)
        row = self._request(line)
        text = line.text
        if statement.type_name is not None:
            text = text.replace(f"type {statement.type}", f"type {statement.type} ({statement.type_name})", 1)
        if statement.what == "raised" and statement.cause:
            text = f"{text} {statement.cause}"
        return LogEvent(
            file=file,
            line=line.number,
            worker=statement.worker,
            peer=peer,
            what=statement.what,
            lost=statement.lost,
            severity=line.severity,
            time_ns=time_ns,
            placed=placed,
            message=None if row is None else int(self._session.index[row]),
            type=statement.type_name,
            text=text,
        )

    def _time(self, line: LogLine, fit: _Fit | None) -> tuple[int | None, str | None]:
        if line.stamp is None:
            near = self._anchors(line) if line.statement.lost else []
            together = bool(near) and max(near) - min(near) <= SECOND_NS
            return (min(near), "connection") if together else (None, None)
        if line.stamp.zone_s is not None:
            return self._utc(line.stamp, line.stamp.zone_s), "zone"
        if fit is None:
            return None, None
        time_ns = self._utc(line.stamp, fit.zone_s)
        if not line.stamp.loose:
            return time_ns, "fit"
        second, part = divmod(time_ns, SECOND_NS)
        if fit.shift_ns is None:
            return second * SECOND_NS, "second"
        return second * SECOND_NS + (part + fit.shift_ns) % SECOND_NS, "fit"

    def _utc(self, stamp: Stamp, zone_s: int) -> int:
        """The time that is written, in this zone; what is not written is taken so that it is near."""
        middle = (self.first_ns + self.last_ns) // 2
        if stamp.month is None or stamp.day is None:
            time_ns = stamp.of_day_ns - zone_s * SECOND_NS
            return time_ns + round((middle - time_ns) / DAY_NS) * DAY_NS
        year = 1970 + middle // (DAY_NS * 1461 // 4)
        years = (stamp.year,) if stamp.year is not None else (year - 1, year, year + 1)
        days = [timegm((y, stamp.month, stamp.day, 0, 0, 0)) for y in years]
        times = [(day - zone_s) * SECOND_NS + stamp.of_day_ns for day in days]
        return min(times, key=lambda time_ns: abs(time_ns - middle))

    def _anchors(self, line: LogLine) -> list[int]:
        """Returns when the event of a line took place in the capture."""
        statement = line.statement
        if statement.lost:
            return [] if statement.pair is None else self._ends.get(statement.pair, [])
        row = self._request(line)
        if row is None:
            return []
        messages = self._session.messages
        partner = messages.partner[row]
        answered = partner >= 0 and statement.what.startswith("response")
        return [messages.time_ns[partner if answered else row]]

    def _request(self, line: LogLine) -> int | None:
        """The row of the request that it names."""
        statement = line.statement
        if statement.request is None or statement.pair is None:
            return None
        rows = [self._rows.get((pipe, statement.request)) for pipe in self._pipes.get(statement.pair, ())]
        found = [row for row in rows if row is not None]
        return found[0] if len(found) == 1 else None

    @cached_property
    def _rows(self) -> dict[tuple[int, int], int]:
        """(pipe, id) of each request → its row."""
        messages = self._session.messages
        rows = [row for row in range(len(messages)) if messages.from_client[row]]
        return {(messages.pipe[row], messages.id[row]): row for row in rows}

    def fit(self, log: WorkerLog, zone_s: int | None) -> _Fit | None:
        """Returns the zone of times that have none; None where nothing supports one."""
        lines = [line for line in log.lines if line.stamp is not None and line.stamp.zone_s is None]
        stamps = [stamp for stamp in log.stamps if stamp.zone_s is None]
        if not (lines or stamps) or not self.last_ns:
            return None
        anchored = [(line, self._anchors(line)) for line in lines[:MAX_FITTED]]
        tried = ZONES if zone_s is None else (zone_s,)
        fits = [self._fit(anchored, stamps, zone) for zone in tried]
        best = max(fits, key=lambda fit: (fit.near, fit.inside, -abs(fit.zone_s)))
        if not best.near and not best.inside:
            return None
        return self._shifted(best, anchored)

    def _fit(
        self, anchored: Sequence[tuple[LogLine, list[int]]], stamps: Sequence[Stamp], zone_s: int
    ) -> _Fit:
        near = inside = apart_ns = 0
        for line, anchors in anchored:
            assert line.stamp is not None
            time_ns = self._utc(line.stamp, zone_s)
            apart = min(
                (_apart(time_ns, anchor, line.stamp.loose) for anchor in anchors), default=NEAR_NS + 1
            )
            if apart <= NEAR_NS:
                near += 1
                apart_ns = max(apart_ns, apart)
            inside += self._inside(time_ns)
        inside += sum(self._inside(self._utc(stamp, zone_s)) for stamp in stamps)
        return _Fit(near, inside, zone_s, apart_ns)

    def _shifted(self, fit: _Fit, anchored: Sequence[tuple[LogLine, list[int]]]) -> _Fit:
        """With what loose times are to be shifted by, as far as lines agree on it: they come after what they
        speak of, so that the one which comes soonest tells best. What one line alone says nobody confirms."""
        shifts = []
        for line, anchors in anchored:
            if line.stamp is not None and line.stamp.loose:
                time_ns = self._utc(line.stamp, fit.zone_s)
                close = [anchor for anchor in anchors if _apart(time_ns, anchor, True) == 0]
                shifts += [(anchor - time_ns) % SECOND_NS for anchor in close[:1]]
        if not shifts:
            return fit
        off = [(shift - shifts[0] + SECOND_NS // 2) % SECOND_NS - SECOND_NS // 2 for shift in shifts]
        spread = max(off) - min(off)
        if spread > AGREED_NS:
            return fit
        apart_ns = max(fit.apart_ns, spread) if len(shifts) > 1 else SECOND_NS
        return replace(fit, shift_ns=shifts[0] + max(off), apart_ns=apart_ns)

    def _inside(self, time_ns: int) -> bool:
        return self.first_ns - SLACK_NS <= time_ns <= self.last_ns + SLACK_NS

    def file(self, log: WorkerLog, fit: _Fit | None) -> LogFile:
        return LogFile(
            path=log.path,
            workers=log.workers,
            lines=log.total,
            rpc_lines=len(log.lines) + log.left_out,
            zone_s=None if fit is None else fit.zone_s,
            matched=0 if fit is None else fit.near,
            uncertainty_ns=_uncertainty(log, fit),
            notes=tuple(self._notes(log, fit)),
        )

    def _notes(self, log: WorkerLog, fit: _Fit | None) -> Iterable[str]:
        strangers = [name for name in log.workers if name not in self.names]
        if strangers and self.names:
            yield f"the capture has no worker {several(strangers)}: is it the log of another run?"
        if not log.lines:
            yield "no line of it is about RPC"
        elif any(line.statement.worker is None and line.statement.what != "ended" for line in log.lines):
            yield "some lines do not say which worker wrote them: name it with --worker-log NAME=FILE"
        if log.left_out:
            yield f"{log.left_out:,} more lines about RPC are left out"
        timed = [line for line in log.lines if line.stamp is not None]
        if log.lines and not timed:
            yield "its lines about RPC have no time (torch before 2.4 writes none)"
        elif (
            timed and fit is None and not any(line.stamp and line.stamp.zone_s is not None for line in timed)
        ):
            yield "its times fit the capture in no time zone: is it the log of another run?"
        elif fit is not None and not fit.near and log.lines:
            yield "no line matches the capture: its time zone is guessed from its time span"
        elif fit is not None and fit.near and fit.apart_ns > APART_NS:
            yield (
                f"its times are up to {duration(fit.apart_ns)} from what they speak of: "
                "the clocks differ, or its host was slow"
            )


def _names_of(session: Session) -> dict[int, str]:
    """Returns id → name, where one worker alone has the id: a line of a log does not name its job."""
    ids: dict[str, set[int]] = defaultdict(set)
    for worker in session.workers:
        if worker.id is not None and worker.name is not None:
            ids[worker.name].add(worker.id)
    return names_by_id(ids)

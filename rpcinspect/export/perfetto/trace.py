"""A run in the Trace Event Format, which ui.perfetto.dev and chrome://tracing open.

In: a run, and which of its messages are shown. Out: one JSON object in pieces. Each worker is a process:

    b, e    calls at their caller and the same calls being served at their callee, as async slices, since both
            overlap; a call that was made while another was served is drawn within that, where it fits
    X       messages, at their sender, from their first byte on the wire to their last
    s, f    arrows from requests to their answers and to the requests that they caused, and from forward
            messages to their gradients
    i       answers that report an error, findings
    C       of each worker the calls that it waits for, and the bytes that it is sending
    M       names

Times are microseconds with three digits after the point, counted from the first message, whatever
`displayTimeUnit` says. Readers bind an arrow to the slice that encloses its end on a thread, so that arrows
begin and end with messages, never with async slices, whose ids are `local`, since Perfetto draws them with
their process only then. Events of the same time stand in the order in which they are to be read. Pids are
integers; tids no two processes share, and slices never overlap on a thread: it is used again once its last
slice has ended.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import count

import orjson

from rpcinspect.export.perfetto.args import call_args, finding_args, message_args, serve_args, what
from rpcinspect.fields.phrases import Phrases, path_label
from rpcinspect.fields.plain import Json, text
from rpcinspect.filter.matches import Shown
from rpcinspect.rpc.message import type_name
from rpcinspect.rpc.questions import failed, size_of
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.run.exchanges import Exchange
from rpcinspect.run.run import RunModel
from rpcinspect.session.identity import WorkerKey
from rpcinspect.session.model import Finding, Session

EVENTS = 2000
"""In one piece of the output."""
FIRST_TID = 1_000_000
"""Beyond all pids: some readers take the thread whose tid is the pid for the process itself."""


def perfetto_pieces(run: RunModel, shown: Shown | None = None) -> Iterator[bytes]:
    """The whole file; with a filter the exchanges of which a message is shown."""
    yield b'{"displayTimeUnit":"ns","otherData":%s,"traceEvents":[\n' % orjson.dumps(_origin(run, shown))
    batch: list[bytes] = []
    comma = b""
    for event in _Writer(run, shown).events():
        batch.append(orjson.dumps(event))
        if len(batch) >= EVENTS:
            yield comma + b",\n".join(batch)
            batch.clear()
            comma = b",\n"
    if batch:
        yield comma + b",\n".join(batch)
    yield b"\n]}\n"


def _origin(run: RunModel, shown: Shown | None) -> Json:
    """What the file is of; texts only, as chrome://tracing shows them."""
    session = run.session
    told = {
        "captures": ", ".join(path_label(capture.path) for capture in session.captures),
        "begin_ns": str(min(session.messages.time_ns, default=0)),
    }
    return told if shown is None else {**told, "filter": text(shown.text), "matched": str(shown.count)}


class _Writer:
    """See the module's text."""

    def __init__(self, run: RunModel, shown: Shown | None) -> None:
        self._run = run
        exchanges = run.exchanges.shown(None if shown is None else shown.rows)
        self._calls, self._orphans = exchanges.calls, exchanges.orphans
        session = run.session
        self._findings = session.findings if shown is None else shown.findings(session)
        messages = session.messages
        self._start = min(messages.time_ns, default=0)
        self._end = max(messages.end_time_ns, default=0)
        self._processes = Processes(session)
        self._threads = Threads()
        self._tids: dict[int, tuple[int, int, int]] = {}
        """Message → pid and tid of its slice, and when it begins."""

    def events(self) -> Iterator[Json]:
        """Every event; threads are known, and so named, only in the end."""
        yield from self._process_names()
        yield from self._slices()
        yield from self._messages()
        yield from self._arrows()
        yield from self._errors()
        yield from self._marks()
        yield from self._counters()
        yield from self._thread_names()

    def _us(self, time_ns: int) -> float:
        """Exact to the nanosecond for a hundred days."""
        return (time_ns - self._start) / 1000

    def _pid(self, job: int, label: str) -> int:
        return self._processes.pid((job, label))

    # --- calls ----------------------------------------------------------------------------------------------

    def _slices(self) -> Iterator[Json]:
        """Calls and what serves them. Slices of one id must lie within each other: a call goes into the slice
        of the request that it was made for only if it ends before that and begins after the call before it.
        """
        parents = self._run.causes.parents
        shown = {call.index for call in self._calls}
        nested: dict[int, list[Exchange]] = defaultdict(list)
        for call in self._calls:
            parent = parents.get(call.index)
            if parent in shown:
                nested[parent].append(call)
        within: set[int] = set()
        for call in self._calls:
            fitting = list(self._fitting(call, nested.get(call.index, ())))
            within.update(inner.index for inner in fitting)
            yield from self._serving(call, fitting)
        for call in self._calls:
            if call.index not in within:
                yield from self._calling(call, 2 * call.index + 2)

    def _fitting(self, call: Exchange, inner: Iterable[Exchange]) -> Iterator[Exchange]:
        free, end = call.arrived_ns, self._served_ns(call)
        for one in inner:
            if one.caller == call.callee and free <= one.begin_ns and self._ended_ns(one) <= end:
                free = self._ended_ns(one)
                yield one

    def _served_ns(self, call: Exchange) -> int:
        """When the callee was done; what was never answered lasts until the capture ends."""
        return self._end if call.answered_ns is None else max(call.arrived_ns, call.answered_ns)

    def _ended_ns(self, call: Exchange) -> int:
        return self._end if call.end_ns is None else max(call.begin_ns, call.end_ns)

    def _serving(self, call: Exchange, inner: Sequence[Exchange]) -> Iterator[Json]:
        identifier = 2 * call.index + 3
        place = _async(f"serve {what(call)}", identifier, self._pid(call.job, call.callee))
        yield {**place, "ph": "b", "ts": self._us(call.arrived_ns), "args": serve_args(call)}
        for one in inner:
            yield from self._calling(one, identifier)
        yield {**place, "ph": "e", "ts": self._us(self._served_ns(call))}

    def _calling(self, call: Exchange, identifier: int) -> Iterator[Json]:
        place = _async(f"call {what(call)}", identifier, self._pid(call.job, call.caller))
        args = call_args(call, *self._run.causes.of(call.index))
        yield {**place, "ph": "b", "ts": self._us(call.begin_ns), "args": args}
        yield {**place, "ph": "e", "ts": self._us(self._ended_ns(call))}

    # --- messages -------------------------------------------------------------------------------------------

    def _messages(self) -> Iterator[Json]:
        for index, name, record in sorted(self._drawn(), key=lambda item: item[0]):
            pid, begin = self._sender(record), record.tp.first_ns
            end = max(begin, record.tp.last_ns)
            tid = self._threads.tid(pid, begin, end)
            self._tids[index] = (pid, tid, begin)
            yield {
                "ph": "X",
                "cat": "message",
                "name": name,
                "pid": pid,
                "tid": tid,
                "ts": self._us(begin),
                "dur": (end - begin) / 1000,
                "args": message_args(index, record),
            }

    def _drawn(self) -> Iterator[tuple[int, str, RpcRecord]]:
        """Yields every message with its index and the name of its slice, call by call."""
        for call in self._calls:
            yield call.index, f"request {what(call)}", call.request
            if call.answer is not None and call.response is not None:
                yield call.answer, f"answer {what(call)}", call.response
        for orphan in self._orphans:
            yield orphan.index, f"answer {type_name(orphan.record.rpc.message.type)}", orphan.record

    def _sender(self, record: RpcRecord) -> int:
        """Returns the pid of the worker that sent a message."""
        session = self._run.session
        return self._pid(session.jobs[record.tp.pipe.number], session.source(record.row))

    def _arrows(self) -> Iterator[Json]:
        """Between messages that are shown, from the earlier to the later one."""
        numbers = count(1)
        for call in self._calls:
            if call.answer is not None:
                yield from self._arrow("exchange", next(numbers), call.index, call.answer)
        for index, parent in sorted(self._run.causes.parents.items()):
            yield from self._arrow("cause", next(numbers), parent, index)
        for context in self._run.session.contexts:
            for edge in context.edges:
                for backward in edge.backward:
                    yield from self._arrow("gradient", next(numbers), edge.forward, backward)

    def _arrow(self, name: str, number: int, start: int, end: int) -> Iterator[Json]:
        if start not in self._tids or end not in self._tids:
            return
        (pid, tid, begin), (to_pid, to_tid, to_begin) = self._tids[start], self._tids[end]
        if to_begin < begin:
            return  # by clocks that differ
        common = {"cat": name, "name": name, "id": number}
        yield {**common, "ph": "s", "pid": pid, "tid": tid, "ts": self._us(begin)}
        yield {**common, "ph": "f", "bp": "e", "pid": to_pid, "tid": to_tid, "ts": self._us(to_begin)}

    # --- what went wrong ------------------------------------------------------------------------------------

    def _errors(self) -> Iterator[Json]:
        phrases = Phrases()
        for index, _, record in self._drawn():
            if not record.tp.from_client and failed(record):
                pid, tid, begin = self._tids[index]
                args = {"message": index, "text": phrases.phrase(record)}
                yield _instant("error", "error", pid, tid, self._us(begin), args)

    def _marks(self) -> Iterator[Json]:
        """At the sender of their first message, where they name one, else at the beginning of the run."""
        for finding in self._findings:
            pid, time = self._place(finding)
            name = f"{finding.severity}: {finding.code}"
            yield _instant("finding", name, pid, pid, time, finding_args(finding))

    def _place(self, finding: Finding) -> tuple[int, float]:
        if not finding.messages:
            return RUN_PID, 0.0
        record = self._run.messages[finding.messages[0]]
        return self._sender(record), self._us(record.tp.first_ns)

    # --- counters -------------------------------------------------------------------------------------------

    def _counters(self) -> Iterator[Json]:
        waiting: dict[int, Counter[int]] = defaultdict(Counter)
        sending: dict[int, Counter[int]] = defaultdict(Counter)
        records = [orphan.record for orphan in self._orphans]
        for call in self._calls:
            pid = self._pid(call.job, call.caller)
            waiting[pid][call.begin_ns] += 1
            if call.end_ns is not None:
                waiting[pid][self._ended_ns(call)] -= 1
            records += [call.request] if call.response is None else [call.request, call.response]
        for record in records:
            pid = self._sender(record)
            sending[pid][record.tp.first_ns] += size_of(record)
            sending[pid][max(record.tp.first_ns, record.tp.last_ns)] -= size_of(record)
        yield from self._counter("waiting for", "calls", waiting)
        yield from self._counter("sending", "bytes", sending)

    def _counter(self, name: str, unit: str, changes: dict[int, Counter[int]]) -> Iterator[Json]:
        for pid, by_time in changes.items():
            value = 0
            for time_ns, change in sorted(by_time.items()):
                if change:
                    value += change
                    place = {"ph": "C", "name": name, "pid": pid, "tid": pid, "ts": self._us(time_ns)}
                    yield {**place, "args": {unit: value}}

    # --- names ----------------------------------------------------------------------------------------------

    def _process_names(self) -> Iterator[Json]:
        """First of all: Perfetto lists processes in the order in which it sees them."""
        for call in self._calls:
            self._pid(call.job, call.caller)
            self._pid(call.job, call.callee)
        for orphan in self._orphans:
            self._pid(orphan.job, orphan.source)
        for finding in self._findings:
            self._place(finding)
        for pid, name in self._processes.names():
            common = {"ph": "M", "pid": pid, "tid": pid, "ts": 0.0}
            yield {**common, "name": "process_name", "args": {"name": text(name)}}
            yield {**common, "name": "process_sort_index", "args": {"sort_index": pid}}
            yield {**common, "name": "thread_name", "args": {"name": "calls"}}

    def _thread_names(self) -> Iterator[Json]:
        for pid, tid, number in self._threads.all:
            common = {"ph": "M", "pid": pid, "tid": tid, "ts": 0.0}
            name = "messages" if number == 0 else f"messages {number + 1}"
            yield {**common, "name": "thread_name", "args": {"name": name}}
            yield {**common, "name": "thread_sort_index", "args": {"sort_index": tid}}


def _async(name: str, identifier: int, pid: int) -> Json:
    return {"cat": "call", "name": name, "id2": {"local": hex(identifier)}, "pid": pid, "tid": pid}


def _instant(category: str, name: str, pid: int, tid: int, time_us: float, args: Json) -> Json:
    place = {"cat": category, "name": name, "pid": pid, "tid": tid, "ts": time_us}
    return {"ph": "i", "s": "p", **place, "args": args}


RUN_PID = 1
"""Of the process for what belongs to no worker."""


class Processes:
    """The pids of workers; whoever is named first gets the lowest."""

    def __init__(self, session: Session) -> None:
        self._pids: dict[WorkerKey, int] = {}
        for worker in session.workers:
            if worker.name is not None:
                self.pid((worker.job, worker.name))
        self._several = len(set(session.jobs)) > 1

    def pid(self, worker: WorkerKey) -> int:
        return self._pids.setdefault(worker, RUN_PID + 1 + len(self._pids))

    def names(self) -> Iterator[tuple[int, str]]:
        """Yields each pid with its name; workers have their job in it where there are several jobs."""
        yield RUN_PID, "the run"
        for (job, label), pid in self._pids.items():
            yield pid, f"{label} (job {job})" if self._several else label


class Threads:
    """The tids of one kind of thread, given to slices as they begin."""

    def __init__(self) -> None:
        self._next = FIRST_TID
        self._running: dict[int, list[tuple[int, int, int]]] = {}
        """Of each process (end, number, tid) of its threads in use, the earliest end first."""
        self._free: dict[int, list[tuple[int, int]]] = {}
        """(number, tid) of the others."""
        self.all: list[tuple[int, int, int]] = []
        """(pid, tid, number within the process from 0) of every thread."""

    def tid(self, pid: int, begin_ns: int, end_ns: int) -> int:
        """A thread of a process on which nothing is drawn between two times; begins must not descend.

        A slice that begins where another ends gets another thread: readers that compute with floats may see
        the two overlap.
        """
        running = self._running.setdefault(pid, [])
        free = self._free.setdefault(pid, [])
        while running and running[0][0] < begin_ns:
            _, number, tid = heappop(running)
            heappush(free, (number, tid))
        if free:
            number, tid = heappop(free)
        else:
            number, tid = len(running), self._next
            self._next += 1
            self.all.append((pid, tid, number))
        heappush(running, (end_ns, number, tid))
        return tid

"""The requests of a session as causes are found among them: rows, with times and ends at hand.

In: a session. Out: per worker what it sent and what it served, as rows of the session's columns, and what it
has open at a moment (`Serving`). A request is *served* from its last byte to the first of its answer.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence, Set
from functools import cached_property
from heapq import heappop, heappush
from itertools import islice

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from rpcinspect.rpc.questions import CALLS, REMOTE
from rpcinspect.session.hosts import Sniffers, clocks
from rpcinspect.session.identity import WorkerKey
from rpcinspect.session.model import NONE, Session
from rpcinspect.session.provenance import Event, Id, MessageKind, What
from rpcinspect.session.uncaptured import LATE_NS, NEVER, Uncaptured
from rpcinspect.tensorpipe.records import Pipe, Visibility

LOSSES = frozenset({"capture-gap", "truncated-packets"})
"""Findings by which requests may be missing, or what they carried."""

TypeAndFunction = tuple[int, str | None]
"""Type and function of a call."""


class Case(Struct, eq=False):
    """A request that code sent, and the candidates that are left for its cause."""

    row: int
    rows: list[int]
    own: bool
    unseen: bool = False
    """The sender may then have served something that was not captured."""
    settled: bool = False
    """Evidence names one of them."""

    def settle(self, row: int) -> None:
        """Leaves one candidate, by evidence."""
        self.rows, self.own, self.settled = [row], False, True

    @property
    def certain(self) -> bool:
        """Returns whether exactly one explanation is left."""
        return len(self.rows) + self.own == 1 and (self.settled or not self.unseen)


class Traffic(Struct, eq=False):
    """Messages that one worker of a job sent and received, as rows in the order of time; without the agents'
    own."""

    sent: list[int] = field(default_factory=list)
    received: list[int] = field(default_factory=list)


class Requests:
    """Answers questions to requests, which are given by row."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.provenance = session.provenance
        columns = session.messages
        self.begin: Sequence[int] = columns.time_ns
        """First byte of each message."""
        self.arrived: Sequence[int] = columns.end_time_ns
        """Last byte; where several sniffers saw what the receiver does, as early as their clocks allow."""
        self._replied: Sequence[int] = columns.time_ns
        """First byte; there, as late as they allow."""
        self._doubt: dict[int, int] = {}
        """Pipe → by how much those times may be wrong, where they are of several sniffers."""
        self._late: Set[tuple[int, int]] = frozenset()
        """(pipe, capture) of requests that are there as they arrive, by a worker of which more is known."""
        self._partner = columns.partner
        self._pipe = columns.pipe
        self.workers: dict[WorkerKey, Traffic] = defaultdict(Traffic)
        forth, control = np.asarray(columns.from_client), np.asarray(columns.control)
        order = session.order
        rows = order[(forth[order] != 0) & (control[order] == 0)] if len(columns) else order
        ends = zip(session.jobs, session.clients, session.servers, strict=True)
        its = [(self.workers[job, a].sent, self.workers[job, b].received) for job, a, b in ends]
        for row, pipe in zip(rows.tolist(), np.asarray(self._pipe)[rows].tolist(), strict=True):
            sent, received = its[pipe]
            sent.append(row)
            received.append(row)
        self._take_sniffers()

    def _take_sniffers(self) -> None:
        """Finds what was captured later than it was sent, and workers whose requests, served and sent, were
        captured by several sniffers: their order is known as well as those clocks are."""
        if all(one.reader == "log" for one in self.session.captures):
            return
        view = Sniffers.of(self.session)
        columns, pipes = self.session.messages, self.session.pipes
        late = set()
        for traffic in self.workers.values():
            served, sent = (
                {(columns.pipe[row], columns.capture[row]) for row in rows}
                for rows in (self.code(traffic.received), traffic.sent)
            )
            if served:
                doubt = view.doubt_ns(capture for _, capture in served | sent)
                self._doubt |= {pipe: doubt for pipe, _ in served if doubt}
                late |= {one for one in sent if not view.is_at_sender(one[1], pipes[one[0]])}
        self._late = late
        if not self._doubt:
            return
        doubts = np.array([self._doubt.get(pipe, 0) for pipe in range(len(pipes))])[np.asarray(columns.pipe)]
        self.arrived = (columns.end_time_ns - doubts * (np.asarray(columns.from_client) != 0)).tolist()
        self._replied = (columns.time_ns + doubts).tolist()

    def kind(self, row: int) -> MessageKind:
        return self.provenance.kind_of(row)

    def sign(self, row: int) -> TypeAndFunction:
        """What a call is, whatever it is given."""
        kind = self.kind(row)
        return kind.type, kind.function

    def of_types(self, types: Collection[int], rows: Iterable[int]) -> list[int]:
        """Returns the rows of requests that have one of these types."""
        return self.where(lambda kind: kind.type in types, rows)

    def code(self, rows: Iterable[int]) -> list[int]:
        """Returns the rows of requests that run a function that can send something."""
        return self.where(lambda kind: kind.type in CALLS and not kind.builtin, rows)

    def where(self, test: Callable[[MessageKind], bool], rows: Iterable[int]) -> list[int]:
        """Returns the rows whose kind passes a test; the test runs once per kind."""
        of, wanted = self.provenance.kind, {n for n, kind in enumerate(self.provenance.kinds) if test(kind)}
        return [row for row in rows if of[row] in wanted] if wanted else []

    def answer(self, row: int) -> int | None:
        """Returns the row of a request's answer, or of an answer's request."""
        partner = self._partner[row]
        return None if partner == NONE else partner

    def answered(self, row: int) -> int:
        """Returns when the first byte of the answer was captured."""
        partner = self._partner[row]
        return NEVER if partner == NONE else self._replied[partner]

    def over(self, row: int) -> int:
        """Returns when the last byte of the answer was captured."""
        partner = self._partner[row]
        return NEVER if partner == NONE else self.arrived[partner]

    def waits_for(self, row: int, call: int) -> bool:
        """Whether a call was over before a request was answered, as it is where a function waits for it;
        nobody has to wait for a remote call.
        """
        doubt = self._doubt.get(self._pipe[row], 0)
        return self.kind(call).type in REMOTE or self.over(call) + doubt <= self.answered(row) - 2 * doubt

    def context(self, row: int) -> int | None:
        """Returns the autograd context of the request; of a call, in which its function runs."""
        return self.provenance.context_of(row)

    def unseen_until(self, member: WorkerKey) -> int:
        """Returns the time until which a worker may have served requests that were not captured, or not when
        their times say; before the capture if there is none. Requests are missing where a pipe to the worker
        began before the capture or can't be seen, where the owner of a pipe is unknown, where bytes were
        lost, and before an answer to a missing request."""
        if self._nameless or self._lost or member in self._by_other_clocks:
            return NEVER
        pipes = self._to.get(member, ())
        if any(not _whole(self.session.pipes[pipe]) for pipe in pipes):
            return NEVER
        return max((self._orphans.get(pipe, -NEVER) for pipe in pipes), default=-NEVER)

    def unseen_since(self, member: WorkerKey) -> int:
        """Returns the time from which on a worker may have served requests that passed no sniffer."""
        return self._uncaptured.since(member)

    @cached_property
    def _uncaptured(self) -> Uncaptured:
        return Uncaptured(self.session)

    @cached_property
    def _to(self) -> dict[WorkerKey, list[int]]:
        """Worker → the pipes to it."""
        return self.session.pipes_of(self.session.servers)

    @cached_property
    def _lost(self) -> bool:
        """Whether something was lost, or workers may have met where no network is."""
        codes = {finding.code for finding in self.session.findings}
        elsewhere = any(worker.elsewhere for worker in self.session.workers)
        # the processes of a job append to one log, each when it comes to it: where one is cut or damaged,
        # calls may be there without the requests that they were sent for
        logs = {capture.capture for capture in self.session.captures if capture.reader == "log"}
        cut = any(one.layer == "capture" and one.location.capture in logs for one in self.session.problems)
        return cut or bool(codes & LOSSES) or (elsewhere and "invisible-transport" in codes)

    @cached_property
    def _by_other_clocks(self) -> Set[WorkerKey]:
        """The workers whose served and sent requests have times of clocks that nobody compared."""
        clock_of = clocks(self.session)
        if len(set(clock_of.values())) < 2:
            return frozenset()
        pipe, capture = self._pipe, self.session.messages.capture
        found = set()
        for member, traffic in self.workers.items():
            served = {clock_of[pipe[row], capture[row]] for row in self.code(traffic.received)}
            sent = {clock_of[pipe[row], capture[row]] for row in traffic.sent}
            if served and len(served | sent) > 1:
                found.add(member)
        return found

    @cached_property
    def _nameless(self) -> bool:
        """Whether there are pipes of which it is not known whose they are: maybe of a worker with a name."""
        names = {worker.name for worker in self.session.workers}
        return not names.issuperset((*self.session.clients, *self.session.servers))

    @cached_property
    def _orphans(self) -> dict[int, int]:
        """Pipe → when the last answer on it was sent whose request is missing."""
        columns = self.session.messages
        forth, partner = np.asarray(columns.from_client), np.asarray(columns.partner)
        found: dict[int, int] = {}
        for row in np.flatnonzero((forth == 0) & (partner == NONE)).tolist():
            found[self._pipe[row]] = max(self.begin[row], found.get(self._pipe[row], -NEVER))
        return found

    def wanted(self, row: int) -> int:
        """Returns the earliest time at which the sender may have asked for the request: it may have waited
        for its turn on the pipe, so that its cause may be answered before its first byte is sent; and it may
        have been on its way to where it was captured."""
        columns = self.session.messages
        late = (self._pipe[row], columns.capture[row]) in self._late if self._late else False
        return min(self._turns.get(row, NEVER), self.begin[row]) - (LATE_NS if late else 0)

    @cached_property
    def _turns(self) -> dict[int, int]:
        """Request that may have waited for its turn → when what it may have waited for began."""
        columns = self.session.messages
        pipes, begins, ends, offsets, partners, forth = (
            np.asarray(column)
            for column in (
                columns.pipe,
                columns.time_ns,
                columns.end_time_ns,
                columns.offset,
                columns.partner,
                columns.from_client,
            )
        )
        overs = np.where(partners == NONE, NEVER, ends[partners]) if len(ends) else ends
        requests = np.flatnonzero(forth)
        requests = requests[np.lexsort((offsets[requests], pipes[requests]))]
        found: dict[int, int] = {}
        for rows in np.split(requests, np.flatnonzero(np.diff(pipes[requests])) + 1):
            pipe = self.session.pipes[pipes[rows[0]]] if len(rows) else None
            if pipe is None or pipe.logged:  # a log has the times at which the agent was asked
                continue
            since = _asked(begins[rows], overs[rows])
            if pipe.first_ns:
                connected = 2 * begins[rows].min() - pipe.first_ns  # what waits is sent faster than that
                since[since <= connected] = pipe.first_ns
            waited = since < begins[rows]
            found.update(zip(rows[waited].tolist(), since[waited].tolist(), strict=True))
        return found

    @cached_property
    def creators(self) -> dict[tuple[int, int], str]:
        """(job, autograd context) → the worker that opened it."""
        return {one.key: one.creator for one in self.session.contexts}

    @cached_property
    def owners(self) -> dict[tuple[int, Id], str | None]:
        """(job, RRef) → the worker that has its value."""
        return {(one.job, one.rref_id): one.owner for one in self.session.rrefs}

    @cached_property
    def events(self) -> dict[int, list[Event]]:
        """What messages do to RRefs, by row."""
        found: dict[int, list[Event]] = defaultdict(list)
        for event in self.provenance.events():
            found[event.row].append(event)
        return found

    def made(self, row: int) -> list[Event]:
        """The RRef that a remote call makes."""
        return [event for event in self.events.get(row, ()) if event.what == What.MADE]

    def brought(self, row: int) -> list[Event]:
        """The forks that a message brings in its pickles."""
        return [event for event in self.events.get(row, ()) if event.what == What.BROUGHT]


def _asked(begins: NDArray[np.int64], overs: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns since when each request of a connection may have waited for its turn, or its own beginning. TCP
    sends as little as it likes before it hears of the other end, so that a request may wait behind each one
    that may not have arrived when it begins, and that one may have waited itself. Whoever answers a request
    has all up to it. In, in the order of the stream: when requests begin, and when their answers have come.
    """
    by_answer = np.argsort(overs)
    heard = np.concatenate(([0], np.maximum.accumulate(by_answer + 1)))
    arrived = heard[np.searchsorted(overs[by_answer], begins, "right")]
    first = np.minimum(arrived, np.arange(len(begins)))
    while not np.array_equal(first[first], first):
        first = first[first]
    return begins[first]


def _whole(pipe: Pipe) -> bool:
    """Whether a pipe was captured from its beginning, where its handshake names the client."""
    seen = pipe.visible in (Visibility.FULL, Visibility.NO_TENSORS)
    return pipe.logged or (pipe.client_name is not None and seen)


MAX_OPEN = 256
"""Open requests, of one context or all, that are looked at: the latest."""


class Serving:
    """What a worker has open at a moment: requests that had arrived, were not answered, and run code.

    Goes on in the order of time, with `at`; then it gives the open requests, as many as are looked at, by
    the autograd context that they run in, and those that were open a moment before. A worker that is asked
    thousands of things at once costs each question no more than that.
    """

    def __init__(self, requests: Requests, received: Iterable[int]) -> None:
        self._requests = requests
        self._waiting = sorted(requests.code(received), key=requests.arrived.__getitem__)
        self._next = 0
        self._open: dict[int, None] = {}
        """In the order in which they arrived."""
        self._inside: dict[int | None, dict[int, None]] = defaultdict(dict)
        """The same, by the context of their envelope."""
        self._ends: list[tuple[int, int]] = []
        """(when it was answered, row), the earliest first."""
        self._closed: list[tuple[int, int]] = []
        """The same of those that are not open any more."""

    def at(self, time_ns: int) -> None:
        """Goes on to this moment, none before the last one."""
        requests = self._requests
        while self._next < len(self._waiting) and requests.arrived[self._waiting[self._next]] <= time_ns:
            row = self._waiting[self._next]
            self._open[row] = self._inside[requests.context(row)][row] = None
            heappush(self._ends, (requests.answered(row), row))
            self._next += 1
        while self._ends and self._ends[0][0] < time_ns:
            self._closed.append(heappop(self._ends))
            row = self._closed[-1][1]
            inside = requests.context(row)
            del self._open[row], self._inside[inside][row]
            if not self._inside[inside]:
                del self._inside[inside]

    def __contains__(self, row: int) -> bool:
        """Whether a request is open."""
        return row in self._open

    def __bool__(self) -> bool:
        """Whether any request is open."""
        return bool(self._open)

    def latest(self, context: int | None, since: int = NEVER) -> list[int]:
        """Requests in a context, or all of them, that are open or were after `since`, in the order in which
        they arrived.
        """
        if not self._open and not self._closed:
            return []
        requests = self._requests
        group = self._open if context is None else self._inside.get(context, {})
        found = list(islice(reversed(group), MAX_OPEN))[::-1]
        late = (row for _, row in self._closed[bisect_left(self._closed, (since, -1)) :][-MAX_OPEN:])
        before = [row for row in late if context is None or requests.context(row) == context]
        return sorted(before + found, key=requests.arrived.__getitem__) if before else found

    def first_in(self, context: int) -> int | None:
        """The open request in a context that arrived first."""
        return next(iter(self._inside.get(context, {})), None)

"""The requests of a session as causes are found among them: rows, with times and ends at hand.

In: a session. Out: per worker what it sent and what it served, as rows of the session's columns. A request is
*served* from its last byte to the first of its answer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct, field

from rpcinspect.rpc.questions import CALLS
from rpcinspect.session.model import NONE, Session
from rpcinspect.session.provenance import NO_CONTEXT, Event, Id, Kind, What
from rpcinspect.wire.records import Pipe, Visibility

NEVER = (1 << 63) - 1
"""When what was not captured happened."""

LOSSES = frozenset({"capture-gap", "truncated-packets"})
"""Findings by which requests may be missing, or what they carried."""

Member = tuple[int, str]
"""(job, label) of a worker."""


class Worker(Struct, eq=False):
    """What one worker of a job sent and received, as rows in the order of time; the agents' own left out."""

    sent: list[int] = field(default_factory=list)
    received: list[int] = field(default_factory=list)


class Requests:
    """Answers by row; see the module's text."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.provenance = session.provenance
        columns = session.messages
        self.begin: Sequence[int] = columns.time_ns
        """First byte of each message."""
        self.arrived: Sequence[int] = columns.end_time_ns
        """Last byte."""
        self._partner = columns.partner
        self._pipe = columns.pipe
        self.workers: dict[Member, Worker] = defaultdict(Worker)
        forth, control = np.asarray(columns.from_client), np.asarray(columns.control)
        order = session.order
        chosen = (forth[order] != 0) & (control[order] == 0) if len(columns) else slice(0)
        for row in order[chosen].tolist():
            job, pipe = self.job(row), self._pipe[row]
            self.workers[job, session.clients[pipe]].sent.append(row)
            self.workers[job, session.servers[pipe]].received.append(row)

    def job(self, row: int) -> int:
        """The job of a message."""
        return self.session.jobs[self._pipe[row]]

    def caller(self, row: int) -> str:
        """Who sent a request."""
        return self.session.clients[self._pipe[row]]

    def callee(self, row: int) -> str:
        """Who served it."""
        return self.session.servers[self._pipe[row]]

    def kind(self, row: int) -> Kind:
        """What kind of request it is."""
        return self.provenance.kind_of(row)

    def answer(self, row: int) -> int | None:
        """The row of its answer; of an answer that of its request."""
        partner = self._partner[row]
        return None if partner == NONE else partner

    def answered(self, row: int) -> int:
        """When the first byte of its answer was seen."""
        partner = self._partner[row]
        return NEVER if partner == NONE else self.begin[partner]

    def over(self, row: int) -> int:
        """When the last byte of its answer was seen."""
        partner = self._partner[row]
        return NEVER if partner == NONE else self.arrived[partner]

    def context(self, row: int) -> int | None:
        """The autograd context that it belongs to."""
        context = self.provenance.context[row]
        return None if context == NO_CONTEXT else context

    def inside(self, row: int) -> int | None:
        """The autograd context in which its function runs."""
        return self.context(row) if self.kind(row).wrapped else None

    def unseen_until(self, member: Member) -> int:
        """Until when a worker may have served requests that were not captured; before the capture if none is
        missing. That is where a pipe to it was there before the capture or can't be seen, where it can't be
        told whose a pipe is, where bytes were lost, and before an answer to what is missing.
        """
        if self._nameless or self._lost:
            return NEVER
        pipes = self._to.get(member, ())
        if any(not _whole(self.session.pipes[pipe]) for pipe in pipes):
            return NEVER
        return max((self._orphans.get(pipe, -NEVER) for pipe in pipes), default=-NEVER)

    @cached_property
    def _to(self) -> dict[Member, list[int]]:
        """Worker → the pipes to it."""
        found: dict[Member, list[int]] = defaultdict(list)
        for pipe, member in enumerate(zip(self.session.jobs, self.session.servers, strict=True)):
            found[member].append(pipe)
        return found

    @cached_property
    def _lost(self) -> bool:
        """Whether something was lost, or workers may have met where no network is."""
        codes = {finding.code for finding in self.session.findings}
        elsewhere = any(worker.elsewhere for worker in self.session.workers)
        return bool(codes & LOSSES) or (elsewhere and "invisible-transport" in codes)

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

    def runs_code(self, row: int) -> bool:
        """Whether a function runs for it that can send something."""
        kind = self.kind(row)
        return kind.type in CALLS and not kind.builtin

    def creator(self, job: int, context: int) -> str | None:
        """The worker that opened an autograd context."""
        return self._creators.get((job, context))

    @cached_property
    def _creators(self) -> dict[tuple[int, int], str]:
        return {(one.job, one.context_id): one.creator for one in self.session.contexts}

    def owner(self, row: int, event: Event) -> str | None:
        """The worker that has the value of the RRef which a message is about."""
        return self._owners.get((self.job(row), event.rref))

    @cached_property
    def _owners(self) -> dict[tuple[int, Id], str | None]:
        return {(one.job, one.rref_id): one.owner for one in self.session.rrefs}

    @cached_property
    def events(self) -> dict[int, list[Event]]:
        """What messages do to RRefs, by row."""
        found: dict[int, list[Event]] = defaultdict(list)
        for event in self.provenance.events():
            found[event.row].append(event)
        return found

    def brought(self, row: int) -> list[Event]:
        """The forks that a message brings in its pickles."""
        return [event for event in self.events.get(row, ()) if event.what == What.BROUGHT]


def _whole(pipe: Pipe) -> bool:
    """Whether a pipe was captured from its beginning, where its handshake names the client."""
    seen = pipe.visible in (Visibility.FULL, Visibility.NO_TENSORS)
    return pipe.logged or (pipe.client_name is not None and seen)

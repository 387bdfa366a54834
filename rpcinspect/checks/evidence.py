"""The whole run as the checks see it once everything was read: what was lost, what was closed, when it ended.

In: the session and what the TCP stage noted. Out: answers to the questions that several checks ask before
they say that something is missing. Missing messages prove nothing where the capture has holes or ends early.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property

import numpy as np

from rpcinspect.checks.wire_facts import ConnectionEnd, ConnectionEnds, WireFacts
from rpcinspect.session.hosts import Sniffers, clocks, on_one_host
from rpcinspect.session.model import NONE, Edge, Session
from rpcinspect.session.process_end import ProcessEnd
from rpcinspect.session.uncaptured import Uncaptured

TIMES = 10.0
"""An answer may take so many times as long as most others did, or a replay as its run did."""
END_S = 0.05
"""A capture that ends so soon after a request says nothing about its answer."""


def usual_s(took_ns: Sequence[int]) -> float:
    """Nine of ten answers came within so many seconds; `took_ns` ascends."""
    return took_ns[len(took_ns) * 9 // 10] / 1e9 if took_ns else 0.0


def due_s(usual_s: float) -> float:
    """Seconds after a request before which nothing follows from the lack of an answer."""
    return max(END_S, TIMES * usual_s)


class CaptureEvidence:
    def __init__(self, session: Session, wire: WireFacts) -> None:
        self.session = session
        self.wire = wire
        self._on_one_host: dict[int, bool] = {}

    @cached_property
    def usual_s(self) -> float:
        """Seconds within which nine of ten requests were answered."""
        columns = self.session.messages
        partner = np.asarray(columns.partner)
        requests = np.flatnonzero((np.asarray(columns.from_client) != 0) & (partner != NONE))
        begin, end = np.asarray(columns.time_ns), np.asarray(columns.end_time_ns)
        return usual_s(np.sort(end[partner[requests]] - begin[requests]).tolist())

    @cached_property
    def first_ns(self) -> int:
        """When the first packet of any capture came."""
        return min((c.first_time_ns for c in self.session.captures if c.first_time_ns is not None), default=0)

    @cached_property
    def last_ns(self) -> int:
        """When the last packet of any capture came."""
        columns = self.session.messages
        times = [c.last_time_ns for c in self.session.captures if c.last_time_ns is not None]
        return max([*times, int(np.max(np.asarray(columns.end_time_ns))) if len(columns) else 0])

    def cut_off(self, since_ns: int, usual_s: float = 0.0, until_ns: int | None = None) -> bool:
        """Returns whether the captures ended so soon after a time that an answer need not be in them yet;
        `until_ns`: the end of something else, in their place."""
        last_ns = self.last_ns if until_ns is None else until_ns
        return (last_ns - since_ns) / 1e9 <= due_s(max(self.usual_s, usual_s))

    def on_one_host(self, job: int) -> bool:
        """Returns whether the ends of a job's processes have times of one clock."""
        if job not in self._on_one_host:
            self._on_one_host[job] = on_one_host(one for one in self.session.workers if one.job == job)
        return self._on_one_host[job]

    def clock(self, row: int) -> object:
        """Returns whose clock the times of a message are of; equal for clocks that were compared."""
        columns = self.session.messages
        return self._clocks[columns.pipe[row], columns.capture[row]]

    def doubt_ns(self, *rows: int) -> int:
        """Returns by how much the times of two messages may be wrong against each other, if their clocks were
        compared."""
        return self._sniffers.doubt_ns(self.session.messages.capture[row] for row in rows)

    @cached_property
    def uncaptured(self) -> Uncaptured:
        """Returns the requests and answers that the captures may lack, because they passed no sniffer."""
        return Uncaptured(self.session)

    @cached_property
    def _sniffers(self) -> Sniffers:
        return Sniffers.of(self.session)

    @cached_property
    def _clocks(self) -> Mapping[tuple[int, int], object]:
        return clocks(self.session)

    def job_of(self, index: int) -> int:
        """Returns the job of a message by its index."""
        return self.session.job(int(self.session.order[index]))

    def damaged(self, pipe: int, from_client: bool) -> bool:
        """Returns whether bytes of a pipe's messages in one direction are missing from the capture."""
        flow = self.session.pipes[pipe].flow
        return str(flow if from_client else flow.reversed) in self.wire.damaged

    def damaged_between(self, sender: str, receiver: str) -> bool:
        """Returns whether requests of one worker to another may have been lost from the capture."""
        return (sender, receiver) in self._damaged_ways

    @cached_property
    def _damaged_ways(self) -> frozenset[tuple[str, str]]:
        session = self.session
        return frozenset(
            (session.clients[pipe.number], session.servers[pipe.number])
            for pipe in session.pipes
            if self.damaged(pipe.number, True)
        )

    def damaged_among(self, senders: Collection[str], receivers: Collection[str]) -> bool:
        """Returns whether the capture may lack requests of any of some workers to any of others."""
        ways = self._damaged_ways
        if len(ways) < len(senders) * len(receivers):
            senders, receivers = set(senders), set(receivers)
            return any(a in senders and b in receivers and a != b for a, b in ways)
        return any((a, b) in ways for a in senders for b in receivers if a != b)

    def unheard(self, worker: str, job: int) -> bool:
        """Returns whether no log holds what a worker has sent: the log of its host may be missing."""
        return self.session.logged and (job, worker) not in self._heard

    @cached_property
    def _heard(self) -> frozenset[tuple[int, str]]:
        columns = self.session.messages
        pipes = {columns.pipe[row] for row in np.flatnonzero(np.asarray(columns.from_client)).tolist()}
        return frozenset((self.session.jobs[pipe], self.session.clients[pipe]) for pipe in pipes)

    def gradient_may_be_lost(self, edge: Edge, job: int) -> bool:
        """Returns whether a gradient may have been sent along an edge without being in the capture."""
        return self.damaged_between(edge.receiver, edge.sender) or self.unheard(edge.receiver, job)

    @cached_property
    def pipes_to(self) -> dict[tuple[int, str], list[int]]:
        """(job, worker) → the pipes on which others send requests to it."""
        return self.session.pipes_of(self.session.servers)

    def end(self, pipe: int) -> ConnectionEnd | None:
        """How a pipe ended; None if its end was not captured."""
        return self._ends.of(self.session.pipes[pipe])

    @cached_property
    def _ends(self) -> ConnectionEnds:
        return ConnectionEnds(self.wire.ends)

    @cached_property
    def left_ns(self) -> dict[tuple[int, str], int]:
        """Returns (job, worker) → when the worker first closed a pipe before the other side did."""
        left: dict[tuple[int, str], int] = {}
        for pipe, (client, server) in enumerate(zip(self.session.clients, self.session.servers, strict=True)):
            end = self.end(pipe)
            if end is not None:
                key = (self.session.jobs[pipe], client if end.by_client else server)
                left[key] = min(end.time_ns, left.get(key, end.time_ns))
        return left

    @cached_property
    def ended(self) -> dict[tuple[int, str], ProcessEnd]:
        """Returns (job, worker) → how the process ended, where a recorder noted it."""
        return {
            (worker.job, worker.name): worker.ended
            for worker in self.session.workers
            if worker.name is not None and worker.ended is not None
        }

    def time_ns(self, index: int) -> int:
        """When a message began."""
        return self.session.messages.time_ns[int(self.session.order[index])]

    def end_ns(self, index: int) -> int:
        """When a message was complete."""
        return self.session.messages.end_time_ns[int(self.session.order[index])]

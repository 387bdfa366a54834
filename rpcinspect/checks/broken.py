"""Whom an error of a connection is about: not the worker that reports it, but the one at the other end.

In: an error that names the end of a connection or a time-out, with the worker that raised it and when. Out: a
`Loss`: the worker that closed the connection, that nobody listened for, or that did not answer in time, with
the request that it left open. A worker that was lost may have lost another one before: then that one counts.
"""

from __future__ import annotations

import re
from functools import cached_property

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from rpcinspect.checks.evidence import CaptureEvidence
from rpcinspect.session.model import NONE

OF_TENSORPIPE = re.compile(r"this error originated at tensorpipe/|RPC ran for more than set timeout")
"""Nothing of the user's own says that; others may speak of files or of connections that are not RPC's."""
LATE = re.compile(r"RPC ran for more than set timeout \((\d{1,12}) ms\)")
ENDED = re.compile(
    r"\bEOF\b|end of file|EPIPE|broken pipe|ECONNRE(?:SET|FUSED)|connection (?:reset|refused)|timed out",
    re.IGNORECASE,
)
REFUSED = re.compile(r"ECONNREFUSED|connection refused", re.IGNORECASE)
NEVER = 1 << 62
MAX_STEPS = 64
"""Workers that were lost one because of the other."""
NOTICED_NS = 50_000_000
"""An error may be on its way before the end that it tells of is captured: so much later it may come."""


class Loss(Struct, frozen=True):
    """A worker that others lost."""

    worker: str
    how: str
    """`closed`, `reset`, `refused` or `late`; `lost` where the end of its connection was not captured."""
    caller: str
    """Who lost it."""
    row: int | None
    """The request that it left open."""


class Losses:
    """Asks a run about them."""

    def __init__(self, run: CaptureEvidence) -> None:
        self._run = run
        self._open: dict[tuple[int, str], NDArray[np.int64]] = {}

    def told_by(self, text: str, job: int, worker: str, since_ns: int, until_ns: int) -> Loss | None:
        """Whom an error that a worker raised between these times is about; None where nothing tells it."""
        late = LATE.search(text)
        if late is not None:
            waited_ns = int(late[1]) * 1_000_000
            rows = self._in_flight(job, worker, since_ns, until_ns - waited_ns, until_ns)
            return self._only(rows, worker, "late")
        if not ENDED.search(text):
            return None
        own = OF_TENSORPIPE.search(text) is not None
        if own and REFUSED.search(text):
            return self._refused(job, worker, since_ns, until_ns)
        rows = self._in_flight(job, worker, since_ns, until_ns, until_ns)
        lost = self._closed_first(rows, worker, until_ns + NOTICED_NS)
        if lost is None and own:
            lost = self._only(rows, worker, "lost")
        for _ in range(MAX_STEPS):
            before = None if lost is None or lost.row is None else self._before(job, lost)
            if before is None:
                break
            lost = before
        return lost

    def _before(self, job: int, lost: Loss) -> Loss | None:
        """Whom a lost worker had lost itself."""
        assert lost.row is not None
        columns = self._run.session.messages
        end = self._run.end(columns.pipe[lost.row])
        if end is None:
            return None
        rows = self._in_flight(job, lost.worker, columns.time_ns[lost.row], end.time_ns, end.time_ns)
        before = self._closed_first(rows, lost.worker, end.time_ns - 1)
        return before if before is not None and before.worker != lost.caller else None

    def _in_flight(self, job: int, worker: str, since_ns: int, sent_ns: int, until_ns: int) -> list[int]:
        """Requests that a worker sent between the first two times, and that had no answer at the third."""
        columns, rows = self._run.session.messages, self._sent(job, worker)
        begin, partner = np.asarray(columns.time_ns)[rows], np.asarray(columns.partner)[rows]
        answered = np.where(partner == NONE, NEVER, np.asarray(columns.end_time_ns)[partner])
        there = (begin >= since_ns) & (begin <= sent_ns) & (answered > until_ns)
        return [int(row) for row in rows[there]]

    def _sent(self, job: int, worker: str) -> NDArray[np.int64]:
        known = self._open.get((job, worker))
        if known is None:
            its = self._pipes_of.get((job, worker), [])
            columns = self._run.session.messages
            mask = np.isin(np.asarray(columns.pipe), its) & (np.asarray(columns.from_client) != 0)
            known = self._open[job, worker] = np.flatnonzero(mask)
        return known

    @cached_property
    def _pipes_of(self) -> dict[tuple[int, str], list[int]]:
        """The pipes on which a worker sends requests."""
        found: dict[tuple[int, str], list[int]] = {}
        for pipe, client in enumerate(self._run.session.clients):
            found.setdefault((self._run.jobs[pipe], client), []).append(pipe)
        return found

    def _closed_first(self, rows: list[int], caller: str, until_ns: int) -> Loss | None:
        """Of those that left these requests open, who was the first to end its connection by then."""
        ends = []
        for row in rows:
            end = self._run.end(self._run.session.messages.pipe[row])
            if end is not None and not end.by_client and end.time_ns <= until_ns:
                ends.append((end.time_ns, row, end.how))
        if not ends:
            return None
        _, row, how = min(ends)
        return Loss(self._run.session.destination(row), how, caller, row)

    def _only(self, rows: list[int], caller: str, how: str) -> Loss | None:
        """The one worker that had not answered."""
        callees = {self._run.session.destination(row) for row in rows}
        return Loss(callees.pop(), how, caller, rows[0]) if len(callees) == 1 else None

    def _refused(self, job: int, caller: str, since_ns: int, until_ns: int) -> Loss | None:
        """The one address that refused connections then, if a store tells whose it is."""
        places = {
            one.server
            for one in self._run.wire.refusals
            if since_ns <= one.last_ns and one.first_ns <= until_ns + NOTICED_NS
        }
        names = {
            worker.name or f"worker:{worker.id}"
            for worker in self._run.session.workers
            if worker.job == job and not places.isdisjoint(worker.addresses)
        }
        return Loss(names.pop(), "refused", caller, None) if len(places) == len(names) == 1 else None

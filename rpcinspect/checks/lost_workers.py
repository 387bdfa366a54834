"""Which worker others lost, and how its process ended.

An error of a connection is not about the worker that reports it, but about the one at the other end. In: such
an error or a timeout, with the worker that raised it and when. Out: a `Loss`: the worker that closed the
connection, that nobody listened for, or that did not answer in time, with the request that it left open. A
worker that was lost may have lost another one before: then that one counts.

In: how a process ended, as a recorder knows it, when a request was sent that it never answered, and when its
caller gave it up. Out: a `Departed`, with a clause and a remedy; none where the end came too late to matter.
"""

from __future__ import annotations

import re
from functools import cached_property

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from rpcinspect.checks.evidence import CaptureEvidence
from rpcinspect.late_pattern import late
from rpcinspect.session.model import NONE
from rpcinspect.session.process_end import ProcessEnd
from rpcinspect.session.words import duration, lack_of_memory

OF_TENSORPIPE = late(r"this error originated at tensorpipe/")
"""Nothing of the user's own says that; others may speak of files or of connections that are not RPC's."""
LATE = late(r"RPC ran for more than set timeout \((\d{1,12}) ms\)")
ENDED = late(
    r"\bEOF\b|end of file|EPIPE|broken pipe|ECONNRE(?:SET|FUSED)|connection (?:reset|refused)|timed out",
    re.IGNORECASE,
)
REFUSED = late(r"ECONNREFUSED|connection refused", re.IGNORECASE)
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
    """Finds out whom errors of connections are about."""

    def __init__(self, evidence: CaptureEvidence) -> None:
        self._run = evidence
        self._open: dict[tuple[int, str], NDArray[np.int64]] = {}

    def told_by(self, text: str, job: int, worker: str, since_ns: int, until_ns: int) -> Loss | None:
        """Returns the loss that an error, raised by a worker between these times, is about; None where
        nothing tells which."""
        late = LATE.search(text)
        if late is not None:
            waited_ns = int(late[1]) * 1_000_000
            rows = self._late(job, worker, since_ns, until_ns, waited_ns)
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
        rows, begin, answered = self._asked(job, worker)
        there = (begin >= since_ns) & (begin <= sent_ns) & (answered > until_ns)
        return [int(row) for row in rows[there]]

    def _late(self, job: int, worker: str, since_ns: int, until_ns: int, waited_ns: int) -> list[int]:
        """Requests that a worker sent from the first time on and that had no answer after so long, before the
        second time; the worker may tell of it only when an answer has come."""
        rows, begin, answered = self._asked(job, worker)
        there = (begin >= since_ns) & (begin <= until_ns - waited_ns) & (answered > begin + waited_ns)
        return [int(row) for row in rows[there]]

    def _asked(self, job: int, worker: str) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """The requests that a worker sent, when they began, and when their answers had come."""
        columns, rows = self._run.session.messages, self._sent(job, worker)
        partner = np.asarray(columns.partner)[rows]
        answered = np.where(partner == NONE, NEVER, np.asarray(columns.end_time_ns)[partner])
        return rows, np.asarray(columns.time_ns)[rows], answered

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
        return self._run.session.pipes_of(self._run.session.clients)

    def _closed_first(self, rows: list[int], caller: str, until_ns: int) -> Loss | None:
        """Returns which of the workers that left these requests open was first to end a connection."""
        ends = []
        for row in rows:
            end = self._run.end(self._run.session.messages.pipe[row])
            if end is not None and not end.by_client and end.time_ns <= until_ns:
                ends.append((end.time_ns, row, end.how))
        if len({self._run.clock(row) for _, row, _ in ends}) != 1:  # nobody compared them, or none ended
            return None
        _, row, how = min(ends)
        return Loss(self._run.session.destination(row), how, caller, row)

    def _only(self, rows: list[int], caller: str, how: str) -> Loss | None:
        """Returns the only worker that had not answered."""
        callees = {self._run.session.destination(row) for row in rows}
        return Loss(callees.pop(), how, caller, rows[0]) if len(callees) == 1 else None

    def _refused(self, job: int, caller: str, since_ns: int, until_ns: int) -> Loss | None:
        """Returns the owner of the only address that refused connections then, if a store names one."""
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


SLACK_NS = 1_000_000_000
"""A process that ends closes its connections first, and is gone so much later at most."""
CRASHES = frozenset({"SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSEGV", "SIGSYS", "SIGTRAP"})


class Departed(Struct, frozen=True):
    """A worker whose process has ended."""

    job: int
    worker: str
    ended: ProcessEnd
    timed: bool = True
    """Whether the time of its end can be compared with others: all of the job is on one host."""

    def clause(self, sent_ns: int, what: str) -> str:
        """`; worker1 was killed by SIGKILL 92 ms after it`; `what` was sent at that time."""
        when = ""
        if self.ended.time_ns is not None and self.timed:
            after = self.ended.time_ns - sent_ns
            when = f" {duration(abs(after))} {'before' if after < 0 else 'after'} {what}"
        return f"; {self.worker} {self.ended.sentence}{when}{lack_of_memory(self.ended)}"

    def remedy(self, evidence: CaptureEvidence) -> str:
        """Returns where to look for the cause."""
        worker, ended = self.worker, self.ended
        if ended.how == "signal" and ended.signal in CRASHES:
            return (
                f"{ended.signal} usually means a crash in native code: read the last output of {worker} "
                "wrote; PYTHONFAULTHANDLER=1 adds where it was."
            )
        if ended.how == "signal":
            other = _first_fault(evidence, self)
            if other is not None and other.ended.signal != ended.signal:
                return f"See first why {other.worker} ended before it ({other.ended})."
            if ended.oom_kills:
                which = "" if ended.pid is None else f", of which {worker} may be one (process {ended.pid})"
                return f"Look at dmesg: it names the processes that the kernel killed{which}."
            kernel = "the kernel for lack of memory (see dmesg), " if ended.signal == "SIGKILL" else ""
            # whoever sends it to all does so in any order: the first to end is not why the others did
            too = "" if other is None else f", which ended {other.worker} before it"
            return (
                f"Find out who sent {ended.signal}{too}: {kernel}a launcher such as torchrun, a scheduler, a "
                f"person, or {worker} itself; its log says what it did until then."
            )
        if ended.well:
            return f"Let {worker} wait for its callers: rpc.shutdown(graceful=True)."
        return f"Read what {worker} itself wrote: it ended by itself."


def departed(
    evidence: CaptureEvidence,
    worker: str,
    job: int,
    given_up_ns: int | None = None,
    *,
    by_its_end: bool = False,
) -> Departed | None:
    """Returns the worker, if its process is known to have ended, and before the caller gave up, where the
    caller did. `by_its_end`: the caller gave up because a connection broke, which an end does."""
    ended = evidence.ended.get((job, worker))
    if ended is None or not ended.over:
        return None
    timed = evidence.on_one_host(job)
    if given_up_ns is not None and timed:
        latest = given_up_ns + (SLACK_NS if by_its_end else 0)
        if ended.time_ns is None or ended.time_ns > latest:
            return None
    elif given_up_ns is not None and not by_its_end:
        return None
    return Departed(job, worker, ended, timed)


def _first_fault(evidence: CaptureEvidence, than: Departed) -> Departed | None:
    """The first worker of the job that ended otherwise than well, if it was another one, and earlier."""
    if than.ended.time_ns is None or not than.timed:
        return None
    faults = [
        (one.ended.time_ns, one.name, one.ended)
        for one in evidence.session.workers
        if one.job == than.job and one.name is not None and one.ended is not None
        if one.ended.over and not one.ended.well and one.ended.time_ns is not None
    ]
    time_ns, name, ended = min(faults, key=lambda fault: fault[:2])
    return Departed(than.job, name, ended) if time_ns < than.ended.time_ns and name != than.worker else None

"""What the end of a worker's process says of a request that it never answered, and what to do about it.

In: how the process ended, as a recorder knows it, when the request was sent, and when its caller gave it up.
Out: a clause and a remedy; nothing where the end came too late to matter, or is not known.
"""

from __future__ import annotations

from msgspec import Struct

from rpcinspect.checks.evidence import CaptureEvidence
from rpcinspect.session.ended import Ended
from rpcinspect.session.words import duration, lack_of_memory

SLACK_NS = 1_000_000_000
"""A process that ends closes its connections first, and is gone so much later at most."""
CRASHES = frozenset({"SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSEGV", "SIGSYS", "SIGTRAP"})


class Departed(Struct, frozen=True):
    """A worker whose process has ended."""

    job: int
    worker: str
    ended: Ended

    def clause(self, sent_ns: int, what: str) -> str:
        """`; worker1 was killed by SIGKILL 92 ms after it`; `what` was sent at that time."""
        when = ""
        if self.ended.time_ns is not None:
            after = self.ended.time_ns - sent_ns
            when = f" {duration(abs(after))} {'before' if after < 0 else 'after'} {what}"
        return f"; {self.worker} {self.ended.sentence}{when}{lack_of_memory(self.ended)}"

    def remedy(self, run: CaptureEvidence) -> str:
        """Where to look."""
        worker, ended = self.worker, self.ended
        if ended.how == "signal" and ended.signal in CRASHES:
            return (
                f"{ended.signal} mostly comes of a crash in native code: read the last lines that {worker} "
                "wrote; PYTHONFAULTHANDLER=1 adds where it was."
            )
        if ended.how == "signal":
            other = _first_fault(run, self)
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
    run: CaptureEvidence, worker: str, job: int, given_up_ns: int | None = None, *, by_its_end: bool = False
) -> Departed | None:
    """The worker, if its process is known to have ended, and before its caller gave up, where it did.
    `by_its_end`: that was because a connection broke, which an end does.
    """
    ended = run.ended(worker, job)
    if ended is None or not ended.over:
        return None
    if given_up_ns is not None:
        latest = given_up_ns + (SLACK_NS if by_its_end else 0)
        if ended.time_ns is None or ended.time_ns > latest:
            return None
    return Departed(job, worker, ended)


def _first_fault(run: CaptureEvidence, than: Departed) -> Departed | None:
    """The first worker of the job that ended otherwise than well, if it was another one, and earlier."""
    if than.ended.time_ns is None:
        return None
    faults = [
        (one.ended.time_ns, one.name, one.ended)
        for one in run.session.workers
        if one.job == than.job and one.name is not None and one.ended is not None
        if one.ended.over and not one.ended.well and one.ended.time_ns is not None
    ]
    time_ns, name, ended = min(faults, key=lambda fault: fault[:2])
    return Departed(than.job, name, ended) if time_ns < than.ended.time_ns and name != than.worker else None

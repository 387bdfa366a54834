"""The oracle process: loads pickles as a live worker would, and says what ran.

`python -m tests.fuzz.model.oracle` reads batches of jobs from its input and answers each job on its output.
It imports torch once; each batch runs in a fork of it, with an rpc agent of its own, so that a batch may
break whatever it likes. A fork that dies leaves its answers short: the next job is the one that killed it.
Nothing here is for any other process: pickles are really loaded and what they name is really called.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import warnings
from collections.abc import Sequence
from typing import BinaryIO

import msgspec

from tests.fuzz.model.jobs import Fault, Job, Seen, receive, send

MIB_MORE = 1500
SECONDS = 8
"""Of a processor: a machine that others keep busy makes no fault."""
HANGING_SECONDS = 45
TIMERS = (signal.SIGPROF, signal.SIGALRM)
"""What ends a job that takes longer."""
NO_WORKER = 3
"""Exit code of a fork that could not begin."""


class Ended(msgspec.Struct, frozen=True):
    """How a batch ended: exit code, or minus the signal."""

    status: int


class Answer(msgspec.Struct, frozen=True):
    """One of a batch's answers, or its end."""

    seen: Seen | None = None
    ended: Ended | None = None


def main() -> None:
    """Serves batches until its input ends."""
    warnings.simplefilter("ignore")
    os.environ.update(GLOO_SOCKET_IFNAME="lo", TP_SOCKET_IFNAME="lo")
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1):
        os.dup2(nowhere, fd)
    from tests.fuzz.model import worker

    worker.prepare()
    send(sink, Answer())
    while (jobs := receive(source, tuple[Job, ...])) is not None:
        child = os.fork()
        if child == 0:
            try:
                source.close()
                _batch(jobs, sink)
            finally:
                os._exit(NO_WORKER)
        _, status = os.waitpid(child, 0)
        send(sink, Answer(ended=Ended(os.waitstatus_to_exitcode(status))))


def _batch(jobs: Sequence[Job], sink: BinaryIO) -> None:
    from tests.fuzz.model.worker import Worker

    if not os.environ.get("ORACLE_STDERR"):
        os.dup2(1, 2)
    worker = Worker()
    _confine()
    for timer in TIMERS:
        signal.signal(timer, signal.SIG_DFL)
    for number, job in enumerate(jobs):
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        signal.setitimer(signal.ITIMER_REAL, HANGING_SECONDS)
        try:
            seen = worker.examine(job)
        except BaseException as error:  # of the oracle itself
            seen = Seen((Fault("oracle", f"{type(error).__name__}: {error}"),))
        if number == len(jobs) - 1:  # whichever of them it was
            seen = msgspec.structs.replace(seen, faults=(*seen.faults, *worker.changed()))
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        send(sink, Answer(seen=seen))
    os._exit(0)


def _confine() -> None:
    """No core files, no files at all, and so much more memory than now."""
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    bound = now + (MIB_MORE << 20)
    for what, limit in (
        (resource.RLIMIT_AS, bound),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CPU, 600),
    ):
        resource.setrlimit(what, (limit, limit))


if __name__ == "__main__":
    sys.exit(main())

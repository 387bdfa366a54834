"""The side of the test: hands jobs to the oracle process, and starts another where one is lost."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from tests.fuzz.model.jobs import Fault, Job, Seen, receive, send
from tests.fuzz.model.oracle import NO_WORKER, TIMERS, Answer

ROOT = Path(__file__).resolve().parents[3]
SECONDS = 60.0
BATCH = 100
FAILURES = 5
"""To start a worker, one after another: a busy machine fails now and then."""


class Oracle:
    """A context: `examine` gives what was seen of each job, in order."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._failures = 0
        self._folder = tempfile.TemporaryDirectory(prefix="oracle-")

    def __enter__(self) -> Oracle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()
        self._folder.cleanup()

    def examine(self, jobs: Sequence[Job]) -> list[Seen]:
        """What was seen of each."""
        found: list[Seen] = []
        while len(found) < len(jobs):
            batch = jobs[len(found) : len(found) + BATCH]
            some = self._some(batch)
            if len(batch) > 1 and any(fault.kind == "changed" for seen in some for fault in seen.faults):
                some = [self.alone(job) for job in batch]
            found += some
        return found

    def alone(self, job: Job) -> Seen:
        """In a process of its own, whatever others before it have left."""
        return self.examine([job])[0]

    def _some(self, jobs: Sequence[Job]) -> list[Seen]:
        """Answers for the first ones; where the process ended too early, the next one did it."""
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        send(process.stdin, tuple(jobs))
        found: list[Seen] = []
        while True:
            fault = None
            if not select.select([process.stdout], [], [], SECONDS)[0]:
                fault = Fault("time", "the oracle was stopped")
            elif (answer := receive(process.stdout, Answer)) is None:
                fault = Fault("crash", "the oracle is lost")
            elif answer.seen is not None:
                found.append(answer.seen)
            if fault is not None:
                self._stop()
            elif answer.ended is not None and answer.ended.status == NO_WORKER and not found:
                self._failures += 1
                if self._failures > FAILURES:
                    raise RuntimeError("the oracle can't start a worker")
                return found
            elif answer.ended is not None:
                self._failures = 0
                fault = _death(answer.ended.status)
            if fault is not None:
                return found if len(found) == len(jobs) else [*found, Seen((fault,))]

    def _start(self) -> subprocess.Popen[bytes]:
        # Programs here are found and checked by their own text: nothing of the environment changes what runs.
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": self._folder.name,
            "TMPDIR": self._folder.name,
            "OMP_NUM_THREADS": "1",
            "TORCH_CPP_LOG_LEVEL": "FATAL",
            "TORCH_SHOW_CPP_STACKTRACES": "0",
            "PYTHONHASHSEED": "0",
            "PYTHONPATH": str(ROOT),
            "ORACLE_STDERR": os.environ.get("ORACLE_STDERR", ""),
        }
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.fuzz.model.oracle"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if os.environ.get("ORACLE_STDERR") else subprocess.DEVNULL,
            cwd=self._folder.name,
            env=environment,
            start_new_session=True,
        )
        self._process = process
        assert process.stdout is not None
        if receive(process.stdout, Answer) is None:
            self._stop()
            raise RuntimeError("the oracle did not start")
        return process

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        os.killpg(process.pid, signal.SIGKILL)  # its forks, too
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def _death(status: int) -> Fault:
    if -status in TIMERS:
        return Fault("time", "more than its seconds")
    if status == -signal.SIGKILL:
        return Fault("memory", "killed")
    name = signal.Signals(-status).name if status < 0 else f"exit {status}"
    return Fault("crash", name)

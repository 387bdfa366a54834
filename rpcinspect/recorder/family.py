"""Recording a job that a program starts from within, such as a test: what its own process does, and every
process that it starts meanwhile, by spawn, fork, subprocess or torchrun.

In: a file for the log. Out: the log, whole when `finish` returns, and what makes it less than it should be.
`RecordError` says why it can't begin. Processes that are started find in the environment what those of
`rpcinspect record` find; this one is recorded as `rpcinspect.recording` does it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from multiprocessing.util import Finalize
from pathlib import Path

from rpcinspect.errors import RecordError
from rpcinspect.files.closing import Closing
from rpcinspect.recorder.agent import AgentMechanism
from rpcinspect.recorder.in_process import has_started_rpc, note_here, record_here
from rpcinspect.recorder.processes import ProcessNote, read_notes, still_running
from rpcinspect.recorder.record import VARIABLE, Outcome, surroundings, warnings


class FamilyRecording(Closing):
    """Records from when it is made until `finish`; close it in any case."""

    def __init__(self, file: Path, tell: Callable[[str], object] = lambda line: None) -> None:
        """`tell` hears of a build, which takes a minute. Raises `RecordError`."""
        if os.environ.get(VARIABLE):
            raise RecordError("this process is being recorded already: run it without rpcinspect record")
        self._mechanism = AgentMechanism(file, [sys.executable], tell=tell)
        self._notes = tempfile.TemporaryDirectory(prefix="rpcinspect-")
        self._before: dict[str, str | None] = {}
        self._ends: list[Callable[[], object]] = []
        """What undoes what was done to this process."""
        try:
            settings = {"via": "agent", "notes": self._notes.name, **self._mechanism.settings()}
            self._mechanism.begin(())
            self._recorders = record_here(settings)
            # the process may end before the recording does; called here, it closes once
            closes = Finalize(None, self._recorders.close, exitpriority=-100)
            self._ends += [self._recorders.remove, closes, note_here(self._notes.name, self._recorders)]
        except BaseException:
            self.close()
            raise
        for name, value in surroundings(os.environ, settings).items():
            if os.environ.get(name) != value:
                self._before[name] = os.environ.get(name)
                os.environ[name] = value

    @property
    def goes_on(self) -> bool:
        """Whether a worker of the job still runs: this process, or one that it has started."""
        return has_started_rpc() or bool(still_running(self._read_notes()) - {os.getpid()})

    def flush(self) -> None:
        """Writes what this process has sent until now into the log."""
        self._recorders.flush()

    def finish(self) -> tuple[str, ...]:
        """Ends the recording; returns what makes it less than it should be, a line each."""
        self._stop()
        notes = self._read_notes()
        left = still_running(notes) - {os.getpid()}
        return tuple(warnings(Outcome(0, self._mechanism.finish(notes, {}), notes, left)))

    def close(self) -> None:
        """Lets go of everything, also of a recording that has not been finished; closing twice is fine."""
        self._stop()
        self._mechanism.close()
        self._notes.cleanup()

    def _read_notes(self) -> list[ProcessNote]:
        return read_notes(Path(self._notes.name))

    def _stop(self) -> None:
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._before = {}
        for end in self._ends:
            end()
        self._ends = []

"""A command is run and recorded: what joins launcher, notes, ends of processes and a way of recording, and
what such a way must offer.

In: a command line and a `Mechanism`, of which `wire` and `agent` have one each. Out: an `Outcome`: the exit
code of the command, what was recorded, what its processes said and how they ended. `RecordError`,
`CommandError` or `OutputError`: nothing has run.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from msgspec import Struct, field

from rpcinspect.recorder.launcher import Command
from rpcinspect.recorder.notes import Note, is_running, read_notes
from rpcinspect.recorder.processes import Processes
from rpcinspect.recorder.reaper import Process
from rpcinspect.session.process_end import ProcessEnd

VARIABLE = "RPCINSPECT_RECORD"
STARTUP = Path(__file__).resolve().parent / "startup"


class Recorded(Struct, frozen=True, kw_only=True):
    """What came of a recording, in numbers."""

    file: Path
    bytes: int
    """Of the file."""
    packets: int | None = None
    messages: str | None = None
    """How many, in words."""
    dropped: int = 0
    """Packets or messages that were lost: they came too fast."""
    ended_early: str | None = None
    """Why the recording ended before the command did."""
    warnings: Sequence[str] = field(default=())
    """What else makes the recording less than it should be, a line each."""


class Mechanism(ABC):
    """One way of recording one command, asked in the order below."""

    via: ClassVar[str]

    def settings(self) -> Mapping[str, object]:
        """What the hook of that name finds in RPCINSPECT_RECORD, beside `via` and `notes`; by default
        nothing. `RecordError`: it can't begin.
        """
        return {}

    def stage(self) -> Sequence[int]:
        """In the process that becomes the command, which has one thread: descriptors that our process gets,
        by default none. `RecordError`: it can't begin.
        """
        return ()

    @abstractmethod
    def begin(self, descriptors: Sequence[int]) -> None:
        """In our process, with what the stage gave, before the command runs. `RecordError` or `OutputError`:
        it can't.
        """

    @abstractmethod
    def finish(self, notes: Sequence[Note], ends: Mapping[Process, ProcessEnd]) -> Recorded:
        """The command has ended, and its processes as `ends` has it: completes the file."""

    @abstractmethod
    def close(self) -> None:
        """Ends whatever it started; also when something failed. Once more does no harm."""


class Outcome(Struct, frozen=True):
    """What came of a command that was run."""

    exit_code: int
    recorded: Recorded
    notes: Sequence[Note]
    left: frozenset[int]
    """Processes with a note that still run."""
    ends: Mapping[Process, ProcessEnd] = field(default_factory=dict)
    """How those with a note ended."""


def record(
    arguments: Sequence[str], mechanism: Mechanism, ready: Callable[[], None] = lambda: None
) -> Outcome:
    """Runs the command to its end, and completes the recording. `ready` is called when it can begin."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rpcinspect-")))
        stack.callback(mechanism.close)
        settings = {"via": mechanism.via, "notes": str(folder), **mechanism.settings()}
        processes = stack.enter_context(contextlib.closing(Processes(folder)))
        with Command(arguments, surroundings(os.environ, settings), mechanism.stage) as command:
            mechanism.begin(command.descriptors)
            ready()
            processes.watch()
            command.begin()
            code = command.wait()
        notes = read_notes(folder)
        ends = processes.ends(notes, command.statuses)
        left = frozenset(note.pid for note in notes if note.ended is None and is_running(note.pid))
        return Outcome(code, mechanism.finish(notes, ends), notes, left, ends)


def surroundings(environment: Mapping[str, str], settings: Mapping[str, object]) -> dict[str, str]:
    """The environment of the command: every Python in it finds our `sitecustomize` first."""
    path = environment.get("PYTHONPATH")
    return {
        **environment,
        VARIABLE: json.dumps(settings),
        "PYTHONPATH": os.pathsep.join([str(STARTUP), path] if path else [str(STARTUP)]),
    }

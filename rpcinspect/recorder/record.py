"""A command is run and recorded: what joins launcher, mechanism and notes.

In: a command line and a mechanism. Out: an `Outcome`: the exit code of the command, what was recorded, what
its processes said. `RecordError` or `CommandError`: nothing has run.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from rpcinspect.recorder.launcher import Command
from rpcinspect.recorder.mechanism import Mechanism, Recorded
from rpcinspect.recorder.notes import Note, is_running, read_notes

VARIABLE = "RPCINSPECT_RECORD"
STARTUP = Path(__file__).resolve().parent / "startup"


class Outcome(Struct, frozen=True):
    """What came of a command that was run."""

    exit_code: int
    recorded: Recorded
    notes: Sequence[Note]
    left: frozenset[int]
    """Processes with a note that still run."""


def record(
    arguments: Sequence[str], mechanism: Mechanism, ready: Callable[[], None] = lambda: None
) -> Outcome:
    """Runs the command to its end, and completes the recording. `ready` is called when it can begin."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rpcinspect-")))
        stack.callback(mechanism.close)
        mechanism.prepare()
        settings = {"via": mechanism.via, "notes": str(folder), **mechanism.settings()}
        with Command(arguments, surroundings(os.environ, settings), mechanism.stage) as command:
            mechanism.begin(command.descriptors, folder)
            ready()
            command.begin()
            code = command.wait(mechanism.look)
        notes = read_notes(folder)
        left = frozenset(note.pid for note in notes if not note.ended and is_running(note.pid))
        return Outcome(code, mechanism.finish(notes), notes, left)


def surroundings(environment: Mapping[str, str], settings: Mapping[str, object]) -> dict[str, str]:
    """The environment of the command: every Python in it finds our `sitecustomize` first."""
    path = environment.get("PYTHONPATH")
    return {
        **environment,
        VARIABLE: json.dumps(settings),
        "PYTHONPATH": os.pathsep.join([str(STARTUP), path] if path else [str(STARTUP)]),
    }

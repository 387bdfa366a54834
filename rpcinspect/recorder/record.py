"""A command is run and recorded: what joins launcher, processes and a way of recording, what such a way must
offer, and what is told of it in the end.

In: a command line and a `Mechanism`, of which `wire` and `agent` have one each. Out: an `Outcome`: the exit
code of the command, what was recorded, what its processes said and how they ended; that as lines for people.
`RecordError`, `CommandError` or `OutputError`: nothing has run.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from msgspec import Struct, field

from rpcinspect.recorder.launcher import CommandProcess
from rpcinspect.recorder.processes import CommandProcesses, Process, ProcessNote, read_notes, still_running
from rpcinspect.session.process_end import ProcessEnd
from rpcinspect.session.words import lack_of_memory

VARIABLE = "RPCINSPECT_RECORD"
STARTUP = Path(__file__).resolve().parent / "startup"


class RecordingResult(Struct, frozen=True, kw_only=True):
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
    nothing: bool = False
    """Whether no process used RPC and no message was recorded, so that the file is what it was before."""


class Mechanism(ABC):
    """A way of recording one command; methods are called in the order below."""

    via: ClassVar[str]

    def settings(self) -> Mapping[str, object]:
        """What the hook of that name finds in RPCINSPECT_RECORD, beside `via` and `notes`; by default
        nothing. `RecordError`: it can't begin.
        """
        return {}

    def stage(self) -> Sequence[int]:
        """Runs in the process that becomes the command, which has one thread; returns descriptors for our
        process. Raises `RecordError` where recording can't begin."""
        return ()

    @abstractmethod
    def begin(self, descriptors: Sequence[int]) -> None:
        """Runs in our process, with the descriptors of `stage`, before the command. Raises `RecordError` or
        `OutputError` where recording can't begin."""

    @abstractmethod
    def finish(self, notes: Sequence[ProcessNote], ends: Mapping[Process, ProcessEnd]) -> RecordingResult:
        """The command has ended, and its processes as `ends` has it: completes the file."""

    @abstractmethod
    def close(self) -> None:
        """Ends whatever was started, also after a failure; closing twice is fine."""


class Outcome(Struct, frozen=True):
    """What came of a command that was run."""

    exit_code: int
    recorded: RecordingResult
    notes: Sequence[ProcessNote]
    left: frozenset[int]
    """Processes with a note that still run."""
    ends: Mapping[Process, ProcessEnd] = field(default_factory=dict)
    """How those with a note ended."""


def record(
    arguments: Sequence[str],
    mechanism: Mechanism,
    ready: Callable[[], None] = lambda: None,
    begun: Callable[[], None] = lambda: None,
) -> Outcome:
    """Runs the command to its end, and completes the recording. Calls `ready` when the command can begin, and
    `begun` when it has."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rpcinspect-")))
        stack.callback(mechanism.close)
        settings = {"via": mechanism.via, "notes": str(folder), **mechanism.settings()}
        processes = stack.enter_context(contextlib.closing(CommandProcesses(folder)))
        with CommandProcess(arguments, surroundings(os.environ, settings), mechanism.stage) as command:
            mechanism.begin(command.descriptors)
            ready()
            processes.watch()
            command.begin()
            begun()
            code = command.wait()
        notes = read_notes(folder)
        ends = processes.ends(notes, command.statuses)
        left = still_running(notes)
        return Outcome(code, mechanism.finish(notes, ends), notes, left, ends)


def surroundings(environment: Mapping[str, str], settings: Mapping[str, object]) -> dict[str, str]:
    """The environment of the command: every Python in it finds our `sitecustomize` first."""
    path = environment.get("PYTHONPATH")
    return {
        **environment,
        VARIABLE: json.dumps(settings),
        "PYTHONPATH": os.pathsep.join([str(STARTUP), path] if path else [str(STARTUP)]),
    }


COUNTERS = ("messages", "bytes", "dropped", "failed")
"""Counts that each process reports."""
SHOWN = 16
"""Processes that are named; more are counted."""


def summary(outcome: Outcome) -> Iterator[str]:
    """Lines for people once the command has ended; warnings come right behind the first."""
    recorded = outcome.recorded
    if recorded.nothing:
        yield f"recorded nothing; {recorded.file} is what it was before"
    else:
        yield f"recorded {_amounts(outcome)} in {recorded.file}"
    for line in warnings(outcome):
        yield f"WARNING: {line}"
    yield from _processes(outcome)
    if not recorded.nothing and (outcome.notes or recorded.packets):
        yield f"next: rpcinspect decode {shlex.quote(str(recorded.file))}"


def _amounts(outcome: Outcome) -> str:
    recorded = outcome.recorded
    amounts = []
    if recorded.messages is not None:
        amounts.append(recorded.messages)
    if recorded.packets is not None:
        amounts.append(counted(recorded.packets, "packet"))
    return ", ".join([*amounts, f"{recorded.bytes:,} bytes"])


def warnings(outcome: Outcome) -> Iterator[str]:
    """What makes the recording less than it should be."""
    recorded = outcome.recorded
    what = "message" if recorded.packets is None else "packet"
    if recorded.ended_early is not None:
        yield f"the recording ended before the command: {recorded.ended_early}"
    if recorded.dropped:
        yield f"{counted(recorded.dropped, what)} lost: they came faster than they could be written"
    if not outcome.notes:
        yield (
            "no process called init_rpc, or Python ran with -I, -E or -S and ignored PYTHONPATH, "
            "which recording needs"
        )
    for note in outcome.notes:
        if not note.recorded:
            yield f"{_who(note)} was not recorded: {note.why or 'it did not say why'}"
        elif note.pid in outcome.left:
            goes_on = "goes on writing into it" if recorded.packets is None else "is no longer recorded"
            yield f"{_who(note)} still runs and {goes_on}"
    yield from recorded.warnings


def _processes(outcome: Outcome) -> Iterator[str]:
    for note in outcome.notes[:SHOWN]:
        if note.recorded:
            counts = [f"{number:,} {name}" for name in COUNTERS if (number := getattr(note, name))]
            end = _end(outcome, note)
            yield "  " + ", ".join(text for text in (_who(note), *counts, end) if text)
    more = len(outcome.notes) - SHOWN
    if more > 0:
        yield f"  and {more:,} more"


def _end(outcome: Outcome, note: ProcessNote) -> str:
    """How a process ended, unless it ended well."""
    ended = None if note.started is None else outcome.ends.get((note.pid, note.started))
    if ended is not None and ended.over:
        return "" if ended.well else f"{ended}{lack_of_memory(ended)}"
    return "" if note.ended or note.pid in outcome.left else "ended without notice (killed?)"


def _who(note: ProcessNote) -> str:
    torch = "" if note.torch is None else f", torch {note.torch}"
    if note.name is None:
        return f"process {note.pid}{torch}"
    return f"{note.name} (id {note.id}, process {note.pid}{torch})"


def counted(count: int, noun: str) -> str:
    """`1 packet`, `2 packets`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"

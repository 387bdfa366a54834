"""What is told of a recording once the command has ended.

In: an `Outcome`. Out: lines for people; those that must not be overlooked come first after the head and begin
with WARNING.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from rpcinspect.recorder.notes import Note
from rpcinspect.recorder.record import Outcome
from rpcinspect.session.words import lack_of_memory

COUNTERS = ("messages", "bytes", "dropped", "failed")
"""What is told of each process."""
SHOWN = 16
"""Processes that are named; more are counted."""


def summary(outcome: Outcome) -> Iterator[str]:
    """Line by line."""
    recorded = outcome.recorded
    yield f"recorded {_amounts(outcome)} in {recorded.file}"
    for line in warnings(outcome):
        yield f"WARNING: {line}"
    yield from _processes(outcome)
    if outcome.notes or recorded.packets:
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
            "no process called init_rpc, or Python ran with -I, -E or -S: these ignore PYTHONPATH, "
            "through which it is recorded"
        )
    for note in outcome.notes:
        if not note.recorded:
            yield f"{_who(note)} was not recorded: {note.why or 'it did not say why'}"
        elif note.pid in outcome.left:
            goes_on = "goes on writing into it" if recorded.packets is None else "is recorded no longer"
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


def _end(outcome: Outcome, note: Note) -> str:
    """How a process ended, unless it ended well."""
    ended = None if note.started is None else outcome.ends.get((note.pid, note.started))
    if ended is not None and ended.over:
        return "" if ended.well else f"{ended}{lack_of_memory(ended)}"
    return "" if note.ended or note.pid in outcome.left else "ended without saying so (killed?)"


def _who(note: Note) -> str:
    torch = "" if note.torch is None else f", torch {note.torch}"
    if note.name is None:
        return f"process {note.pid}{torch}"
    return f"{note.name} (id {note.id}, process {note.pid}{torch})"


def counted(count: int, noun: str) -> str:
    """`1 packet`, `2 packets`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"

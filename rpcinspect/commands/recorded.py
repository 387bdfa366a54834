"""What a recording holds, found out by reading it as `decode` does, for a few seconds at most.

In: the packets that were written. Out: how many messages, of which workers; or why there are none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec.structs
from msgspec import Struct

from rpcinspect.errors import RpcInspectError
from rpcinspect.pipeline import Decoding, Options
from rpcinspect.recorder.notes import Note
from rpcinspect.recorder.record import Recorded
from rpcinspect.recorder.summary import counted
from rpcinspect.views.empty import empty_line

SECONDS = 5.0
"""A large recording is looked into, not read to its end: who recorded it waits for the prompt."""
SHOWN = 4
"""Workers of others that are named."""


class Held(Struct, frozen=True):
    """What was found."""

    messages: int
    complete: bool
    """All of the file was read."""
    workers: frozenset[str]
    """Their names, as far as the file was read."""
    why_none: str | None = None
    """Why there are no messages."""


def look_into(
    path: Path, *, seconds: float = SECONDS, clock: Callable[[], float] = time.monotonic
) -> Held | None:
    """None: the file can't be read, such as when the command removed it."""
    end = clock() + seconds
    complete = True

    def stop_in_time(done: int, of: int | None) -> None:
        nonlocal complete
        if complete and done != of and clock() > end:
            complete = False
            decoding.stop()

    try:
        with Decoding([str(path)], Options(progress=stop_in_time)) as decoding:
            messages = sum(1 for _ in decoding.records())
            session = decoding.session
    except RpcInspectError:
        return None
    names = frozenset(worker.name for worker in session.workers if worker.name is not None)
    return Held(messages, complete, names, empty_line(session) if complete else None)


def looked_into(recorded: Recorded, notes: Sequence[Note], *, strangers: bool) -> Recorded:
    """The same, with what the packets say: how many messages, and whose. `strangers`: workers that are not
    of this command are told of; on other interfaces they are expected."""
    held = look_into(recorded.file)
    if held is None:
        warnings = [f"{recorded.file} can't be read any more"] if recorded.ended_early is None else []
        return msgspec.structs.replace(recorded, warnings=warnings)
    words = counted(held.messages, "message")
    return msgspec.structs.replace(
        recorded,
        messages=words if held.complete else f"more than {words}",
        warnings=[*_none(held.why_none, notes), *(_others(held.workers, notes) if strangers else ())],
    )


def _none(why: str | None, notes: Sequence[Note]) -> Iterator[str]:
    if why is not None and any(note.recorded for note in notes):  # else it was said that nobody used RPC
        yield why


def _others(workers: frozenset[str], notes: Sequence[Note]) -> Iterator[str]:
    """Packets do not tell to which command they belong."""
    ours = {note.name for note in notes}
    others = sorted(workers - ours)
    if ours and others:
        more = f" and {len(others) - SHOWN} more" if len(others) > SHOWN else ""
        yield (
            f"workers that are not of this command were captured too: {', '.join(others[:SHOWN])}{more}; "
            "--private-net keeps them out"
        )

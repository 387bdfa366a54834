"""What a recording holds, found out by reading it as `decode` does, for a few seconds at most.

In: the file that was written. Out: how many messages, of which workers; or why there are none.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rpcinspect.errors import RpcInspectError
from rpcinspect.pipeline import Decoding, Options
from rpcinspect.views.empty import empty_line

SECONDS = 5.0
"""A large recording is looked into, not read to its end: who recorded it waits for the prompt."""


@dataclass(frozen=True, slots=True)
class Held:
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

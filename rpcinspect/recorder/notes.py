"""What the processes of a command told of themselves, see startup/rpcinspect_notes.py; which of them run.

In: the folder of notes. Out: `Note`s, by worker id. They are written by processes of the user: one that
can't be read is passed over.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct


class Note(Struct, frozen=True, kw_only=True):
    """One process that started RPC, or would have."""

    pid: int
    name: str | None
    id: int | None
    torch: str | None
    recorded: bool
    why: str | None
    ended: bool
    """It ended by itself, and said so."""
    counters: Mapping[str, int]
    """What its recorder counted: messages, bytes, dropped, failed."""


COUNTERS = ("messages", "bytes", "dropped", "failed")
_MAX_BYTES = 1 << 16


def read_notes(folder: Path) -> list[Note]:
    """Every note, in the order of processes' starts."""
    paths = sorted(folder.glob("*.json"), key=lambda path: (path.stat().st_mtime_ns, path.name))
    notes = [_read(path) for path in paths]
    return sorted(
        (note for note in notes if note is not None), key=lambda note: (note.id is None, note.id or 0)
    )


def _read(path: Path) -> Note | None:
    try:
        with path.open("rb") as file:
            content = json.loads(file.read(_MAX_BYTES))
        name, number, why, torch = (content.get(key) for key in ("name", "id", "why", "torch"))
        return Note(
            pid=int(content["pid"]),
            name=None if name is None else str(name),
            id=None if number is None else int(number),
            torch=None if torch is None else str(torch),
            recorded=content["recorded"] is True,
            why=None if why is None else str(why),
            ended=content.get("ended") == "clean",
            counters={key: int(content[key]) for key in COUNTERS if key in content},
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def is_running(pid: int) -> bool:
    """Whether a process still runs; one that has ended and was not waited for does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    with contextlib.suppress(OSError, IndexError):
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return stat.rpartition(")")[2].split()[0] != "Z"
    return True

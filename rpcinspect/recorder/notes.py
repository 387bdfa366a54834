"""What the processes of a command told of themselves, see startup/rpcinspect_notes.py, and who still runs.

In: the folder of notes. Out: `Note`s, by worker id. They are written by processes of the user: one that
can't be read is passed over.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from msgspec import Struct, ValidationError, convert


class Note(Struct, frozen=True, kw_only=True):
    """One process that started RPC, or would have."""

    pid: int
    name: str | None = None
    id: int | None = None
    torch: str | None = None
    recorded: bool
    why: str | None = None
    started: int | None = None
    """When the process began, in the kernel's ticks: ids of processes are used again."""
    job: str | None = None
    """As the log calls it."""
    ended: str | None = None
    """`clean`: it ended by itself, and said so."""
    status: int | None = None
    """The exit status with which it did, where it knew it."""
    error: str | None = None
    """The class of the exception that ended it."""
    messages: int = 0
    """What its recorder counted, as the three that follow."""
    bytes: int = 0
    dropped: int = 0
    failed: int = 0


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
            return convert(json.loads(file.read(_MAX_BYTES)), Note)
    except (OSError, ValueError, ValidationError):
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

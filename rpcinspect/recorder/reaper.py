"""Orphans of a command become our children, so that we see the status with which they end.

In: the kernel's word (Linux) for who is our child. Out: wait status and time of the command's process and of
each orphan that has ended. Nobody waits for one that still runs. Where the system can't give us orphans they
go where they always went, and nothing is known of them.
"""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER, PR_GET_CHILD_SUBREAPER = 36, 37
STATE, START, EXIT_CODE = 0, 19, 49
"""Fields of /proc/PID/stat behind the name of the program, which may hold anything."""

Process = tuple[int, int]
"""(id, start in ticks since the system's): ids are used again."""


class Reaper:
    """From before a command begins to its end; `close` lets others have the orphans again."""

    def __init__(self) -> None:
        self.statuses: dict[Process, tuple[int, int]] = {}
        """(wait status, time_ns) of those that have ended."""
        known = _children()
        self._known = known or frozenset()
        """Those that others of us wait for."""
        self._was = _is_subreaper()
        self._adopts = known is not None and _set_subreaper(True)

    def wait_for(self, pid: int) -> int | None:
        """The wait status of a child; None of one that still runs, or is none of ours."""
        stat = process_stat(pid)
        try:
            ended, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return None
        if not ended:
            return None
        if stat is not None:
            self.statuses[pid, int(stat[START])] = status, time.time_ns()
        return status

    def look(self) -> None:
        """Takes in orphans that have ended: none stays a zombie."""
        if self._adopts:
            for pid in (_children() or frozenset()) - self._known:
                self.wait_for(pid)

    def close(self) -> None:
        """Orphans go where they went before."""
        if self._adopts:
            self.look()
            _set_subreaper(self._was)
            self._adopts = False


def process_stat(pid: int) -> list[str] | None:
    """What the kernel says of a process; None where there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return fields if len(fields) > EXIT_CODE else None


def is_zombie(stat: list[str]) -> bool:
    """Whether it has ended, and its parent has not waited for it."""
    return stat[STATE] in ("Z", "X")


def _children() -> frozenset[int] | None:
    """Of this process; None where the kernel does not list them."""
    try:
        lists = [path.read_text(encoding="ascii") for path in Path("/proc/self/task").glob("*/children")]
    except OSError:
        return None
    return frozenset(int(pid) for text in lists for pid in text.split()) if lists else None


def _is_subreaper() -> bool:
    told = ctypes.c_int(0)
    return _prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(told)) and bool(told.value)


def _set_subreaper(on: bool) -> bool:
    return _prctl(PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(on))


def _prctl(option: int, argument: object) -> bool:
    """Whether the system did it."""
    try:
        zero = ctypes.c_ulong(0)
        return bool(ctypes.CDLL(None).prctl(option, argument, zero, zero, zero) == 0)
    except (OSError, AttributeError):  # no Linux
        return False

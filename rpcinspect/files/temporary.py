"""Temporary files: without a name, so that nothing is left of them however we end, and never all of the
disk's room.

In: bytes. Out: the same bytes again. Before each write the room that is left is looked at: a twentieth of the
file system stays free, at most 256 MiB, so that a large input does not stop whatever else needs the disk.
`NoRoomError` is one line that says so.
"""

from __future__ import annotations

import ctypes
import io
import os
import sys
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from rpcinspect.errors import NoRoomError, OutputError

RESERVE_BYTES, RESERVE_PART = 1 << 28, 20
HOLE_BYTES = 1 << 14
"""Ranges that are shorter are not given back: it takes longer than to leave them."""


def temporary_folder() -> Path:
    """Where temporary files go; `OutputError` where none can be written."""
    try:
        return Path(tempfile.gettempdir())
    except OSError as error:
        raise OutputError(
            f"{error.strerror}: is the disk full, or read-only? set TMPDIR to another folder"
        ) from error


def read_range(descriptor: int, offset: int, length: int) -> bytes:
    """Returns a range of an open file; shorter where that ends."""
    parts: list[bytes] = []
    while length > 0 and (part := os.pread(descriptor, length, offset)):
        parts.append(part)
        offset += len(part)
        length -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


class Temporary(io.FileIO):
    """A temporary file, open for reading and writing. `write` writes all or raises `NoRoomError`."""

    def __init__(self) -> None:
        folder = temporary_folder()
        try:
            with tempfile.TemporaryFile(buffering=0) as made:
                super().__init__(os.dup(made.fileno()), "r+b")
        except OSError as error:
            raise OutputError(f"{folder}: can't make a temporary file: {error.strerror}") from error

    def write(self, data: Any, /) -> int:
        view = memoryview(data).cast("B")
        size = len(view)
        self._need(size)
        try:
            while view:
                view = view[super().write(view) :]
        except OSError as error:
            raise _no_room(error.strerror or str(error)) from error
        return size

    def pread(self, offset: int, length: int) -> bytes:
        """A range; shorter where the file ends."""
        return read_range(self.fileno(), offset, length)

    def give_back(self, start: int, stop: int) -> None:
        """Frees the room of a range that will never be read again, where the file system can."""
        if stop - start >= HOLE_BYTES:
            _punch(self.fileno(), start, stop - start)

    def _need(self, size: int) -> None:
        with suppress(OSError):
            state = os.fstatvfs(self.fileno())
            total, free = state.f_blocks * state.f_frsize, state.f_bavail * state.f_frsize
            reserve = min(RESERVE_BYTES, total // RESERVE_PART)
            if total and free - size < reserve:
                raise _no_room(f"{free:,} bytes are free, of which {reserve:,} are kept")


def _no_room(reason: str) -> NoRoomError:
    folder = tempfile.gettempdir()
    return NoRoomError(f"no room for temporary files in {folder}: {reason}; set TMPDIR to another folder")


def _punch(descriptor: int, offset: int, length: int) -> None:
    fallocate = _fallocate()
    if fallocate is not None:
        fallocate(descriptor, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, offset, length)


@cache
def _fallocate() -> Any:
    """Linux's, which Python does not offer; None on other systems."""
    if not sys.platform.startswith("linux"):
        return None
    function = getattr(ctypes.CDLL(None, use_errno=True), "fallocate64", None)
    if function is not None:
        function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return function


FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE = 1, 2
"""Of linux/falloc.h."""

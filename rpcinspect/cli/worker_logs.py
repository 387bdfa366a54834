"""Text logs that workers wrote, opened and read line by line.

In: `FILE` or `NAME=FILE` of the command line, gzipped or not. Out: what they say of RPC; `CaptureError` for
one that can't be read.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from rpcinspect.cli.guard import UsageMistake
from rpcinspect.errors import CaptureError
from rpcinspect.workerlog.read import MAX_LINE, WorkerLog, read_lines

GZIP = b"\x1f\x8b"
_NAMED = re.compile(r"([\w:-]{1,128})=(.+)", re.ASCII | re.DOTALL)
_ZONE = re.compile(r"([+-])(\d\d):?(\d\d)", re.ASCII)


def read_worker_logs(named: Sequence[str]) -> tuple[WorkerLog, ...]:
    """Reads the named logs."""
    return tuple(_read(name) for name in named)


def read_zone(text: str) -> int:
    """Reads seconds east of Greenwich. Raises `UsageMistake` for what is no zone."""
    if text.upper() in ("UTC", "Z"):
        return 0
    match = _ZONE.fullmatch(text)
    if match is None or int(match[2]) > 14 or int(match[3]) > 59:
        raise UsageMistake(f"--log-zone {text}: write a time zone as UTC, +05:30 or -08:00")
    seconds = int(match[2]) * 3600 + int(match[3]) * 60
    return -seconds if match[1] == "-" else seconds


def read_named(named: str) -> tuple[str | None, str]:
    """Returns the worker, if one is named, and the path of its log."""
    match = _NAMED.fullmatch(named)
    if match is not None and not Path(named).exists():
        return match[1], match[2]
    return None, named


def _read(named: str) -> WorkerLog:
    worker, path = read_named(named)
    try:
        with Path(path).open("rb") as file:
            packed = file.read(2) == GZIP
            file.seek(0)
            lines = _lines(gzip.GzipFile(fileobj=file) if packed else file)
            return read_lines(path, lines, worker)
    except (OSError, EOFError, ValueError) as error:
        raise CaptureError(f"{path}: can't be read: {getattr(error, 'strerror', None) or error}") from error


def _lines(data: BinaryIO | gzip.GzipFile) -> Iterator[str]:
    """Lines; of what is no text, what can be shown of it. One that never ends comes in pieces."""
    while line := data.readline(MAX_LINE):
        yield line.decode("utf-8", "backslashreplace")

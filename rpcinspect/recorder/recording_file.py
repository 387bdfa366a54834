"""The file of a recording. It grows where it is, and can be read as far as it has come, however we end.

In: a path. Out: a descriptor for writing; `RecordError` where there can't be one. A new file is only ours to
read.
"""

from __future__ import annotations

from pathlib import Path

from rpcinspect.errors import OutputError, RecordError
from rpcinspect.files.output import open_growing


def begin_recording(path: Path, *, append: bool = False) -> int:
    """What the file held goes, unless something is appended to it."""
    try:
        return open_growing(path, append=append)
    except OutputError as error:
        raise RecordError(str(error)) from error

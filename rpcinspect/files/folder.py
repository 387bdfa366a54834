"""Several files of one folder, which appear together: what an earlier run has written stays until all of them
are whole.

In: the folder, and files by their names below it. Out: open files; once all are written they take their
places one after the other, which is the only moment at which a kill can leave some old and some new. One of
them may be the mark without which the others mean nothing: it goes first and comes last. A link at the place
of a file is replaced, not followed.
"""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from rpcinspect.errors import OutputError
from rpcinspect.files.aside import new_folder, sync_folder, take_place
from rpcinspect.files.place import PRIVATE, PUBLIC, writing

NAME = "rpcinspect"
"""What the folder aside is called by."""


class OutputFolder:
    """Files that are being written: `new` for each, then `put` or `drop`."""

    def __init__(self, folder: Path, *, private: bool) -> None:
        """Makes the folder if need be. `private`: the files hold what was captured as it was."""
        self.folder = folder
        self._mode = PRIVATE if private else PUBLIC
        self._asides: dict[str, Path] = {}
        self._put = False
        try:
            with writing(folder):
                self._made = not folder.exists()
                folder.mkdir(parents=True, exist_ok=True)
                self._aside, self._lock = new_folder(folder, NAME)
        except ValueError as error:  # a zero byte
            raise OutputError(f"{folder}: can't be written: {error}") from error

    def new(self, name: str) -> io.FileIO:
        """A file that will be there by this name."""
        with writing(self.folder):
            path = self._asides[name] = self._aside / str(len(self._asides))
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            return io.FileIO(os.open(path, flags, self._mode), "wb")

    def put(self, *, mark: str | None = None, obsolete: Sequence[str] = ()) -> int:
        """All are written and closed: they take their places, and what is obsolete goes. How many bytes."""
        names = sorted(self._asides, key=lambda name: name == mark)
        size = 0
        with writing(self.folder):
            for name in names:
                self._place(name).parent.mkdir(parents=True, exist_ok=True)
            for name in (*filter(None, (mark,)), *set(obsolete).difference(names)):
                self._place(name).unlink(missing_ok=True)
            for name in names:
                path = self._asides[name]
                size += path.stat().st_size
                take_place(path, self._place(name), _there(self._place(name)))
            for folder in {self._place(name).parent for name in names}:
                sync_folder(folder)
        self._put = True
        self.drop()
        return size

    def drop(self) -> None:
        """What is aside goes, and so does a folder that was made for nothing."""
        shutil.rmtree(self._aside, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
        if self._made and not self._put:
            with suppress(OSError):
                self.folder.rmdir()

    def _place(self, name: str) -> Path:
        return self.folder / name


def _there(path: Path) -> os.stat_result | None:
    with suppress(OSError):
        found = os.lstat(path)
        return found if os.path.isfile(path) and not os.path.islink(path) else None
    return None

"""One output, or several of one folder. It appears at its place when all of it is there, and until then what
was there stays: also if the disk is full, or we are killed. What is no file of a disk (a terminal, a pipe,
/dev/null, /dev/stdout) is written to as it is, and so is a file that is to grow, so that it can be read
meanwhile.

In: a path. Out: an open file; `OutputError` where it can't be written.
"""

from __future__ import annotations

import errno
import io
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from rpcinspect.errors import OutputError
from rpcinspect.files.place import (
    PRIVATE,
    PUBLIC,
    OutputPlace,
    check_folder,
    find_place,
    is_at,
    new_file,
    new_folder,
    sync_folder,
    take_place,
    writing,
)


class Output:
    """An output that is being written: `file` takes its bytes, then `put` or `drop` ends it."""

    def __init__(self, path: Path, *, private: bool) -> None:
        """`private`: holds what was captured as it was."""
        self.path = path
        self._place = place = find_place(path)
        self._aside: Path | None = None
        with writing(path), _explained(place):
            if place.whole:
                mode = PRIVATE if private or place.there is not None else PUBLIC
                self._aside, descriptor = new_file(place.path, mode)
            else:
                descriptor = place.open(mode=0)
            self.file = io.FileIO(descriptor, "wb")

    def put(self) -> None:
        """Puts the finished file at its place. Flush buffers before; may be repeated if interrupted."""
        with writing(self.path), _explained(self._place):
            if self._aside is not None:
                if not is_at(self._place.path, self.file.fileno()):
                    take_place(self._aside, self._place.path, self._place.there)
                self._aside = None
                sync_folder(self._place.path.parent)
            self.file.close()

    def drop(self) -> None:
        """Gives the file up: what was at its place stays. Does nothing after `put`."""
        if self._aside is not None:
            self._aside.unlink(missing_ok=True)
            self._aside = None
        with suppress(OSError):
            self.file.close()


@contextmanager
def _explained(place: OutputPlace) -> Iterator[None]:
    """A file that could be written to may be one that no other can replace: its folder takes no new ones, or
    it is mounted there by itself.
    """
    try:
        yield
    except OSError as error:
        if place.there is not None and error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY):
            told = f"{error.strerror}: it can't be replaced as a file; write into it with the shell's >"
            raise OSError(error.errno, told) from error
        raise


@contextmanager
def open_whole(path: Path, *, private: bool) -> Iterator[BinaryIO]:
    """A file that appears at its place when all of it is written; until then, and after an error, what was
    there stays. Raises `OutputError`."""
    output = Output(path, private=private)
    try:
        with writing(path), io.BufferedWriter(output.file) as file:
            yield file
            file.flush()
            output.put()
    finally:
        output.drop()


class Growing(io.FileIO):
    """A file that is written to in place, and keeps what it holds until something else is written."""

    emptied = False

    def __init__(self, path: Path, *, private: bool) -> None:
        self._path = path
        mode = PRIVATE if private else PUBLIC
        place = find_place(path)
        with writing(path):
            try:
                descriptor = place.open(mode)
            except FileExistsError:  # another worker of the job has made it since: it is looked at again
                place = find_place(path)
                descriptor = place.open(mode)
            self._is_new = place.there is None
            self._empties = place.descriptor is None and stat.S_ISREG(os.fstat(descriptor).st_mode)
            super().__init__(descriptor, "wb")

    def empty(self) -> None:
        """Empties a file that was there before."""
        if not self.emptied:
            self.emptied = True
            if self._empties:
                self.truncate(0)

    def write(self, data: Any, /) -> int:
        self.empty()
        return super().write(data)

    def forget(self) -> None:
        """Removes the file if it is new and still empty."""
        if self._is_new and not self.emptied:
            self._path.unlink(missing_ok=True)


def open_growing(path: Path, *, append: bool = False) -> int:
    """A descriptor of a recording, which grows where it is; what it held goes, unless it is appended to."""
    with Growing(path, private=True) as file:
        if not append:
            file.empty()
        return os.dup(file.fileno())


NAME = "rpcinspect"
"""What the folder aside is called by."""


class OutputFolder:
    """Files of one folder that are being written: `new` for each, then `put` or `drop`.

    They take their places one after the other once all are whole, which is the only moment at which a kill
    can leave some old and some new. A link at the place of a file is replaced, not followed.
    """

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
                check_folder(folder)
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
        """Puts the closed files at their places and removes what is obsolete; returns the bytes of all.

        `mark`: the file without which the others mean nothing; it goes first and comes last.
        """
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

"""Where an output goes: what stands at its path, behind the links, and whether it may be written there.

In: a path as the user says it. Out: a `Place`; `OutputError` where nothing may be written.

A link is followed, as by `cp` and a shell's `>`: the user's own `-o latest.pcap` may be one. What stands in
a folder that anybody can write to, such as /tmp, is followed, replaced or written to only if it belongs to
us, to root or to whom the folder belongs: somebody else may have put it there, at a name that could be
guessed. That is the rule of Linux's fs.protected_symlinks, protected_regular and protected_fifos, which not
every system has on.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from rpcinspect.errors import OutputError

MAX_LINKS = 40
PRIVATE = 0o600
"""The mode of new files that hold what was captured as it was: payloads, pickles, tensors."""
PUBLIC = 0o666
"""That of reports, which quote it; the umask is taken from it."""


class Place(Struct, frozen=True, kw_only=True):
    """A path with the links of its last part resolved."""

    path: Path
    there: os.stat_result | None
    """What stands there now."""
    opened: bool = False
    """Whether it stands for what some process has open."""
    descriptor: int | None = None
    """Of ours, where it does: /dev/stdout, /dev/fd/63."""

    @property
    def whole(self) -> bool:
        """Whether a file can take this place as a whole; what else is there is written to as it is."""
        return not self.opened and (self.there is None or stat.S_ISREG(self.there.st_mode))

    def open(self, mode: int) -> int:
        """A descriptor for writing to what is there, or to a new file of that mode."""
        if self.descriptor is not None:
            return os.dup(self.descriptor)
        flags = os.O_WRONLY | os.O_CLOEXEC
        if not self.opened:
            flags |= os.O_NOFOLLOW
        if self.there is None:
            flags |= os.O_CREAT | os.O_EXCL
        return os.open(self.path, flags, mode)


def find_place(path: Path) -> Place:
    """The place that a path names."""
    with writing(path):
        return _find(path)


@contextmanager
def writing(path: Path | None) -> Iterator[None]:
    """Makes a failed write, such as that of a full disk, an `OutputError`; None: standard output."""
    try:
        yield
    except OSError as error:
        where = "standard output" if path is None else str(path)
        raise OutputError(f"{where}: can't be written: {error.strerror or error}") from error


def _find(path: Path) -> Place:
    at = os.fspath(path)
    for _ in range(MAX_LINKS):
        folder, name = os.path.split(at)
        try:
            folder = os.path.realpath(folder)
            at = os.path.join(folder, name)
            process = _DESCRIPTORS.fullmatch(folder)
            if process is not None:
                return _opened(at, int(process[1]))
            there = os.lstat(at)
        except FileNotFoundError:
            return Place(path=Path(at), there=None)
        except ValueError as error:
            raise OutputError(f"{path}: can't be written: {error}") from error
        _refuse_a_strangers(path, there, folder)
        if not stat.S_ISLNK(there.st_mode):
            return _checked(at, there)
        at = os.path.join(folder, os.readlink(at))
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _opened(at: str, process: int) -> Place:
    """What some process has open: one of ours is written to by itself, at the position where it is."""
    name = os.path.basename(at)
    ours = int(name) if process == os.getpid() and name.isdecimal() else None
    there = os.stat(at) if ours is None else os.fstat(ours)
    return Place(path=Path(at), there=there, opened=True, descriptor=ours)


def _checked(at: str, there: os.stat_result) -> Place:
    if stat.S_ISDIR(there.st_mode):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not os.access(at, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))
    return Place(path=Path(at), there=there)


def _refuse_a_strangers(path: Path, there: os.stat_result, folder: str) -> None:
    """See the module's text."""
    around = os.stat(folder)
    shared = around.st_mode & stat.S_IWOTH or (
        around.st_mode & stat.S_ISVTX and around.st_mode & stat.S_IWGRP
    )
    if shared and there.st_uid not in (0, os.geteuid(), around.st_uid):
        raise OutputError(
            f"{path}: can't be written: it belongs to user {there.st_uid}, in a folder that others may write "
            "to"
        )


_DESCRIPTORS = re.compile(r"/proc/(\d+)(?:/task/\d+)?/fd")
"""The folder in which Linux shows a process's open files as links."""

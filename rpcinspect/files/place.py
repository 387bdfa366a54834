"""Where an output goes: what stands at its path, behind the links, and whether it may be written there.

In: a path as the user says it. Out: a `OutputPlace`; `OutputError` where nothing may be written.

A link is followed, as by `cp` and a shell's `>`: the user's own `-o latest.pcap` may be one. What stands in
a folder that anybody can write to, such as /tmp, is followed, replaced or written to only if it belongs to
us, to root or to whom the folder belongs: somebody else may have put it there, at a name that could be
guessed. That is the rule of Linux's fs.protected_symlinks, protected_regular and protected_fifos, which not
every system has on.

Beside its place an output is written until it is whole, as `.NAME.HOST-RANDOM.part`, so that everybody knows
what it is for. Who writes holds a lock on it; what nobody holds any more is of a run that was killed, and the
next one for the same output removes it. HOST keeps the hosts that share a folder apart: a lock may hold on
its own host only.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from msgspec import Struct

from rpcinspect.errors import OutputError
from rpcinspect.late_pattern import late

MAX_LINKS = 40
PRIVATE = 0o600
"""The mode of new files that hold what was captured as it was: payloads, pickles, tensors."""
PUBLIC = 0o666
"""That of reports, which quote it; the umask is taken from it."""


class OutputPlace(Struct, frozen=True, kw_only=True):
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


def find_place(path: Path) -> OutputPlace:
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


def _find(path: Path) -> OutputPlace:
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
            return OutputPlace(path=Path(at), there=None)
        except ValueError as error:
            raise OutputError(f"{path}: can't be written: {error}") from error
        _refuse_a_strangers(path, there, folder)
        if not stat.S_ISLNK(there.st_mode):
            return _checked(at, there)
        at = os.path.join(folder, os.readlink(at))
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def check_folder(path: Path) -> None:
    """Raises `OutputError` for a folder, or a link to one, that somebody else may have put there: who owns it
    can replace what is written into it, such as a program."""
    at = os.fspath(path)
    for _ in range(MAX_LINKS):
        folder, name = os.path.split(at)
        folder = os.path.realpath(folder)
        at = os.path.join(folder, name)
        there = os.lstat(at)
        _refuse_a_strangers(path, there, folder)
        if not stat.S_ISLNK(there.st_mode):
            return
        at = os.path.join(folder, os.readlink(at))


def _opened(at: str, process: int) -> OutputPlace:
    """What some process has open: one of ours is written to by itself, at the position where it is."""
    name = os.path.basename(at)
    ours = int(name) if process == os.getpid() and name.isdecimal() else None
    there = os.stat(at) if ours is None else os.fstat(ours)
    return OutputPlace(path=Path(at), there=there, opened=True, descriptor=ours)


def _checked(at: str, there: os.stat_result) -> OutputPlace:
    if stat.S_ISDIR(there.st_mode):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not os.access(at, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))
    return OutputPlace(path=Path(at), there=there)


def _refuse_a_strangers(path: Path, there: os.stat_result, folder: str) -> None:
    """Raises `OutputError` where somebody else may have put there what stands at a path."""
    around = os.stat(folder)
    shared = around.st_mode & stat.S_IWOTH or (
        around.st_mode & stat.S_ISVTX and around.st_mode & stat.S_IWGRP
    )
    if shared and there.st_uid not in (0, os.geteuid(), around.st_uid):
        raise OutputError(
            f"{path}: can't be written: it belongs to user {there.st_uid}, in a folder that others may write "
            "to"
        )


_DESCRIPTORS = late(r"/proc/(\d+)(?:/task/\d+)?/fd")
"""The folder in which Linux shows a process's open files as links."""


@cache
def host() -> str:
    """What tells this host from others, short."""
    from hashlib import blake2b  # a part of the start, which who writes to standard output need not wait for

    return blake2b(os.uname().nodename.encode(errors="surrogateescape"), digest_size=4).hexdigest()


MAX_NAME = 200
"""Bytes of an output's name that are in the name beside it: file systems take 255."""
LOCK = "lock"
"""The file within a folder aside that is locked in its stead."""


def new_file(place: Path, mode: int) -> tuple[Path, int]:
    """A new file beside a place, locked, and its descriptor; what killed runs left there is removed."""
    sweep(place.parent, place.name)
    while True:
        path = _name(place.parent, place.name)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        _lock(descriptor)
        if is_at(path, descriptor):  # else someone's sweep came between the two
            return path, descriptor
        os.close(descriptor)


def new_folder(place: Path, name: str) -> tuple[Path, int]:
    """A new folder in the folder `place`, which nobody else may enter, and a descriptor that locks it."""
    sweep(place, name)
    while True:
        path = _name(place, name)
        path.mkdir(mode=0o700)
        descriptor = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        _lock(descriptor)
        if is_at(path / LOCK, descriptor):
            return path, descriptor
        os.close(descriptor)


def sweep(folder: Path, name: str) -> None:
    """Removes what runs of ours that were killed have left of outputs of this name."""
    known = re.compile(re.escape(f".{_short(name)}.{host()}-") + r"[0-9a-f]{16}\.part")
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if known.fullmatch(entry.name):
                _remove_if_left(Path(entry.path))


def take_place(path: Path, place: Path, there: os.stat_result | None) -> None:
    """Moves a whole file to its place. Mode, group and owner stay those of the file that is there, as far as
    we may set them."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if there is not None:
            look_like(descriptor, there)
        sync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(path, place)


def sync_folder(folder: Path) -> None:
    """Has the disk know of the names in a folder."""
    with suppress(OSError):  # one that may be written to, not read
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            sync(descriptor)
        finally:
            os.close(descriptor)


def sync(descriptor: int) -> None:
    """Has the disk take what was written, where the file system knows how."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS):
            raise


def _name(folder: Path, name: str) -> Path:
    return folder / f".{_short(name)}.{host()}-{os.urandom(8).hex()}.part"


def _short(name: str) -> str:
    return os.fsdecode(os.fsencode(name)[:MAX_NAME])


def _lock(descriptor: int) -> None:
    with suppress(OSError):  # a file system without locks: nobody can tell that it is left, and nobody sweeps
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def is_at(path: Path, descriptor: int) -> bool:
    """Returns whether the open file is the one with this name."""
    with suppress(OSError):
        return os.path.samestat(os.lstat(path), os.fstat(descriptor))
    return False


def _remove_if_left(path: Path) -> None:
    with suppress(OSError):
        found = os.lstat(path)
        if found.st_uid != os.geteuid():
            return
        is_folder = stat.S_ISDIR(found.st_mode)
        lock = path / LOCK if is_folder else path
        descriptor = os.open(lock, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # else its writer lives
            if is_folder:
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()
        finally:
            os.close(descriptor)


def look_like(descriptor: int, there: os.stat_result) -> None:
    """Gives an open file the owner, group and mode of another, as far as we may: never lets more people read
    it than could read the other."""
    mode = stat.S_IMODE(there.st_mode) & 0o777
    for owner, group in ((there.st_uid, -1), (-1, there.st_gid)):
        with suppress(OSError):
            os.fchown(descriptor, owner, group)
    if os.fstat(descriptor).st_gid != there.st_gid:
        mode &= ~0o070
    with suppress(OSError):  # a file system without modes
        os.fchmod(descriptor, mode)

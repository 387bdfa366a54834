"""Names beside the place of an output, where it is written until it is whole, and how it takes that place.

A name is `.NAME.HOST-RANDOM.part`, so that everybody knows what it is for. Who writes holds a lock on it;
what nobody holds any more is of a run that was killed, and the next one for the same output removes it. HOST
keeps the hosts that share a folder apart: a lock may hold on its own host only.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import stat
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

HOST = blake2b(os.uname().nodename.encode(errors="surrogateescape"), digest_size=4).hexdigest()
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
    known = re.compile(re.escape(f".{_short(name)}.{HOST}-") + r"[0-9a-f]{16}\.part")
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
            _look_like(descriptor, there)
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
    return folder / f".{_short(name)}.{HOST}-{os.urandom(8).hex()}.part"


def _short(name: str) -> str:
    return os.fsdecode(os.fsencode(name)[:MAX_NAME])


def _lock(descriptor: int) -> None:
    with suppress(OSError):  # a file system without locks: nobody can tell that it is left, and nobody sweeps
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def is_at(path: Path, descriptor: int) -> bool:
    """Whether what is open is what has this name."""
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


def _look_like(descriptor: int, there: os.stat_result) -> None:
    """Never lets more people read it than could read the other."""
    mode = stat.S_IMODE(there.st_mode) & 0o777
    for owner, group in ((there.st_uid, -1), (-1, there.st_gid)):
        with suppress(OSError):
            os.fchown(descriptor, owner, group)
    if os.fstat(descriptor).st_gid != there.st_gid:
        mode &= ~0o070
    with suppress(OSError):  # a file system without modes
        os.fchmod(descriptor, mode)

"""The queue of a recorded process, as a file: what is left in it of one that was killed goes into the log.

`native/queue.cpp` fills it, in memory that the process shares with this file. Numbers are native. At 0:

    magic       8 bytes, `rpcqueu1`; anything else was never a queue
    capacity    bytes of the ring, which begins at 4096
    head        bytes ever reserved in the ring; a position is taken modulo the capacity
    tail        bytes ever written into the log
    batch_tail, batch_at
                the tail when a batch was begun, and where it begins in the log; 2^64-1: none is in hand
    messages, bytes, dropped, failed
                what was counted
    over        not 0: recording ended early, what is left is not for the log

The ring is a row of entries, each at a multiple of 16: length (8 bytes), whether it is complete (4), unused
(4), and a whole record of the log, rounded up to 16; it goes on at the ring's begin where it reaches the end.
A batch is a newline and then the records of entries from the tail on.

In: such files, of processes that are gone. Out: what they have counted; the log, with each record once. A
batch that was cut in the log is completed: its first records are there, of the one behind them newlines
remain, which a reader passes over, and it is written again.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

MAGIC = b"rpcqueu1"
FIELDS = struct.Struct("=8s10Q")
DATA_AT = 4096
ENTRY = struct.Struct("=QII")
NO_BATCH = (1 << 64) - 1
LOCK_SECONDS = 5.0
CHUNK = 1 << 20


class Left(Struct, frozen=True, kw_only=True):
    """What a queue tells of its process."""

    messages: int
    bytes: int
    dropped: int
    failed: int
    recovered: int
    """Records that were still in it, and are in the log now."""


class _Fields(Struct, frozen=True, kw_only=True):
    capacity: int
    head: int
    tail: int
    batch_tail: int
    batch_at: int
    counted: tuple[int, int, int, int]
    over: bool


def recover(queue: Path, log: Path) -> Left | None:
    """Writes what is left; None if the file is no queue. `OSError` where the log can't be written."""
    with queue.open("rb") as file:
        fields = _fields(file.read(DATA_AT))
        if fields is None or not fields.capacity:
            return None
        records = [] if fields.over else list(_records(file.fileno(), fields))
    if records:
        with open_log(log) as file:
            _lock(file.fileno())
            done = _already_there(file.fileno(), fields, records)
            _append(file.fileno(), records[done:])
    return _left(fields, len(records))


def open_log(log: Path) -> BinaryIO:
    """The log, at its end; not what somebody has put there as a link meanwhile."""
    file = os.fdopen(os.open(log, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC), "r+b", buffering=0)
    file.seek(0, os.SEEK_END)
    return file


def read_counts(queue: Path) -> Left | None:
    """What its process has counted until now; None if the file is no queue."""
    with queue.open("rb") as file:
        fields = _fields(file.read(DATA_AT))
    return None if fields is None else _left(fields, 0)


def _left(fields: _Fields, recovered: int) -> Left:
    messages, size, dropped, failed = fields.counted
    return Left(messages=messages, bytes=size, dropped=dropped, failed=failed, recovered=recovered)


def _fields(data: bytes) -> _Fields | None:
    if len(data) < DATA_AT:
        return None
    magic, capacity, head, tail, batch_tail, batch_at, *counted, over = FIELDS.unpack_from(data)
    if magic != MAGIC or not 0 <= head - tail <= capacity:
        return None
    messages, size, dropped, failed = counted
    return _Fields(
        capacity=capacity,
        head=head,
        tail=tail,
        batch_tail=batch_tail,
        batch_at=batch_at,
        counted=(messages, size, dropped, failed),
        over=over != 0,
    )


def _records(file: int, fields: _Fields) -> Iterator[bytes]:
    """Those that are complete; of one that was being copied nothing is of use."""
    at = fields.tail
    while at < fields.head:
        length, complete, _ = ENTRY.unpack(_ring(file, fields.capacity, at, ENTRY.size))
        if complete:
            yield _ring(file, fields.capacity, at + ENTRY.size, length)
        at += ENTRY.size + -(-length // ENTRY.size) * ENTRY.size


def _ring(file: int, capacity: int, at: int, length: int) -> bytes:
    begin = at % capacity
    first = min(length, capacity - begin)
    data = os.pread(file, first, DATA_AT + begin)
    return data + os.pread(file, length - first, DATA_AT) if length > first else data


def _lock(descriptor: int) -> None:
    """As the writers of the log do; one that was stopped while it had the lock is not waited for."""
    end = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES) or time.monotonic() > end:
                return
            time.sleep(0.01)
        else:
            return


def _already_there(log: int, fields: _Fields, records: list[bytes]) -> int:
    """How many of the records the batch in hand has brought into the log; what is there of the next one is
    blotted out."""
    if fields.batch_at == NO_BATCH or fields.batch_tail != fields.tail:
        return 0
    at = fields.batch_at + 1
    for number, record in enumerate(records):
        there = _common(log, at, record)
        if there < len(record):
            if there and _is_ours(log, at, record):
                os.pwrite(log, b"\n" * there, at)
            return number
        at += there
    return len(records)


def _common(log: int, at: int, record: bytes) -> int:
    """How far the log says the same."""
    for start in range(0, len(record), CHUNK):
        piece = record[start : start + CHUNK]
        there = os.pread(log, len(piece), at + start)
        if there != piece:
            return start + next(
                (n for n, pair in enumerate(zip(there, piece, strict=False)) if pair[0] != pair[1]),
                len(there),
            )
    return len(record)


def _is_ours(log: int, at: int, record: bytes) -> bool:
    """Whether what is there is a cut record of the batch, and not the begin of one that another process wrote
    behind it: headers begin alike."""
    header = record[: record.index(b"\n") + 1]
    line, newline, _ = os.pread(log, len(header), at).partition(b"\n")
    return line + newline == header or header.startswith(line)


def _append(log: int, records: list[bytes]) -> None:
    if not records:
        return
    os.lseek(log, 0, os.SEEK_END)
    for piece in (b"\n", *records):
        view = memoryview(piece)
        while view:
            view = view[os.write(log, view) :]

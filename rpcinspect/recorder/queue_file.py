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

In: such files. Out: what they have counted; of processes that are gone the log, with each record once. A
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


class Queue(Struct, frozen=True):
    """What stands at the begin of a queue, of the time being."""

    capacity: int
    head: int
    tail: int
    batch_tail: int
    batch_at: int
    messages: int
    bytes: int
    dropped: int
    failed: int
    over: int


def read_queue(path: Path) -> Queue | None:
    """What a queue tells of its process; None if the file is no queue."""
    with path.open("rb") as file:
        data = file.read(DATA_AT)
    if len(data) < DATA_AT:
        return None
    magic, *numbers = FIELDS.unpack_from(data)
    queue = Queue(*numbers)
    is_one = magic == MAGIC and queue.capacity and 0 <= queue.head - queue.tail <= queue.capacity
    return queue if is_one else None


def recover(queue: Queue, path: Path, log: Path) -> int:
    """Writes what is left in a queue, whose file is at `path`; how many records that was. `OSError` where the
    log can't be written.
    """
    if queue.over:
        return 0
    with path.open("rb") as file:
        records = list(_records(file.fileno(), queue))
    if records:
        with open_log(log) as out:
            _lock(out.fileno())
            rest = records[_already_there(out.fileno(), queue, records) :]
            if rest:
                out.seek(0, os.SEEK_END)
                out.write(b"".join([b"\n", *rest]))
    return len(records)


def append(log: Path, lines: bytes) -> None:
    """Writes lines of ours at the end of the log, between those of processes that still write. `OSError`."""
    with open_log(log) as out:
        _lock(out.fileno())
        out.seek(0, os.SEEK_END)
        out.write(b"\n" + lines)


def open_log(log: Path) -> BinaryIO:
    """The log, at its end; not what somebody has put there as a link meanwhile."""
    file = os.fdopen(os.open(log, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC), "r+b")
    file.seek(0, os.SEEK_END)
    return file


def _records(file: int, queue: Queue) -> Iterator[bytes]:
    """Those that are complete; of one that was being copied nothing is of use."""
    at = queue.tail
    while at < queue.head:
        length, complete, _ = ENTRY.unpack(_ring(file, queue.capacity, at, ENTRY.size))
        if complete:
            yield _ring(file, queue.capacity, at + ENTRY.size, length)
        at += ENTRY.size + -(-length // ENTRY.size) * ENTRY.size


def _ring(file: int, capacity: int, at: int, length: int) -> bytes:
    begin = at % capacity
    first = min(length, capacity - begin)
    data = os.pread(file, first, DATA_AT + begin)
    return data + os.pread(file, length - first, DATA_AT) if length > first else data


def _lock(descriptor: int) -> None:
    """As the writers of the log do; one that was stopped while it had the lock is not waited for."""
    end = time.monotonic() + LOCK_SECONDS
    while time.monotonic() < end:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                return
            time.sleep(0.01)
        else:
            return


def _already_there(log: int, queue: Queue, records: list[bytes]) -> int:
    """How many of the records the batch in hand has brought into the log; what is there of the next one is
    blotted out."""
    if queue.batch_at == NO_BATCH or queue.batch_tail != queue.tail:
        return 0
    at = queue.batch_at + 1
    for number, record in enumerate(records):
        found = os.pread(log, len(record), at)
        if found != record:
            pairs = enumerate(zip(found, record, strict=False))
            there = next((n for n, (one, other) in pairs if one != other), len(found))
            if there and _is_ours(log, at, record):
                os.pwrite(log, b"\n" * there, at)
            return number
        at += len(record)
    return len(records)


def _is_ours(log: int, at: int, record: bytes) -> bool:
    """Whether what is there is a cut record of the batch, and not the begin of one that another process wrote
    behind it: headers begin alike."""
    header = record[: record.index(b"\n") + 1]
    line, newline, _ = os.pread(log, len(header), at).partition(b"\n")
    return line + newline == header or header.startswith(line)

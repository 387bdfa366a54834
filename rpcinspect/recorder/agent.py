"""Recording by the agent: each process of a command writes its own messages into one log
(startup/rpcinspect_agent.py), and what is still in the queue of one that was killed is written in the end.

In: the log, the command, what is recorded of tensors. Out: a `RecordingResult`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import struct
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import permutations
from pathlib import Path
from typing import Annotated, BinaryIO

from msgspec import Meta, Struct, ValidationError, convert

from rpcinspect.errors import RecordError
from rpcinspect.files.output import open_growing
from rpcinspect.recorder.library import QUEUE_BYTES, build_agent, interpreter_of
from rpcinspect.recorder.processes import Process, ProcessNote, is_running
from rpcinspect.recorder.record import Mechanism, RecordingResult, counted
from rpcinspect.rpclog.header import MAX_NAME, LoggedLoss
from rpcinspect.rpclog.write import FIRST_LINE, loss_line, process_line, span_line
from rpcinspect.session.process_end import ProcessEnd

SHARED_MEMORY = Path("/dev/shm")
QUEUE_ROOM = 16 * QUEUE_BYTES
"""So much must be free in shared memory; else queues are files on a disk."""
QUEUE = ".queue"


class AgentMechanism(Mechanism):
    """Messages, from within the processes, which write them by themselves."""

    via = "agent"

    def __init__(
        self,
        file: Path,
        command: Sequence[str],
        *,
        tensors: str = "all",
        when_full: str = "wait",
        tell: Callable[[str], object] = lambda line: None,
    ) -> None:
        """Builds the library, if that was not done before; `RecordError`: it can't be."""
        self._file = file
        self._settings = build_agent(interpreter_of(command), tell).settings(file, tensors, when_full)
        self._queues: Path | None = None
        self._begin_ns = 0

    def settings(self) -> Mapping[str, object]:
        """Makes the folder for queues; returns the settings that startup/rpcinspect_agent.py reads."""
        try:
            self._queues = Path(tempfile.mkdtemp(prefix="rpcinspect-", dir=_place()))
        except OSError as error:
            raise RecordError(f"{error.filename}: can't be written: {error.strerror}") from error
        return {
            **self._settings,
            "queues": str(self._queues),
            "failed_mark": str(self._mark),
            "launcher": os.getpid(),
        }

    @property
    def _mark(self) -> Path:
        """Returns the file in which a process notes why it can't go on writing."""
        assert self._queues is not None
        return self._queues / "failed"

    def begin(self, descriptors: Sequence[int]) -> None:
        """The log begins; nothing runs beside the command."""
        self._begin_ns = time.time_ns()
        with os.fdopen(open_growing(self._file), "wb", buffering=0) as file:
            try:
                file.write(FIRST_LINE)
            except OSError as error:
                raise RecordError(f"{self._file}: can't be written: {error.strerror}") from error

    def finish(self, notes: Sequence[ProcessNote], ends: Mapping[Process, ProcessEnd]) -> RecordingResult:
        """What is left in queues of processes that are gone goes into the log, and how they ended."""
        assert self._queues is not None
        queues: list[MessageQueue] = []
        problem = None
        for path in sorted(self._queues.glob(f"*{QUEUE}")):
            is_left = not is_running(_pid(path))
            queue = read_queue(path)
            if queue is None:
                continue
            queues.append(queue)
            if is_left:
                try:
                    recover(queue, path, self._file.resolve())
                except OSError as error:
                    problem = f"{self._file}: {error.strerror}"
                except DamagedQueueError:
                    problem = f"process {_pid(path)} has written over what it held for the log"
        dropped = sum(queue.dropped for queue in queues)
        ended_early = _text(self._mark) or problem
        lines = [] if ended_early is None else list(_losses(notes))
        lines += _processes(notes, ends)
        if not dropped and ended_early is None and all(note.recorded for note in notes):
            lines.append(span_line(self._begin_ns, time.time_ns()))  # from when to when the log tells of all
        if lines:
            with contextlib.suppress(OSError):
                append(self._file.resolve(), b"".join(lines))
        return RecordingResult(
            file=self._file,
            bytes=self._file.stat().st_size if self._file.exists() else 0,
            messages=counted(sum(queue.messages for queue in queues), "message"),
            dropped=dropped,
            ended_early=ended_early,
        )

    def close(self) -> None:
        """The queues go; a process that still runs keeps its own until its end."""
        if self._queues is not None:
            shutil.rmtree(self._queues, ignore_errors=True)


def _losses(notes: Sequence[ProcessNote]) -> Iterator[bytes]:
    """What workers sent after the log had ended is missing in it; which of them did nobody has counted."""
    named = [note for note in notes if note.name and note.job is not None]
    for one, other in permutations(named, 2):
        if one.recorded and one.job == other.job and one.name != other.name:
            src, dst = str(one.name)[:MAX_NAME], str(other.name)[:MAX_NAME]
            yield loss_line(LoggedLoss(src=src, dst=dst, job=str(one.job)))
            yield loss_line(LoggedLoss(src=dst, dst=src, job=str(one.job), request=False))


def _processes(notes: Sequence[ProcessNote], ends: Mapping[Process, ProcessEnd]) -> Iterator[bytes]:
    """How the process of each worker in the log ended."""
    for note in notes:
        ended = None if note.started is None else ends.get((note.pid, note.started))
        if ended is not None and note.recorded and note.name and note.job is not None:
            yield process_line(ended.logged(note.name[:MAX_NAME], note.id, note.job))


def _place() -> str | None:
    """Shared memory that is no disk, where there is enough of it."""
    try:
        room = os.statvfs(SHARED_MEMORY)
    except OSError:
        return None
    enough = room.f_bavail * room.f_frsize >= QUEUE_ROOM
    return str(SHARED_MEMORY) if enough and os.access(SHARED_MEMORY, os.W_OK) else None


def _pid(queue: Path) -> int:
    """Returns the process of a queue, from the file's name as startup/rpcinspect_agent.py gives it."""
    return int(queue.name.partition("-")[0])


def _text(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip() or None
    except OSError:
        return None


MAGIC = b"rpcqueu2"
FIELDS = struct.Struct("=8s10Q")
DATA_AT = 4096
NO_BATCH = (1 << 64) - 1
LOCK_SECONDS = 5.0


class DamagedQueueError(Exception):
    """What a process had not written yet is not what its recorder had put there."""


class MessageQueue(Struct, frozen=True):
    """What stands at the begin of a queue, of the time being.

    `native/queue.cpp` fills it, in memory that the process shares with this file. Numbers are native. At 0:

        magic       8 bytes, `rpcqueu2`; anything else was never a queue
        capacity    bytes of the ring, which begins at 4096
        head        bytes ever reserved in the ring; a position is taken modulo the capacity
        tail        bytes ever written into the log
        batch_tail, batch_at
                    the tail when a batch was begun, and where its first record begins in the log; 2^64-1:
                    none is in hand
        messages, bytes, dropped, failed
                    what was counted
        over        not 0: recording ended early, what is left is not for the log

    The ring is a row of records as they are in the log; it goes on at the ring's begin where it reaches the
    end. The first byte of a record is 0 as long as it is being copied; the rest of its header line is there.
    A batch is newlines, if any, and then records from the tail on.
    """

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


def read_queue(path: Path) -> MessageQueue | None:
    """Reads a process's queue file; None if the file is no queue."""
    with path.open("rb") as file:
        data = file.read(DATA_AT)
    if len(data) < DATA_AT:
        return None
    magic, *numbers = FIELDS.unpack_from(data)
    queue = MessageQueue(*numbers)
    is_one = magic == MAGIC and queue.capacity and 0 <= queue.head - queue.tail <= queue.capacity
    return queue if is_one else None


def recover(queue: MessageQueue, path: Path, log: Path) -> int:
    """Writes what is left in a queue, whose file is at `path`; how many records that was. `OSError` where the
    log can't be written, `DamagedQueueError` behind records that the process has damaged.

    Each record is there once: of a batch that was cut in the log the first records are there, of the one
    behind them newlines remain, which a reader passes over, and it is written again.
    """
    if queue.over:
        return 0
    records: list[bytes] = []
    damage = None
    with path.open("rb") as file:
        try:
            records.extend(_records(file.fileno(), queue))
        except DamagedQueueError as error:
            damage = error
    if records:
        with open_log(log) as out:
            _lock(out.fileno())
            rest = records[_already_there(out.fileno(), queue, records) :]
            if rest:
                out.seek(0, os.SEEK_END)
                out.write(b"".join([b"\n", *rest]))
    if damage is not None:
        raise damage
    return len(records)


def append(log: Path, lines: bytes) -> None:
    """Writes lines of ours at the end of the log, between those of processes that still write. `OSError`:
    none of them is there."""
    with open_log(log) as out:
        _lock(out.fileno())
        end, rest = os.lseek(out.fileno(), 0, os.SEEK_END), b"\n" + lines
        try:
            while rest:
                rest = rest[os.write(out.fileno(), rest) :]
        except OSError:
            os.ftruncate(out.fileno(), end)
            raise


def open_log(log: Path) -> BinaryIO:
    """Opens the log at its end; refuses a link that somebody has put there meanwhile."""
    file = os.fdopen(os.open(log, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC), "r+b")
    file.seek(0, os.SEEK_END)
    return file


class _Record(Struct):
    """What is to be known of a header line."""

    bytes: Annotated[int, Meta(ge=0)] = 0


def _records(file: int, queue: MessageQueue) -> Iterator[bytes]:
    """Returns the complete records; one that was being copied is of no use. `DamagedQueueError`: the rest is
    none."""
    data = _ring(file, queue.capacity, queue.tail, queue.head - queue.tail)
    at = 0
    while at < len(data):
        try:
            body = data.index(b"\n", at) + 1
            size = convert(json.loads(b"{" + data[at + 1 : body]), _Record).bytes
        except (ValueError, ValidationError) as error:
            raise DamagedQueueError from error
        end = body + size + (size != 0)
        if end > len(data):
            raise DamagedQueueError
        if data[at]:
            yield data[at:end]
        at = end


def _ring(file: int, capacity: int, at: int, length: int) -> bytes:
    begin = at % capacity
    first = min(length, capacity - begin)
    data = os.pread(file, first, DATA_AT + begin)
    return data + os.pread(file, length - first, DATA_AT) if length > first else data


def _lock(descriptor: int) -> None:
    """Locks the log as its writers do; does not wait for one that was stopped while it had the lock."""
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


def _already_there(log: int, queue: MessageQueue, records: list[bytes]) -> int:
    """How many of the records the batch in hand has brought into the log; what is there of the next one is
    blotted out."""
    if queue.batch_at == NO_BATCH or queue.batch_tail != queue.tail:
        return 0
    at = queue.batch_at
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

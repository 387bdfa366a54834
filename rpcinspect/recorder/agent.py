"""Recording by the agent: each process of a command writes its own messages into one log
(startup/rpcinspect_agent.py), and what is still in the queue of one that was killed is written in the end.

In: the log, the command, what is recorded of tensors. Out: a `Recorded`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rpcinspect.errors import RecordError
from rpcinspect.recorder.library import Library, build_agent, interpreter_of
from rpcinspect.recorder.mechanism import Mechanism, Recorded
from rpcinspect.recorder.notes import Note, is_running
from rpcinspect.recorder.queue_file import Left, open_log, read_counts, recover
from rpcinspect.recorder.recording_file import begin_recording
from rpcinspect.trace.words import counted

FIRST_LINE = b'{"rpclog":1}\n'
QUEUE_BYTES = 64 << 20
SHARED_MEMORY = Path("/dev/shm")
ROOM = 16
"""Queues for which there must be room in shared memory; else they are files on a disk."""
QUEUE = ".queue"


class Agent(Mechanism):
    """Messages, from within the processes."""

    via = "agent"

    def __init__(
        self,
        file: Path,
        command: Sequence[str],
        *,
        tensors: str = "all",
        when_full: str = "wait",
        queue_bytes: int = QUEUE_BYTES,
        tell: Callable[[str], object] = lambda line: None,
    ) -> None:
        """Builds the library, if that was not done before; `RecordError`: it can't be."""
        self._file = file
        self._library: Library = build_agent(interpreter_of(command), tell)
        self._tensors = tensors
        self._when_full = when_full
        self._queue_bytes = queue_bytes
        self._queues: Path | None = None
        self._begin_ns = 0

    def prepare(self) -> None:
        """A folder for queues."""
        try:
            self._queues = Path(tempfile.mkdtemp(prefix="rpcinspect-", dir=_place(self._queue_bytes)))
        except OSError as error:
            raise RecordError(f"{error.filename}: can't be written: {error.strerror}") from error

    def settings(self) -> Mapping[str, object]:
        """See startup/rpcinspect_agent.py."""
        assert self._queues is not None
        return {
            "output": str(self._file.resolve()),
            "library": self._library.path,
            "torch": self._library.torch,
            "tensors": self._tensors,
            "when_full": self._when_full,
            "queue_bytes": self._queue_bytes,
            "queues": str(self._queues),
            "failed_mark": str(self._mark),
            "launcher": os.getpid(),
        }

    @property
    def _mark(self) -> Path:
        """Whoever can't go on writing says there why."""
        assert self._queues is not None
        return self._queues / "failed"

    def begin(self, descriptors: Sequence[int], notes: Path) -> None:
        """The log begins; nothing runs beside the command."""
        self._begin_ns = time.time_ns()
        with os.fdopen(begin_recording(self._file), "wb", buffering=0) as file:
            try:
                file.write(FIRST_LINE)
            except OSError as error:
                raise RecordError(f"{self._file}: can't be written: {error.strerror}") from error

    def finish(self, notes: Sequence[Note]) -> Recorded:
        """What is left in queues of processes that are gone goes into the log."""
        assert self._queues is not None
        lefts: list[Left] = []
        problem = None
        for queue in sorted(self._queues.glob(f"*{QUEUE}")):
            try:
                left = read_counts(queue) if is_running(_pid(queue)) else recover(queue, self._file.resolve())
            except OSError as error:
                problem = f"{self._file}: {error.strerror}"
                left = read_counts(queue)
            if left is not None:
                lefts.append(left)
        dropped = sum(left.dropped for left in lefts)
        ended_early = _text(self._mark) or problem
        if not dropped and ended_early is None and all(note.recorded for note in notes):
            self._write_span()
        return Recorded(
            file=self._file,
            bytes=self._file.stat().st_size if self._file.exists() else 0,
            messages=counted(sum(left.messages for left in lefts), "message"),
            dropped=dropped,
            ended_early=ended_early,
        )

    def _write_span(self) -> None:
        """From when to when the log tells of all."""
        with contextlib.suppress(OSError), open_log(self._file.resolve()) as file:
            file.write(b'\n{"rpc":"span","time_ns":%d,"end_ns":%d}\n' % (self._begin_ns, time.time_ns()))

    def close(self) -> None:
        """The queues go; a process that still runs keeps its own until its end."""
        if self._queues is not None:
            shutil.rmtree(self._queues, ignore_errors=True)


def _place(queue_bytes: int) -> str | None:
    """Shared memory that is no disk, where there is enough of it."""
    try:
        room = os.statvfs(SHARED_MEMORY)
    except OSError:
        return None
    enough = room.f_bavail * room.f_frsize >= ROOM * queue_bytes
    return str(SHARED_MEMORY) if enough and os.access(SHARED_MEMORY, os.W_OK) else None


def _pid(queue: Path) -> int:
    """Whose it is, as startup/rpcinspect_agent.py names it."""
    return int(queue.name.partition("-")[0])


def _text(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip() or None
    except OSError:
        return None

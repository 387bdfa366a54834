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
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from rpcinspect.errors import RecordError
from rpcinspect.files.output import open_growing
from rpcinspect.recorder.library import QUEUE_BYTES, build_agent, interpreter_of
from rpcinspect.recorder.notes import Note, is_running
from rpcinspect.recorder.queue_file import Queue, append, read_queue, recover
from rpcinspect.recorder.reaper import Process
from rpcinspect.recorder.record import Mechanism, Recorded
from rpcinspect.recorder.summary import counted
from rpcinspect.rpclog.header import MAX_NAME
from rpcinspect.rpclog.write import FIRST_LINE, process_line, span_line
from rpcinspect.session.process_end import ProcessEnd

SHARED_MEMORY = Path("/dev/shm")
ROOM = 16
"""Queues for which there must be room in shared memory; else they are files on a disk."""
QUEUE = ".queue"


class Agent(Mechanism):
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
        """See startup/rpcinspect_agent.py. There is a folder for queues then."""
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
        """Whoever can't go on writing says there why."""
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

    def finish(self, notes: Sequence[Note], ends: Mapping[Process, ProcessEnd]) -> Recorded:
        """What is left in queues of processes that are gone goes into the log, and how they ended."""
        assert self._queues is not None
        queues: list[Queue] = []
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
        dropped = sum(queue.dropped for queue in queues)
        ended_early = _text(self._mark) or problem
        lines = list(_processes(notes, ends))
        if not dropped and ended_early is None and all(note.recorded for note in notes):
            lines.append(span_line(self._begin_ns, time.time_ns()))  # from when to when the log tells of all
        if lines:
            with contextlib.suppress(OSError):
                append(self._file.resolve(), b"".join(lines))
        return Recorded(
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


def _processes(notes: Sequence[Note], ends: Mapping[Process, ProcessEnd]) -> Iterator[bytes]:
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
    enough = room.f_bavail * room.f_frsize >= ROOM * QUEUE_BYTES
    return str(SHARED_MEMORY) if enough and os.access(SHARED_MEMORY, os.W_OK) else None


def _pid(queue: Path) -> int:
    """Whose it is, as startup/rpcinspect_agent.py names it."""
    return int(queue.name.partition("-")[0])


def _text(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip() or None
    except OSError:
        return None

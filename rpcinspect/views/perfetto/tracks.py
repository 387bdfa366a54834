"""Where slices of a trace are drawn: a process for each worker, and threads on which slices never overlap.

In: workers as (job, label), and slices in the order in which they begin. Out: integer pids, and tids that no
two processes share. A thread is used again once its last slice has ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import TypeAlias

from rpcinspect.session.model import Session

RUN_PID = 1
"""Of the process for what belongs to no worker."""

Worker: TypeAlias = tuple[int, str]
"""The job, and the label that messages have: names are unique in a job only."""


class Processes:
    """The pids of workers; whoever is named first gets the lowest."""

    def __init__(self, session: Session) -> None:
        self._pids: dict[Worker, int] = {}
        for worker in session.workers:
            if worker.name is not None:
                self.pid((worker.job, worker.name))
        self._several = len(set(session.jobs)) > 1

    def pid(self, worker: Worker) -> int:
        """The pid of a worker."""
        return self._pids.setdefault(worker, RUN_PID + 1 + len(self._pids))

    def names(self) -> Iterator[tuple[int, str]]:
        """Each pid with what it is called; of workers the job is told where there are several."""
        yield RUN_PID, "the run"
        for (job, label), pid in self._pids.items():
            yield pid, f"{label} (job {job})" if self._several else label


class Threads:
    """The tids of one kind of thread, given to slices as they begin."""

    def __init__(self, first: int) -> None:
        self._next = first
        self._running: dict[int, list[tuple[int, int, int]]] = {}
        """Of each process (end, number, tid) of its threads in use, the earliest end first."""
        self._free: dict[int, list[tuple[int, int]]] = {}
        """(number, tid) of the others."""
        self._threads: list[tuple[int, int, int]] = []

    def tid(self, pid: int, begin_ns: int, end_ns: int) -> int:
        """A thread of a process on which nothing is drawn between two times; begins must not descend.

        A slice that begins where another ends gets another thread: readers that compute with floats may see
        the two overlap.
        """
        running = self._running.setdefault(pid, [])
        free = self._free.setdefault(pid, [])
        while running and running[0][0] < begin_ns:
            _, number, tid = heappop(running)
            heappush(free, (number, tid))
        if free:
            number, tid = heappop(free)
        else:
            number, tid = len(running), self._next
            self._next += 1
            self._threads.append((pid, tid, number))
        heappush(running, (end_ns, number, tid))
        return tid

    def all(self) -> Iterator[tuple[int, int, int]]:
        """(pid, tid, number within the process from 0) of every thread."""
        yield from self._threads

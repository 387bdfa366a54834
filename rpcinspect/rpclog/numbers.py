"""Numbers of jobs where several logs are read as one session: those of logs that were made of captures.

In: the workers at the beginning of each log. Out: the number that a job of that log has in the session. A log
that was made of a capture counts the jobs in it, so that the same number may be another job in another log.
It is the same one unless the two logs contradict each other: an id with two names, a name with two ids, or
with addresses of which none is the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from rpcinspect.rpclog.header import Job, LoggedWorker

OTHERS = 1 << 62
"""From here on count jobs whose number another log has given to another one."""


class JobNumbers:
    """Jobs of all logs; a name of a job, which says who its workers are, is its own in every log."""

    def __init__(self) -> None:
        self._told: dict[int, _Told] = {}
        self._same: dict[int, list[int]] = defaultdict(list)
        """Jobs that logs give this number."""
        self._here: dict[tuple[int, int], int] = {}
        """(capture, number there) → number in the session, if that is another."""
        self._count = 0

    def meet(self, capture: int, workers: Sequence[LoggedWorker]) -> None:
        """Takes what a log tells of its workers before it tells anything else."""
        of_job: dict[int, list[LoggedWorker]] = defaultdict(list)
        for worker in workers:
            if isinstance(worker.job, int):
                of_job[worker.job].append(worker)
        for job, its in of_job.items():
            found = next((one for one in self._same[job] if self._told[one].fits(its)), None)
            if found is None:
                found = job
                if self._same[job]:
                    found = OTHERS + self._count
                    self._count += 1
                self._same[job].append(found)
                self._told[found] = _Told()
            self._told[found].add(its)
            if found != job:
                self._here[capture, job] = found

    def of(self, capture: int, job: Job) -> Job:
        """The number in the session of a job of that log."""
        return self._here.get((capture, job), job) if self._here and isinstance(job, int) else job


class _Told:
    """What logs have said of the workers of a job, by group."""

    def __init__(self) -> None:
        self._names: dict[tuple[int, int], str] = {}
        self._ids: dict[tuple[int, str], int] = {}
        self._addresses: dict[tuple[int, str], set[str]] = defaultdict(set)

    def fits(self, workers: Iterable[LoggedWorker]) -> bool:
        for worker in workers:
            if worker.name is None:
                continue
            key = worker.group, worker.name
            if worker.id is not None:
                if self._ids.get(key, worker.id) != worker.id:
                    return False
                if self._names.get((worker.group, worker.id), worker.name) != worker.name:
                    return False
            known = self._addresses.get(key)
            if known and worker.addresses and known.isdisjoint(worker.addresses):
                return False
        return True

    def add(self, workers: Iterable[LoggedWorker]) -> None:
        for worker in workers:
            if worker.name is None:
                continue
            if worker.id is not None:
                self._ids.setdefault((worker.group, worker.name), worker.id)
                self._names.setdefault((worker.group, worker.id), worker.name)
            self._addresses[worker.group, worker.name].update(worker.addresses)

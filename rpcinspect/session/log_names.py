"""Who is who in a log, which names both ends of every message itself.

In: what stands for pipes, the workers and processes that the log tells of, and what messages tell of ids.
Out: a `Roster`, as `names.py` makes it for packets.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from rpcinspect.rpclog.header import Job, LoggedProcess, LoggedWorker
from rpcinspect.session.ended import Ended, agreed
from rpcinspect.session.model import Worker
from rpcinspect.session.names import ID_LABEL, Roster, is_address, is_name, names_by_id
from rpcinspect.session.witness import Witness
from rpcinspect.tensorpipe.records import Pipe


def call_log(
    pipes: Sequence[Pipe],
    jobs: Sequence[Job],
    told: Iterable[LoggedWorker],
    witness: Witness,
    processes: Iterable[LoggedProcess] = (),
) -> Roster:
    """`jobs`: of each pipe, as the log calls it; here they are numbered, numbers before names. `processes`:
    how those of workers ended.
    """
    told = tuple(told)
    known: set[Job] = {*jobs, *(worker.job for worker in told)}
    numbers = {job: number for number, job in enumerate(sorted(known, key=_job_order))}
    job_of = [numbers[job] for job in jobs]
    ids: list[dict[str, set[int]]] = [defaultdict(set) for _ in range(max(len(numbers), 1))]
    for worker in told:
        if worker.name is not None and worker.id is not None:
            ids[numbers[worker.job]][worker.name].add(worker.id)
    clients = tuple([pipe.client_name or "" for pipe in pipes])
    servers = tuple([pipe.server_name or "" for pipe in pipes])
    for pipe, job in zip(pipes, job_of, strict=True):
        for label, client in ((clients[pipe.number], True), (servers[pipe.number], False)):
            said = witness.ends.get((pipe.number, client))
            if said is not None and len(said.ids) == 1 and is_name(label):
                ids[job][label] |= said.ids
    names = [names_by_id(its) for its in ids]
    workers: dict[Worker, None] = {}
    for worker in told:
        workers[_worker(worker, numbers[worker.job])] = None
    there = {(worker.job, worker.name) for worker in workers}
    there |= {(worker.job, address) for worker in workers for address in worker.addresses}
    there |= {(w.job, f"worker:{w.id}") for w in workers if w.name is None}
    for labels in (clients, servers):
        for label, job in zip(labels, job_of, strict=True):
            if (job, label) not in there and not is_address(label):
                there.add((job, label))
                workers[_named(label, job, ids[job], names[job])] = None
    far = 1 << 32
    ends: dict[tuple[int | None, str], list[Ended]] = defaultdict(list)
    for process in processes:
        ends[numbers.get(process.job), process.name].append(Ended.of(process))
    ordered = sorted(
        [replace(w, ended=agreed(ends.get((w.job, w.name or ""), []))) for w in workers],
        key=lambda w: (w.job, w.group, w.id if w.id is not None else far, w.name or "", w.addresses),
    )
    return Roster(clients, servers, tuple(ordered), tuple(job_of), tuple(names))


def _job_order(job: Job) -> tuple[bool, int, str]:
    return (False, job, "") if isinstance(job, int) else (True, 0, job)


def _worker(told: LoggedWorker, job: int) -> Worker:
    return Worker(
        name=told.name,
        id=told.id,
        group=told.group,
        addresses=told.addresses,
        elsewhere=told.elsewhere,
        job=job,
    )


def _named(label: str, job: int, ids: dict[str, set[int]], names: dict[int, str]) -> Worker:
    """A worker that only messages name."""
    unnamed = ID_LABEL.fullmatch(label)
    if unnamed is not None:
        return Worker(name=None, id=int(unnamed[1]), group=0, addresses=(), job=job)
    its = ids.get(label, set())
    worker_id = next(iter(its)) if len(its) == 1 else None
    sure = worker_id is not None and names.get(worker_id) == label
    return Worker(name=label, id=worker_id if sure else None, group=0, addresses=(), job=job)

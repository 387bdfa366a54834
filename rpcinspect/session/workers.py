"""Who is at the ends of a pipe: names and ids from what the capture says, never from what is likely.

In: the store's directory, context names, and every message that tells its sender's or receiver's id. Out: a
label for each end of each pipe: the worker's name, else `worker:ID`, else `ip:port`.

Facts that tie a name to an id or an address: the store's `names/<id>` and `addrs/<name>`, a pipe's context
name (of its client), the ends of the agents' own calls, `from_worker_id` in an autograd envelope (of the
sender), the owner's id in an RRef fetch (of the receiver), the creator of an edge's autograd message id (of
who receives its gradient), the creator of a fork that a child accepts (of the receiver), and
`On WorkerInfo(id=…, name=…)` in a remote error (of the responder). Who sends a gradient has received the
forward message of its edge, and who accepts or deletes a fork the message that brought it.

A name holds for a time: `store_jobs.py` and `pipe_jobs.py` say which job a pipe is of, and which of those
that listened at its server's address it met. Nothing that is known of one job tells anything of another.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import asdict, replace

from rpcinspect.late_pattern import late
from rpcinspect.session.identity import End, EndKey, IdentityEvidence, WorkerKey
from rpcinspect.session.model import Arrival, Worker, WorkerIdentities
from rpcinspect.session.pipe_jobs import Job, ListenerKey, place
from rpcinspect.session.process_end import ProcessEnd, agreed
from rpcinspect.session.store_jobs import split_jobs
from rpcinspect.store.directory import StoreEntry, worker_directory
from rpcinspect.tensorpipe.records import Pipe

if TYPE_CHECKING:
    from rpcinspect.rpclog.header import LoggedProcess, LoggedWorker, LogJob


def with_names(found: WorkerIdentities, given: Mapping[int, str]) -> WorkerIdentities:
    """Returns identities in which workers that have an id but no name are called as `given` says; a name that
    another worker of the job has is left to that."""
    taken = {(worker.job, worker.name) for worker in found.workers}
    workers = []
    renamed: dict[WorkerKey, str] = {}
    for worker in found.workers:
        name = given.get(worker.id) if worker.name is None and worker.id is not None else None
        if name is not None and (worker.job, name) not in taken:
            renamed[worker.job, f"worker:{worker.id}"] = name
            worker = replace(worker, name=name)
        workers.append(worker)
    if not renamed:
        return found
    ids = [dict(names) for names in found.names_of_ids]
    for (job, label), name in renamed.items():
        ids[job][int(label.partition(":")[2])] = name
    clients, servers = (
        tuple([renamed.get((job, label), label) for job, label in zip(found.jobs, labels, strict=True)])
        for labels in (found.clients, found.servers)
    )
    ordered = tuple(sorted(workers, key=_place))
    return replace(found, clients=clients, servers=servers, workers=ordered, names_of_ids=tuple(ids))


def unnamed(pipes: Sequence[Pipe]) -> WorkerIdentities:
    """Returns identities for pipes alone, where nothing else names workers."""
    return WorkerIdentities(
        tuple([pipe.client_name or str(pipe.client) for pipe in pipes]),
        tuple([pipe.server_name or str(pipe.server) for pipe in pipes]),
        (),
        (0,) * len(pipes),
        ({},),
    )


def resolve_workers(
    pipes: Sequence[Pipe], entries: Sequence[StoreEntry], evidence: IdentityEvidence
) -> WorkerIdentities:
    """Puts every fact together, job by job. Where two facts contradict each other, the end keeps its weaker
    label.
    """
    placed = place(pipes, split_jobs(entries), evidence)
    clients, servers = [""] * len(pipes), [""] * len(pipes)
    workers: list[Worker] = []
    names: list[dict[int, str]] = []
    for number, job in enumerate(placed.jobs):
        its = [pipes[at] for at in job.pipes]
        found = _call_job(number, job, its, [placed.listener_of[at] for at in job.pipes], evidence)
        for at, client, server in zip(job.pipes, found.clients, found.servers, strict=True):
            clients[at], servers[at] = client, server
        workers += found.workers
        names += found.names_of_ids
    return WorkerIdentities(
        tuple(clients), tuple(servers), tuple(workers), placed.job_of, tuple(names), placed.unsure
    )


def _call_job(
    number: int,
    job: Job,
    pipes: Sequence[Pipe],
    listener_of: Sequence[ListenerKey],
    evidence: IdentityEvidence,
) -> WorkerIdentities:
    directory = worker_directory(job.store.entries if job.store is not None else ())
    elsewhere: dict[tuple[int, str], str] = {}
    for worker, address in directory.addresses.items():
        if not is_address(address.rpartition("://")[2]):
            elsewhere[worker] = address  # the shm transport listens at a name, which no network knows
    listed: dict[tuple[int, str], set[int]] = defaultdict(set)
    for (group, worker_id), name in directory.names.items():
        listed[group, name].add(worker_id)
    for group, members in directory.members.items():
        for name, worker_id in members:
            listed[group, name].add(worker_id)
    ids: dict[str, set[int]] = defaultdict(set)
    for (_, name), its_ids in listed.items():
        ids[name] |= its_ids

    # An end is the worker that listens at an address, or the one that calls itself by a context name.
    listeners: dict[ListenerKey, End] = defaultdict(End)
    clients: list[End] = []
    for pipe, listener in zip(pipes, listener_of, strict=True):
        clients.append(evidence.of(pipe, True))
        said = evidence.of(pipe, False)
        listeners[listener].ids |= said.ids
        if listener not in job.published:
            listeners[listener].names |= said.names
    for listener, end in listeners.items():
        end.names |= {name for _, name in job.published.get(listener, ())}
    _join(pipes, listener_of, clients, listeners, evidence)
    for end in (*clients, *listeners.values()):
        if len(end.names) == 1 and len(end.ids) == 1:
            ids[next(iter(end.names))] |= end.ids

    names_of_ids = names_by_id(ids)

    def label(end: End, address: str) -> str:
        if len(end.names) == 1:
            return next(iter(end.names))
        if len(end.ids) == 1:
            worker_id = next(iter(end.ids))
            return names_of_ids.get(worker_id, f"worker:{worker_id}")
        return address

    client_labels = tuple(label(end, str(pipe.client)) for end, pipe in zip(clients, pipes, strict=True))
    server_labels = tuple(label(listeners[listener], listener[0]) for listener in listener_of)
    sure = frozenset(names_of_ids.values())
    only = {name: next(iter(its)) for name, its in ids.items() if len(its) == 1 and name in sure}
    servers = dict(zip(listener_of, server_labels, strict=True))
    arrivals = job.store.arrivals() if job.store is not None else {}
    workers = _workers(number, client_labels, servers, job.published, elsewhere, listed, only, arrivals)
    return WorkerIdentities(client_labels, server_labels, workers, (number,) * len(pipes), (names_of_ids,))


def _join(
    pipes: Sequence[Pipe],
    listener_of: Sequence[ListenerKey],
    clients: Sequence[End],
    listeners: Mapping[ListenerKey, End],
    evidence: IdentityEvidence,
) -> None:
    """Gives ends of which nothing is known the ids and names of the worker that received what they send
    gradients for, or the forks that they tell of."""
    end_of: dict[EndKey, End] = {}
    for pipe, listener, client in zip(pipes, listener_of, clients, strict=True):
        end_of[pipe.number, True], end_of[pipe.number, False] = client, listeners[listener]
    for key, end in end_of.items():
        if end.names or end.ids:
            continue
        others = [end_of[other] for other in evidence.receivers.get(key, ()) if other in end_of]
        if others and all(other == others[0] for other in others):
            end.add(others[0])


def _workers(
    job: int,
    clients: Sequence[str],
    servers: Mapping[ListenerKey, str],
    published: Mapping[ListenerKey, Mapping[tuple[int, str], None]],
    elsewhere: dict[tuple[int, str], str],
    listed: dict[tuple[int, str], set[int]],
    only: dict[str, int],
    arrivals: Mapping[tuple[int, str], Arrival],
) -> tuple[Worker, ...]:
    """One record per worker and group, those that the store names first, by id."""
    addresses: dict[tuple[int, str], dict[str, None]] = defaultdict(dict)
    for (address, _), its_workers in published.items():
        for group, name in its_workers:
            its = addresses[group, name]
            if (group, name) not in elsewhere:
                its[address] = None
    known = {name for _, name in addresses}
    for listener, server in servers.items():
        group = next((group for group, name in published.get(listener, ()) if name == server), 0)
        addresses[group, server][listener[0]] = None
    for client in clients:
        if client not in known and (0, client) not in addresses:
            addresses[0, client] = {}
    workers = []
    for (group, label), its in addresses.items():
        its_ids = listed.get((group, label), set())
        shown: str | None = label
        worker_id = next(iter(its_ids)) if len(its_ids) == 1 else None if its_ids else only.get(label)
        unnamed = ID_LABEL.fullmatch(label) if label not in known else None
        if unnamed is not None:
            shown, worker_id = None, int(unnamed[1])
        elif label in its or is_address(label):
            shown = None
        if shown is None and worker_id is None and not its:
            continue  # a client of which nothing is known: its pipe has a label for it
        hidden = elsewhere.get((group, label))
        workers.append(
            Worker(
                name=shown,
                id=worker_id,
                group=group,
                addresses=tuple(its),
                elsewhere=() if hidden is None else (hidden,),
                job=job,
                arrival=arrivals.get((group, label)),
            )
        )
    return tuple(sorted(workers, key=_place))


FAR = 1 << 32


def _place(worker: Worker) -> tuple[int, int, int, str]:
    """Where a worker stands among all: by job, group, id and name."""
    return worker.job, worker.group, FAR if worker.id is None else worker.id, worker.name or ""


def names_by_id(ids: Mapping[str, Iterable[int]]) -> dict[int, str]:
    """The name of each id that one worker only has; `ids` are those of each name."""
    names: dict[int, set[str]] = defaultdict(set)
    for name, its in ids.items():
        for worker_id in its:
            names[worker_id].add(name)
    return {worker_id: next(iter(found)) for worker_id, found in names.items() if len(found) == 1}


ID_LABEL = late(r"worker:(-?\d{1,18})", re.ASCII)


def is_name(label: str) -> bool:
    """Whether a label is a worker's name; not its id or an address."""
    return not is_address(label) and ID_LABEL.fullmatch(label) is None


def is_address(label: str) -> bool:
    """Returns whether a label is the address of a worker without a known name."""
    host, colon, port = label.rpartition(":")
    return bool(colon) and port.isdigit() and (host.startswith("[") or host.replace(".", "").isdigit())


def resolve_logged_workers(
    pipes: Sequence[Pipe],
    jobs: Sequence[LogJob],
    told: Iterable[LoggedWorker],
    evidence: IdentityEvidence,
    processes: Iterable[LoggedProcess] = (),
) -> WorkerIdentities:
    """`jobs`: of each pipe, as the log calls it; here they are numbered, numbers before names. `processes`:
    how those of workers ended.
    """
    told = tuple(told)
    known: set[LogJob] = {*jobs, *(worker.job for worker in told)}
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
            said = evidence.ends.get((pipe.number, client))
            if said is not None and len(said.ids) == 1 and is_name(label):
                ids[job][label] |= said.ids
    names = [names_by_id(its) for its in ids]
    workers: dict[Worker, None] = {}
    for worker in told:
        workers[Worker(**{**asdict(worker), "job": numbers[worker.job]})] = None
    there = {(worker.job, worker.name) for worker in workers}
    there |= {(worker.job, address) for worker in workers for address in worker.addresses}
    there |= {(w.job, f"worker:{w.id}") for w in workers if w.name is None}
    for labels in (clients, servers):
        for label, job in zip(labels, job_of, strict=True):
            if (job, label) not in there and not is_address(label):
                there.add((job, label))
                workers[_named(label, job, ids[job], names[job])] = None
    ends: dict[tuple[int | None, str], list[ProcessEnd]] = defaultdict(list)
    for process in processes:
        ends[numbers.get(process.job), process.name].append(ProcessEnd.of(process))
    ended = [replace(w, ended=agreed(ends.get((w.job, w.name or ""), []))) for w in workers]
    ordered = sorted(ended, key=lambda worker: (_place(worker), worker.addresses))
    return WorkerIdentities(clients, servers, tuple(ordered), tuple(job_of), tuple(names))


def _job_order(job: LogJob) -> tuple[bool, int, str]:
    return (False, job, "") if isinstance(job, int) else (True, 0, job)


def _named(label: str, job: int, ids: dict[str, set[int]], names: dict[int, str]) -> Worker:
    """A worker that only messages name."""
    unnamed = ID_LABEL.fullmatch(label)
    if unnamed is not None:
        return Worker(name=None, id=int(unnamed[1]), group=0, addresses=(), job=job)
    its = ids.get(label, set())
    worker_id = next(iter(its)) if len(its) == 1 else None
    sure = worker_id is not None and names.get(worker_id) == label
    return Worker(name=label, id=worker_id if sure else None, group=0, addresses=(), job=job)

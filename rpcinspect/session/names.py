"""Who is at the ends of a pipe: names and ids from what the capture says, never from what is likely.

In: the store's directory, context names, and every message that tells its sender's or receiver's id. Out: a
label for each end of each pipe: the worker's name, else `worker:ID`, else `ip:port`.

Facts that tie a name to an id or an address: the store's `names/<id>` and `addrs/<name>`, a pipe's context
name (of its client), the ends of the agents' own calls, `from_worker_id` in an autograd envelope (of the
sender), the owner's id in an RRef fetch (of the receiver), and `On WorkerInfo(id=…, name=…)` in a remote
error (of the responder).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from msgspec import Struct, field

from rpcinspect.session.model import Worker
from rpcinspect.wire.records import Pipe
from rpcinspect.wire.store import StoreEntry, worker_directory


class End(Struct, eq=False):
    """What was said about one end of a pipe."""

    names: set[str] = field(default_factory=set)
    ids: set[int] = field(default_factory=set)


class Witness:
    """Collects what messages say of the ends of their pipes."""

    def __init__(self) -> None:
        self.ends: dict[tuple[int, bool], End] = defaultdict(End)
        """(pipe number, whether its client) → what was said."""
        self.facts = 0
        """Grows with every fact that was not known before."""

    def id(self, pipe: int, client: bool, worker_id: int) -> None:
        """An end's worker id."""
        ids = self.ends[pipe, client].ids
        if worker_id not in ids:
            ids.add(worker_id)
            self.facts += 1

    def name(self, pipe: int, client: bool, name: str) -> None:
        """An end's worker name."""
        names = self.ends[pipe, client].names
        if name not in names:
            names.add(name)
            self.facts += 1


class Roster(Struct, frozen=True):
    """The outcome: labels per pipe and the workers that are known."""

    clients: tuple[str, ...]
    servers: tuple[str, ...]
    workers: tuple[Worker, ...]
    jobs: tuple[int, ...]
    """Of each pipe: ids of workers, contexts and RRefs are unique in a job only."""
    names_of_ids: tuple[dict[int, str], ...]
    """Of each job."""

    def by_id(self, worker_id: int, job: int = 0) -> str:
        """Label of the worker with this id."""
        known = self.names_of_ids[job] if job < len(self.names_of_ids) else {}
        return known.get(worker_id, f"worker:{worker_id}")


def unnamed(pipes: Sequence[Pipe]) -> Roster:
    """Nobody is known but those that their pipes name."""
    return Roster(
        tuple([pipe.client_name or str(pipe.client) for pipe in pipes]),
        tuple([pipe.server_name or str(pipe.server) for pipe in pipes]),
        (),
        (0,) * len(pipes),
        ({},),
    )


def call_roll(pipes: Sequence[Pipe], entries: Sequence[StoreEntry], witness: Witness) -> Roster:
    """Puts every fact together, job by job. Where two facts contradict each other, the end keeps its weaker
    label.
    """
    jobs = split_jobs(entries)
    job_of = _jobs_of(pipes, jobs)
    members: dict[int, list[int]] = defaultdict(list)
    for at, job in enumerate(job_of):
        members[job].append(at)
    clients, servers = [""] * len(pipes), [""] * len(pipes)
    workers: list[Worker] = []
    names: list[dict[int, str]] = []
    for job in range(max(len(jobs), 1, max(job_of, default=0) + 1)):
        its = members.get(job, [])
        found = _call_job(job, [pipes[at] for at in its], jobs[job] if job < len(jobs) else [], witness)
        for at, client, server in zip(its, found.clients, found.servers, strict=True):
            clients[at], servers[at] = client, server
        workers += found.workers
        names += found.names_of_ids
    return Roster(tuple(clients), tuple(servers), tuple(workers), tuple(job_of), tuple(names))


def split_jobs(entries: Sequence[StoreEntry]) -> list[list[StoreEntry]]:
    """The entries of each job: a store is one job's until a name or an address in it changes."""
    jobs: list[list[StoreEntry]] = []
    current: dict[str, tuple[list[StoreEntry], dict[str, bytes]]] = {}
    for entry in sorted(entries, key=lambda e: e.time_ns):
        known = current.get(entry.server)
        fixed = _FIXED.search(entry.key) is not None
        if known is None or (fixed and known[1].get(entry.key, entry.value) != entry.value):
            known = current[entry.server] = ([], {})
            jobs.append(known[0])
        known[0].append(entry)
        if fixed:
            known[1][entry.key] = entry.value
    return jobs


def _jobs_of(pipes: Sequence[Pipe], jobs: Sequence[Sequence[StoreEntry]]) -> list[int]:
    """Of each pipe: the latest job before it was opened in whose store its listener is; one job of their own
    for pipes that are in none, if there are several.
    """
    if len(jobs) <= 1:
        return [0] * len(pipes)
    jobs_at: dict[str, dict[int, None]] = defaultdict(dict)
    for number, job in enumerate(jobs):
        for entry in job:
            _, mark, address = entry.value.decode("latin-1").lower().rpartition("://")
            if mark:
                jobs_at[address][number] = None
    found = []
    for pipe in pipes:
        began = [(jobs[number][0].time_ns, number) for number in jobs_at.get(str(pipe.listener), ())]
        before = [one for one in began if one[0] <= pipe.first_ns]
        found.append(max(before)[1] if before else min(began)[1] if began else len(jobs))
    return found


def _call_job(job: int, pipes: Sequence[Pipe], entries: Sequence[StoreEntry], witness: Witness) -> Roster:
    """The roster of one job."""
    directory = worker_directory(entries)
    names_at: dict[str, dict[tuple[int, str], None]] = defaultdict(dict)
    elsewhere: dict[tuple[int, str], str] = {}
    for (group, name), address in directory.addresses.items():
        place = address.rpartition("://")[2].lower()
        names_at[place][group, name] = None
        if not is_address(place):  # the shm transport listens at a name, which no network knows
            elsewhere[group, name] = address
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
    listeners: dict[str, End] = defaultdict(End)
    clients: list[End] = []
    for pipe in pipes:
        said = witness.ends.get((pipe.number, True), End())
        end = End(set(said.names), set(said.ids))
        if pipe.client_name:  # an empty one is no worker's: what wrote the capture did not know it
            end.names = {pipe.client_name}
        clients.append(end)
        address = str(pipe.listener)
        listener = listeners[address]
        said = witness.ends.get((pipe.number, False), End())
        if address not in names_at:
            listener.names |= said.names
        listener.ids |= said.ids
    for address, listener in listeners.items():
        listener.names |= {name for _, name in names_at.get(address, ())}
    for end in (*clients, *listeners.values()):
        if len(end.names) == 1 and len(end.ids) == 1:
            ids[next(iter(end.names))] |= end.ids

    names: dict[int, set[str]] = defaultdict(set)
    for name, its_ids in ids.items():
        for worker_id in its_ids:
            names[worker_id].add(name)
    names_of_ids = {worker_id: next(iter(its)) for worker_id, its in names.items() if len(its) == 1}

    def label(end: End, address: str) -> str:
        if len(end.names) == 1:
            return next(iter(end.names))
        if len(end.ids) == 1:
            worker_id = next(iter(end.ids))
            return names_of_ids.get(worker_id, f"worker:{worker_id}")
        return address

    client_labels = tuple(label(end, str(pipe.client)) for end, pipe in zip(clients, pipes, strict=True))
    server_labels = tuple(label(listeners[str(pipe.listener)], str(pipe.listener)) for pipe in pipes)
    sure = {next(iter(its)): worker_id for worker_id, its in names.items() if len(its) == 1}
    only = {name: next(iter(its)) for name, its in ids.items() if len(its) == 1 and name in sure}
    workers = _workers(job, pipes, client_labels, server_labels, names_at, elsewhere, listed, only)
    return Roster(client_labels, server_labels, workers, (job,) * len(pipes), (names_of_ids,))


def _workers(
    job: int,
    pipes: Sequence[Pipe],
    clients: Sequence[str],
    servers: Sequence[str],
    names_at: dict[str, dict[tuple[int, str], None]],
    elsewhere: dict[tuple[int, str], str],
    listed: dict[tuple[int, str], set[int]],
    only: dict[str, int],
) -> tuple[Worker, ...]:
    """One record per worker and group, those that the store names first, by id."""
    addresses: dict[tuple[int, str], dict[str, None]] = defaultdict(dict)
    for address, published in names_at.items():
        for group, name in published:
            its = addresses[group, name]
            if (group, name) not in elsewhere:
                its[address] = None
    known = {name for _, name in addresses}
    for address, server in dict.fromkeys(zip(map(_listener, pipes), servers, strict=True)):
        group = next((group for group, name in names_at.get(address, ()) if name == server), 0)
        addresses[group, server][address] = None
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
            )
        )
    far = 1 << 32
    return tuple(sorted(workers, key=lambda w: (w.group, w.id if w.id is not None else far, w.name or "")))


def _listener(pipe: Pipe) -> str:
    return str(pipe.listener)


_FIXED = re.compile(r"(^|/)(names/\d+|addrs/.+)$", re.ASCII)
"""Keys that a job sets once."""

ID_LABEL = re.compile(r"worker:(-?\d{1,18})", re.ASCII)


def is_address(label: str) -> bool:
    """Whether a label is what stands for a worker of which only the address is known."""
    host, colon, port = label.rpartition(":")
    return bool(colon) and port.isdigit() and (host.startswith("[") or host.replace(".", "").isdigit())

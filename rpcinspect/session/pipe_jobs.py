"""Which job a pipe is of, and which of those that listened at its server's address it met.

In: pipes with their times, the jobs of the stores, what messages tell of the ends of pipes. Out: `Placed`: a
job and a `ListenerKey` for each pipe.

A pipe is of a job if it was opened to an address that the job's store had told by then, while the job was
there: as long as any of its pipes was open, or it told its store something. Pipes that no store explains
(`_loose`) are of a job in whose store not all addresses were, if only one can be meant, else of one of their
own: that of others which were open at the time. Workers open one pipe to each other: where the same two names
come again, or two workers would have one id, they are of different jobs. In a group without a fixed size a
worker may leave and come back, as often as the store tells its address anew.

Where a pipe may be of several jobs, each of them is `unsure`: it may lack pipes, or have those of another.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct, field

from rpcinspect.session.identity import End, IdentityEvidence
from rpcinspect.session.store_jobs import Published, StoreJob
from rpcinspect.tensorpipe.records import Pipe

ListenerKey: TypeAlias = tuple[str, int]
"""(address, number): which of those that listened there. The number is the time from which on a store tells
it, -1 where nothing limits that, or at most `UNPUBLISHED`."""

Meeting: TypeAlias = tuple[str, ListenerKey, int]
"""(name of a client, whom it called, how often a worker of that name had come by then)."""

NEVER = 1 << 63
MANY_JOBS = 256
"""Of so many jobs that a pipe may be of more than one will do, and asking all of them takes long."""
UNPUBLISHED = -2
"""Number of the first listener at an address that no store tells, those after it count down from there."""


class Job(Struct, eq=False):
    """A job of the capture."""

    store: StoreJob | None = None
    pipes: list[int] = field(default_factory=list)
    """Positions among all pipes."""
    published: dict[ListenerKey, dict[tuple[int, str], None]] = field(default_factory=dict)
    """(group, name) of each listener that its store tells."""
    until_ns: int = -1
    """When the last of its pipes ended; `NEVER` while one may be open."""
    names: frozenset[str] = frozenset()
    """Names in the job's store."""
    all_seen: bool = False
    """Each of its workers listens where its store says."""
    places: frozenset[str] = frozenset()
    """Where its store says that its workers listen."""
    ports: frozenset[str] = frozenset()
    """Those of them; behind address translation they are all that stays."""
    met: Counter[Meeting] = field(default_factory=Counter)
    """Pipes by who opened them to whom: a worker opens one to another, in each of their groups."""
    comes_ns: dict[str, list[int]] = field(default_factory=dict)
    """Name → when a worker of that name told its address: more than once where it came back."""
    unsure: bool = False
    """Whether it is not known of all pipes that they are this job's, or another's."""

    def meeting(self, pipe: Pipe, listener: ListenerKey) -> Meeting:
        """Returns who meets whom by a pipe. A worker that came again to its group is another one."""
        client = pipe.client_name or ""
        return client, listener, bisect_right(self.comes_ns.get(client, ()), pipe.first_ns)

    def may_lack(self, pipe: Pipe) -> bool:
        """Returns whether a pipe may be of this job although its store does not tell whom it meets, since not
        all of what was told there was captured."""
        store = self.store
        if store is None or store.whole or self.until_ns < pipe.first_ns:
            return False
        return pipe.client_name is None or pipe.client_name in self.names

    def lives(self, time_ns: int) -> bool:
        """Returns whether the job existed at that time, as far as pipes and store show."""
        if self.until_ns >= time_ns:
            return True
        times = self.store.times if self.store is not None else ()
        at = bisect_right(times, time_ns)
        return at > 0 and times[at - 1] > self.until_ns

    def add(self, number: int, pipe: Pipe, listener: ListenerKey) -> None:
        """Adds a pipe of the job; for `met`, all listeners without a published address count as one."""
        self.pipes.append(number)
        self.until_ns = max(self.until_ns, NEVER if pipe.ended_ns is None else pipe.ended_ns)
        if pipe.client_name:
            self.met[self.meeting(pipe, listener)] += 1

    def begin_ns(self, pipes: Sequence[Pipe]) -> int:
        """When the first sign of it was seen."""
        begins = [pipes[number].first_ns for number in self.pipes]
        return min(begins if self.store is None else [*begins, self.store.begin_ns], default=0)


class Placed(Struct, frozen=True):
    """The job and the listener of each pipe."""

    jobs: tuple[Job, ...]
    """In the order of their beginnings."""
    job_of: tuple[int, ...]
    """Of each pipe."""
    listener_of: tuple[ListenerKey, ...]
    unsure: frozenset[int] = frozenset()
    """Jobs whose pipes may be those of another, or the other way round."""


def place(pipes: Sequence[Pipe], stores: Sequence[StoreJob], evidence: IdentityEvidence) -> Placed:
    """Assigns each pipe to a job."""
    jobs = [Job(store=store, names=frozenset(store.names())) for store in stores]
    listeners, own = _sweep(pipes, jobs, evidence)
    guests = [frozenset(name for name, _, _ in job.met) - job.names for job in jobs]
    if any(guests):  # a store that was not captured whole: these workers listen somewhere, too
        jobs = [Job(store=job.store, names=job.names | its) for job, its in zip(jobs, guests, strict=True)]
        listeners, own = _sweep(pipes, jobs, evidence)
    parted = [part for job in own for part in _parted(job, pipes, listeners, evidence)]
    found = sorted([*jobs, *parted], key=lambda job: job.begin_ns(pipes)) or [Job()]
    job_of = {number: at for at, job in enumerate(found) for number in job.pipes}
    every = range(len(pipes))
    return Placed(
        tuple(found),
        tuple([job_of[n] for n in every]),
        tuple([listeners[n] for n in every]),
        frozenset(at for at, job in enumerate(found) if job.unsure),
    )


def _sweep(
    pipes: Sequence[Pipe], jobs: Sequence[Job], evidence: IdentityEvidence
) -> tuple[dict[int, ListenerKey], list[Job]]:
    """Goes through pipes in the order of time, and gives each to one of these jobs, or to others, which it
    returns with the listener of each pipe.
    """
    listeners: dict[int, ListenerKey] = {}
    at_address = _owners(pipes, jobs)
    listening = {str(pipe.listener) for pipe in pipes}
    for job in jobs:
        job.all_seen &= not job.places.isdisjoint(listening)
    own, by_name = _Own(pipes), _Stores(jobs)
    partly = [job for job in jobs if job.store is not None and not job.store.whole]
    partly = partly if len(partly) <= MANY_JOBS else []
    for number in sorted(range(len(pipes)), key=lambda number: (pipes[number].first_ns, number)):
        pipe = pipes[number]
        owner = _met(at_address.get(str(pipe.listener), ()), pipe)
        if owner is not None and _stays(owner, pipe, own):
            listeners[number] = owner.listener
            owner.job.add(number, pipe, owner.listener)
            continue
        possible = by_name.possible(pipe, evidence)
        if len(possible) == 1:
            possible[0].add(number, pipe, _unpublished(pipe))
            continue
        own.add(number)
        possible += [job for job in partly if job.may_lack(pipe)]
        for job in (*possible, own.jobs[-1]) if possible else ():
            job.unsure = True
    for job in (*jobs, *own.jobs):
        _number_listeners(job, pipes, listeners)
    return listeners, own.jobs


# --- pipes to an address that a store tells ---


class _Owner(Struct, frozen=True):
    """Who listens at an address from some time on."""

    since_ns: int
    sure: bool
    """Whether that time is when it began, and not only when it was first heard of."""
    job: Job
    listener: ListenerKey


def _met(owners: Sequence[_Owner], pipe: Pipe) -> _Owner | None:
    """Returns which of the listeners at an address, one after the other, a pipe met."""
    at = bisect_right(owners, pipe.first_ns, key=lambda owner: owner.since_ns)
    return owners[at - 1] if at else None


def _owners(pipes: Sequence[Pipe], jobs: Sequence[Job]) -> dict[str, list[_Owner]]:
    """Returns the listeners by address; an address that was read, and not seen to be set, was there since the
    last pipes before had ended."""
    told: dict[str, list[tuple[Published, int]]] = defaultdict(list)
    for number, job in enumerate(jobs):
        assert job.store is not None
        hosts = list(job.store.published())
        for published in hosts:
            told[published.place].append((published, number))
        there = {published.name for published in hosts if published.place.rpartition(":")[2].isdigit()}
        for published in hosts if job.store.dynamic else ():
            job.comes_ns.setdefault(published.name, []).append(published.since_ns)
        job.all_seen = there == job.names
        job.places = frozenset(published.place for published in hosts)
        job.ports = frozenset(place.rpartition(":")[2] for place in job.places)
    quiet = _quiet_since(pipes, told)
    found: dict[str, list[_Owner]] = defaultdict(list)
    for address, its in told.items():
        its.sort(key=lambda one: one[0].since_ns)
        before = -1
        for published, number in its:
            since, job = published.since_ns, jobs[number]
            if not published.told:
                at = bisect_right(quiet[address], since)
                since = max(quiet[address][at - 1] + 1 if at else -1, before)
            listener = (address, since)
            before = published.since_ns
            if listener not in job.published:
                found[address].append(_Owner(since, published.told, job, listener))
            job.published.setdefault(listener, {})[published.group, published.name] = None
    return found


def _quiet_since(pipes: Sequence[Pipe], addresses: Container[str]) -> dict[str, list[int]]:
    """Returns by address each time when no pipe to it was open any more: then the next may meet another
    listener."""
    times: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for pipe in pipes:
        if (address := str(pipe.listener)) in addresses:
            times[address].append((pipe.first_ns, NEVER if pipe.ended_ns is None else pipe.ended_ns))
    found: dict[str, list[int]] = defaultdict(list)
    for address, its in times.items():
        until = -1
        for begin, end in sorted(its):
            if -1 < until < begin:
                found[address].append(until)
            until = max(until, end)
        found[address].append(until)
    return found


def _stays(owner: _Owner, pipe: Pipe, own: _Own) -> bool:
    """Whether the job still has that address when the pipe is opened."""
    job = owner.job
    if job.met[job.meeting(pipe, owner.listener)] >= len(job.published[owner.listener]):
        return False  # a worker of the same name in another job
    before = job.store is not None and job.store.begin_ns > pipe.first_ns
    if before or job.lives(pipe.first_ns):
        return True
    # All is closed, yet a worker that has not called before may outlive those that have.
    return pipe.client_name in job.names and not own.lives(pipe.first_ns)


# --- pipes that no store explains ---


class _Stores:
    """The jobs of stores, by the names in them."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._jobs = jobs
        self._of: dict[str, list[Job]] = defaultdict(list)
        self._growing = []
        """Those that more workers may be of than their stores tell."""
        for job in jobs:
            if job.store is not None and job.store.dynamic:
                self._growing.append(job)
            else:
                for name in job.names:
                    self._of[name].append(job)

    def possible(self, pipe: Pipe, evidence: IdentityEvidence) -> list[Job]:
        """Returns the jobs that a pipe may be of whose listener is in no store."""
        jobs = self._jobs
        if pipe.client_name:
            jobs = [*self._of.get(pipe.client_name, ()), *self._growing]
        if len(jobs) > MANY_JOBS:
            return []
        return [job for job in jobs if _may_be(job, pipe, evidence)]


def _may_be(job: Job, pipe: Pipe, evidence: IdentityEvidence) -> bool:
    store = job.store
    assert store is not None
    if pipe.first_ns < store.begin_ns:
        if store.begun or (pipe.ended_ns is not None and pipe.ended_ns < store.begin_ns):
            return False
    elif not job.lives(pipe.first_ns):
        return False
    if str(pipe.listener) in job.places or job.meeting(pipe, _unpublished(pipe)) in job.met:
        return False
    if job.all_seen and str(pipe.listener).rpartition(":")[2] not in job.ports:
        return False
    names = evidence.of(pipe, True).names | evidence.of(pipe, False).names
    return store.dynamic or names <= job.names


def _unpublished(pipe: Pipe) -> ListenerKey:
    return str(pipe.listener), UNPUBLISHED


class _Own:
    """Jobs of pipes that no store explains."""

    def __init__(self, pipes: Sequence[Pipe]) -> None:
        self.jobs: list[Job] = []
        self._pipes = pipes

    def lives(self, time_ns: int) -> bool:
        """Returns whether there is a job at that time."""
        return bool(self.jobs) and self.jobs[-1].lives(time_ns)

    def add(self, number: int) -> None:
        """Adds a pipe to the current job, or to a new one."""
        pipe = self._pipes[number]
        again = bool(self.jobs) and self.jobs[-1].meeting(pipe, _unpublished(pipe)) in self.jobs[-1].met
        if not self.lives(pipe.first_ns) or (again and not self._comes_back(pipe)):
            self.jobs.append(Job())
        self.jobs[-1].add(number, pipe, _unpublished(pipe))

    def _comes_back(self, pipe: Pipe) -> bool:
        """Returns whether a worker has ended its pipe to a listener, to which another worker's is open: then
        who listens is the same, and so is the job."""
        to_listener = [
            self._pipes[at] for at in self.jobs[-1].pipes if self._pipes[at].listener == pipe.listener
        ]
        still_open = {
            one.client_name for one in to_listener if one.ended_ns is None or one.ended_ns > pipe.first_ns
        }
        return bool(still_open) and pipe.client_name not in still_open


def _number_listeners(job: Job, pipes: Sequence[Pipe], listeners: dict[int, ListenerKey]) -> None:
    """Numbers the listeners of pipes to addresses that are in no store: after all pipes have ended, the next
    may meet another listener."""
    latest: dict[str, tuple[int, int]] = {}
    for number in job.pipes:
        if number in listeners:
            continue
        pipe = pipes[number]
        address = str(pipe.listener)
        which, until = latest.get(address, (UNPUBLISHED, NEVER))
        if until < pipe.first_ns:
            which, until = which - 1, -1
        ended = NEVER if pipe.ended_ns is None else pipe.ended_ns
        latest[address] = which, ended if address not in latest else max(until, ended)
        listeners[number] = (address, which)


# --- jobs that were there at the same time ---


def _parted(
    job: Job, pipes: Sequence[Pipe], listeners: Mapping[int, ListenerKey], evidence: IdentityEvidence
) -> list[Job]:
    """The parts of a job that nothing joins, if an id or a name would be two workers' otherwise."""
    two = _two_at_once(job, pipes, evidence)
    parts = _parts(job, pipes, listeners, None if two else evidence)
    if len(parts) < 2:
        return [job]
    names: dict[int, set[str]] = defaultdict(set)
    ids: dict[str, set[int]] = defaultdict(set)
    for part in parts:
        for name, number in _tied(part, pipes, listeners, evidence):
            names[number].add(name)
            ids[name].add(number)
    single = all(len(its) == 1 for its in names.values()) and all(len(its) == 1 for its in ids.values())
    if single and not two:
        return [job]
    found = []
    for part in parts:
        found.append(Job(unsure=job.unsure or two))
        for number in part:
            found[-1].add(number, pipes[number], listeners[number])
    return found


def _two_at_once(job: Job, pipes: Sequence[Pipe], evidence: IdentityEvidence) -> bool:
    """Returns whether workers of one name or id were called at two ports at once: they are of two jobs."""
    latest: dict[object, tuple[str, int]] = {}
    for pipe in sorted((pipes[number] for number in job.pipes), key=lambda pipe: pipe.first_ns):
        port = str(pipe.listener).rpartition(":")[2]
        ended_ns = pipe.first_ns if pipe.ended_ns is None else pipe.ended_ns
        server = evidence.of(pipe, False)
        for worker in (*((pipe.server.host, name) for name in server.names), *server.ids):
            before, until_ns = latest.get(worker, (port, -1))
            if before != port and until_ns > pipe.first_ns:
                return True
            if ended_ns >= until_ns:
                latest[worker] = port, ended_ns
    return False


def _parts(
    job: Job, pipes: Sequence[Pipe], listeners: Mapping[int, ListenerKey], evidence: IdentityEvidence | None
) -> list[list[int]]:
    """Pipes that a listener joins, or a worker's name at one host. `evidence`: None where names are those of
    several workers."""
    leader: dict[object, object] = {}

    def top(one: object) -> object:
        while leader.setdefault(one, one) != one:
            leader[one] = one = leader[leader[one]]
        return one

    for number in job.pipes:
        pipe = pipes[number]
        mine = top(listeners[number])
        if evidence is None:
            continue
        ends: list[object] = [(pipe.client.host, name) for name in evidence.of(pipe, True).names]
        ends += [(pipe.server.host, name) for name in evidence.of(pipe, False).names]
        for end in ends:
            leader[top(end)] = mine
            mine = top(mine)
    parts: dict[object, list[int]] = defaultdict(list)
    for number in job.pipes:
        parts[top(listeners[number])].append(number)
    return list(parts.values())


def _tied(
    part: Iterable[int],
    pipes: Sequence[Pipe],
    listeners: Mapping[int, ListenerKey],
    evidence: IdentityEvidence,
) -> set[tuple[str, int]]:
    """Returns each name with its id, where one end has both."""
    servers: dict[ListenerKey, End] = defaultdict(End)
    ends = []
    for number in part:
        pipe = pipes[number]
        ends.append(evidence.of(pipe, True))
        servers[listeners[number]].add(evidence.of(pipe, False))
    found = set()
    for end in (*ends, *servers.values()):
        if len(end.names) == len(end.ids) == 1:
            found.add((next(iter(end.names)), next(iter(end.ids))))
    return found

"""Which job an entry of a store is of, and from when on a worker listens at an address.

In: the entries of all stores. Out: a `StoreJob` for each job that met at one: its entries, and what it has
published.

One address may be several stores one after the other, and one store may serve several jobs: torchrun keeps
its own over restarts, with what the earlier workers left in it. A worker sets its name and its address once,
so that a key that is set again is of the next job. In a group without a fixed size it is that of a worker
who has left and comes back. What is merely read may be old.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TypeAlias

from msgspec import Struct, field

from rpcinspect.session.model import Arrival
from rpcinspect.store.directory import DirectoryKey, StoreEntry, directory_key, members_of

SETS = ("set", "multi_set", "append")
"""Operations that are captured when they happen; replies tell of what happened before."""

Fixed: TypeAlias = tuple[int, str, int | str]
"""(group, kind, of): what a worker sets once."""


class Published(Struct, frozen=True):
    """A worker's address in a store."""

    since_ns: int
    """When it was set, or first read."""
    told: bool
    """Whether it was seen being set: nobody can have listened there as that worker before."""
    group: int
    name: str
    address: str
    """As in the store, such as `uv://127.0.0.1:33589`."""

    @property
    def place(self) -> str:
        """Returns the address without its transport, as endpoints are written."""
        return self.address.rpartition("://")[2].lower()


class StoreJob(Struct, eq=False):
    """Entries that one job left in its store, as far as they were captured."""

    entries: list[StoreEntry] = field(default_factory=list)
    """Without those that repeat what is known."""
    times: list[int] = field(default_factory=list)
    """Of all entries: its workers were there then."""
    known: dict[Fixed, tuple[bytes, bool]] = field(default_factory=dict)
    """The value of each key, and whether it was seen being set."""
    listed: dict[int, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    """The members of each group without a fixed size."""

    @property
    def begin_ns(self) -> int:
        """Returns the time of the first entry."""
        return self.times[0]

    @property
    def begun(self) -> bool:
        """Returns whether the job's start was captured, so that all its pipes are younger."""
        first = self.entries[0]
        key = directory_key(first.key)
        return first.operation in SETS and key is not None and key.group == 0 and not self.dynamic

    @property
    def whole(self) -> bool:
        """Returns whether all that its workers told was captured, from the first of them on."""
        if not self.dynamic:
            return self.begun
        listed = next(
            e for e in self.entries if (key := directory_key(e.key)) is not None and key.kind == "members"
        )
        return listed.operation in SETS and len(members_of(listed.value)) == 1

    @property
    def dynamic(self) -> bool:
        """Whether workers may join and leave."""
        return bool(self.listed)

    def arrivals(self) -> dict[tuple[int, str], Arrival]:
        """Returns (group, name) → when that worker connected to the store. The time of the name's own entry
        is later: a worker sets the name once all have come, since Gloo's group is made before."""
        found: dict[tuple[int, str], Arrival] = {}
        used: set[tuple[str, int]] = set()
        for entry in () if self.dynamic else self.entries:
            key = directory_key(entry.key)
            if key is None or not isinstance(key.of, int) or entry.operation not in SETS:
                continue
            since = entry.since_ns
            if since is None or (entry.server, since) in used:  # a later group by the same connection
                continue
            used.add((entry.server, since))
            name = entry.value.decode("utf-8", "surrogateescape")
            found.setdefault(
                (key.group, name), Arrival(store=entry.server, time_ns=since, pause_ns=entry.pause_ns)
            )
        return found

    def names(self) -> set[str]:
        """Returns the names of all workers in the store."""
        found = {
            value.decode("utf-8", "surrogateescape") if isinstance(of, int) else of
            for (_, _, of), (value, _) in self.known.items()
        }
        return found | {name for members in self.listed.values() for name, _ in members}

    def published(self) -> Iterator[Published]:
        """Yields each address of each worker, with the time of its first entry, and of each time that it was
        set: a worker that comes back may listen at the same one."""
        seen: set[tuple[int, str, bytes]] = set()
        for entry in self.entries:
            key = directory_key(entry.key)
            if key is None or key.kind != "address" or not isinstance(key.of, str):
                continue
            told = entry.operation in SETS
            if not entry.value or ((key.group, key.of, entry.value) in seen and not told):
                continue
            seen.add((key.group, key.of, entry.value))
            address = entry.value.decode("utf-8", "surrogateescape")
            yield Published(entry.time_ns, told, key.group, key.of, address)


class _Store:
    """The jobs of one store, one after the other."""

    def __init__(self) -> None:
        self.jobs: list[StoreJob] = []
        self._old: set[tuple[Fixed, bytes]] = set()
        """Entries of earlier jobs."""

    def take(self, entry: StoreEntry, key: DirectoryKey) -> None:
        if key.kind == "members":
            self._members(entry, key)
        elif entry.value:  # an empty one is the reply to a GET of a key that isn't there
            self._fixed(entry, key)

    def _members(self, entry: StoreEntry, key: DirectoryKey) -> None:
        job = self._current()
        listed = members_of(entry.value)
        before = dict(job.listed.get(key.group, ()))
        if any(before.get(name, number) != number for name, number in listed):
            job, before = self._next(), {}  # the name of a member that never left
        if entry.operation == "append":
            listed = tuple((before | dict(listed)).items())
        job.listed[key.group] = listed
        self._add(job, entry)

    def _fixed(self, entry: StoreEntry, key: DirectoryKey) -> None:
        job = self._current()
        fixed = (key.group, key.kind, key.of)
        value, told = entry.value, entry.operation in SETS
        was = job.known.get(fixed)
        old = (fixed, value) in self._old
        if not told:
            if was is not None and was[0] == value:
                job.times.append(entry.time_ns)
                return
            if old and (was is not None or key.kind == "address"):
                return  # left by workers before
        again = (was is not None and ((told and was[1]) or was[0] != value)) or (
            told and self._listed(job, fixed)
        )
        if again and not self._comes_back(job, fixed):
            stale = told and was is not None and not was[1] and (fixed, was[0]) in self._old
            if not stale:
                job = self._next()
        job.known[fixed] = value, told
        self._add(job, entry)

    @classmethod
    def _comes_back(cls, job: StoreJob, fixed: Fixed) -> bool:
        """Returns whether this is a worker that has left a group without a fixed size."""
        return bool(job.listed.get(fixed[0])) and not cls._listed(job, fixed)

    @staticmethod
    def _listed(job: StoreJob, fixed: Fixed) -> bool:
        """Returns whether a key is the name of a member of a group without a fixed size: who has this id then
        never left."""
        group, _, of = fixed
        return isinstance(of, int) and of in dict(job.listed.get(group, ())).values()

    def _current(self) -> StoreJob:
        return self.jobs[-1] if self.jobs else self._next()

    def _next(self) -> StoreJob:
        if self.jobs:
            self._old |= {(fixed, value) for fixed, (value, _) in self.jobs[-1].known.items()}
        self.jobs.append(StoreJob())
        return self.jobs[-1]

    @staticmethod
    def _add(job: StoreJob, entry: StoreEntry) -> None:
        job.entries.append(entry)
        job.times.append(entry.time_ns)


def split_jobs(entries: Iterable[StoreEntry]) -> list[StoreJob]:
    """Returns the jobs that made these entries, in the order of their beginnings."""
    stores: dict[tuple[str, str], _Store] = defaultdict(_Store)
    for entry in sorted(entries, key=lambda entry: entry.time_ns):
        key = directory_key(entry.key)
        if key is not None:
            stores[entry.server, key.root].take(entry, key)
    jobs = [job for store in stores.values() for job in store.jobs if job.times]
    if len(stores) > 1:
        jobs = _joined(jobs)
    return sorted(jobs, key=lambda job: job.begin_ns)


def _joined(jobs: Sequence[StoreJob]) -> list[StoreJob]:
    """A store has several addresses where its own host calls it by another than the others do: one side reads
    there what the other has set.
    """
    by_address: dict[tuple[Fixed, bytes], list[int]] = defaultdict(list)
    for number, job in enumerate(jobs):
        for fixed, (value, _) in job.known.items():
            if fixed[1] == "address":
                by_address[fixed, value].append(number)
    into = list(range(len(jobs)))
    tried: set[tuple[int, int]] = set()
    found = list(jobs)
    for (fixed, _), numbers in by_address.items():
        for pair in pairwise(numbers):
            one, other = sorted(_root(into, number) for number in pair)
            if one == other or (one, other) in tried:
                continue
            tried.add((one, other))
            a, b = found[one].known, found[other].known
            both_set = a[fixed][1] and b[fixed][1]
            if not both_set and all(b.get(key, said)[0] == said[0] for key, said in a.items()):
                into[other] = one
                found[one] = _union(found[one], found[other])
    return [job for number, job in enumerate(found) if into[number] == number]


def _root(into: list[int], number: int) -> int:
    while into[number] != number:
        into[number] = number = into[into[number]]
    return number


def _union(one: StoreJob, other: StoreJob) -> StoreJob:
    known = dict(one.known)
    for key, (value, told) in other.known.items():
        known[key] = value, told or known.get(key, (value, False))[1]
    return StoreJob(
        entries=sorted([*one.entries, *other.entries], key=lambda entry: entry.time_ns),
        times=sorted([*one.times, *other.times]),
        known=known,
        listed={**one.listed, **other.listed},
    )

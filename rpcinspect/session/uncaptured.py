"""What workers sent that no capture has: an agent numbers its requests one after the other.

In: a session. Out: for each worker until when all is known that others may have asked of it. A number that
was not captured is of a request that passed no sniffer: on the sender's own host, or between two others.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from itertools import chain

import numpy as np
from msgspec import Struct, field

from rpcinspect.session.hosts import Sniffers, clocks, host_of
from rpcinspect.session.identity import WorkerKey
from rpcinspect.session.model import Session

NEVER = (1 << 63) - 1
"""When what was not captured happened."""

LATE_NS = 1_000_000_000
"""What is captured where it arrives was sent up to so long before: what was lost on the way is sent again
after 200 ms, and after 400 ms."""


class _SameHosts(Struct, eq=False):
    """Workers of a job that have the same hosts, those first of which the least is known."""

    job: int
    hosts: frozenset[str]
    least: int
    """Until when all is captured that the first of them sent."""
    members: list[WorkerKey] = field(default_factory=list)


class Uncaptured:
    """Answers what requests may be missing because no sniffer was where they passed."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def since(self, member: WorkerKey) -> int:
        """Returns from when on a worker may have been asked what was not captured."""
        if not self._packets:
            return NEVER
        its, since = self._hosts[member], NEVER
        for groups in self._near(member):
            for group in groups:
                if group.least >= since:
                    break
                if not self._all_pass(group.hosts, its):
                    unseen = (one for one in group.members if (one, member) not in self._ways)
                    known = (self._known_until(one, member) for one in unseen)  # the first has the least
                    since = min(since, next((until for until in known if until < NEVER), NEVER))
        return since

    def answered_since(self, member: WorkerKey) -> int:
        """Returns from when on a worker may have asked others, and got answers, that were not captured."""
        if not self._packets:
            return NEVER
        its, groups = self._hosts[member], chain.from_iterable(self._near(member))
        apart = (group for group in groups if not self._all_pass(group.hosts, its))
        others = (one for group in apart for one in group.members if one != member)
        unseen = any((member, one) not in self._ways for one in others)
        return self._known_until(member, None) if unseen else NEVER

    def _near(self, member: WorkerKey) -> list[list[_SameHosts]]:
        """All workers of a job to which something may go, or from which come, past all sniffers."""
        job, its = member[0], self._hosts[member]
        lists = [self._on_host[job, host] for host in its]
        if not its or not its <= self._sniffed:  # else what it and other hosts say was captured
            lists.append(self._unsniffed[job])
        return lists

    def heard_since(self, member: WorkerKey) -> dict[str, int]:
        """Returns other workers → since when they may have sent it what was not captured, asked or not."""
        found: dict[str, int] = {}
        if not self._packets:
            return found
        for other in self._members[member[0]]:
            if other != member:
                asked = NEVER if self._would_be_seen(other, member) else self._known_until(other, member)
                asks = NEVER if self._would_be_seen(member, other) else self._known_until(member, other)
                if min(asked, asks) < NEVER:
                    found[other[1]] = min(asked, asks)
        return found

    def _known_until(self, sender: WorkerKey, member: WorkerKey | None) -> int:
        """Until when all is captured that a worker sent, by the times of what another one sends."""
        until, whole = self._sent.get(sender, (-NEVER, False))
        if whole and sender == member:
            return NEVER  # what it sends is before what comes next
        return until - self._margin_ns if until > -NEVER else until

    def _would_be_seen(self, sender: WorkerKey, receiver: WorkerKey) -> bool:
        """Whether a capture has what one sends to the other, or would if there were any."""
        return (sender, receiver) in self._ways or self._all_pass(self._hosts[sender], self._hosts[receiver])

    def _all_pass(self, theirs: frozenset[str], its: frozenset[str]) -> bool:
        """Whether all packets of some hosts to others passed a sniffer."""
        return bool(theirs and its) and all(self._passed_by(a, b) for a in theirs for b in its)

    def _passed_by(self, host: str, other: str) -> bool:
        """Whether packets of one host to another, or to itself, passed a sniffer."""
        return frozenset((host, other)) in self._between or (
            host != other and not self._sniffed.isdisjoint((host, other))
        )

    @cached_property
    def _packets(self) -> bool:
        """Whether all is captured from a network."""
        return all(one.reader != "log" for one in self._session.captures)

    @cached_property
    def _ways(self) -> frozenset[tuple[WorkerKey, WorkerKey]]:
        session = self._session
        ends = zip(session.jobs, session.clients, session.servers, strict=True)
        return frozenset(((job, client), (job, server)) for job, client, server in ends)

    @cached_property
    def _hosts(self) -> dict[WorkerKey, frozenset[str]]:
        session = self._session
        found: dict[WorkerKey, set[str]] = defaultdict(set)
        for worker in session.workers:
            found[worker.job, worker.label].update(map(host_of, worker.addresses))
        for job, client, server, pipe in zip(
            session.jobs, session.clients, session.servers, session.pipes, strict=True
        ):
            found[job, client].add(pipe.client.host)
            found[job, server].add(pipe.server.host)
        return {member: frozenset(hosts) for member, hosts in found.items()}

    @cached_property
    def _members(self) -> dict[int, list[WorkerKey]]:
        """Job → its workers, those first of which the least is known."""
        found: dict[int, list[WorkerKey]] = defaultdict(list)
        for member in sorted(self._hosts, key=lambda member: self._sent.get(member, (-NEVER, False))[0]):
            found[member[0]].append(member)
        return found

    @cached_property
    def _groups(self) -> list[_SameHosts]:
        found: dict[tuple[int, frozenset[str]], _SameHosts] = {}
        for job, members in self._members.items():
            for member in members:
                hosts = self._hosts[member]
                one = _SameHosts(job, hosts, self._known_until(member, None))
                found.setdefault((job, hosts), one).members.append(member)
        return list(found.values())

    @cached_property
    def _on_host(self) -> dict[tuple[int, str], list[_SameHosts]]:
        """(job, host) → those that are there, in that order, too."""
        found: dict[tuple[int, str], list[_SameHosts]] = defaultdict(list)
        for group in self._groups:
            for host in group.hosts:
                found[group.job, host].append(group)
        return found

    @cached_property
    def _unsniffed(self) -> dict[int, list[_SameHosts]]:
        """Job → those of which a host had no sniffer."""
        found: dict[int, list[_SameHosts]] = defaultdict(list)
        for group in self._groups:
            if not group.hosts or not group.hosts <= self._sniffed:
                found[group.job].append(group)
        return found

    @cached_property
    def _between(self) -> frozenset[frozenset[str]]:
        """Pairs of hosts of which something was captured."""
        return frozenset(frozenset((pipe.client.host, pipe.server.host)) for pipe in self._session.pipes)

    @cached_property
    def _sniffed(self) -> frozenset[str]:
        """Hosts at which captures were certainly made."""
        each = Sniffers.of(self._session).hosts.values()
        return frozenset(host for hosts in each if len(hosts) == 1 for host in hosts)

    @cached_property
    def _margin_ns(self) -> int:
        """By how much times of two senders may be wrong against each other."""
        if len(set(clocks(self._session).values())) > 1:
            return 2 * NEVER
        return LATE_NS if len(set(Sniffers.of(self._session).of_capture.values())) > 1 else 0

    @cached_property
    def _sent(self) -> dict[WorkerKey, tuple[int, bool]]:
        """Worker → when the last of its requests before a missing one began, or the last of all, and whether
        none is missing. Who began again has some numbers twice, the first ones most often."""
        session, columns = self._session, self._session.messages
        rows = np.flatnonzero(np.asarray(columns.from_client))
        if not len(rows):
            return {}
        members = list(zip(session.jobs, session.clients, strict=True))
        number = {member: n for n, member in enumerate(dict.fromkeys(members))}
        whose = np.array([number[member] for member in members])[np.asarray(columns.pipe)[rows]]
        ids, begins = np.asarray(columns.id)[rows], np.asarray(columns.time_ns)[rows]
        order = np.lexsort((ids, whose))
        whose, ids = whose[order], ids[order]
        # each number of each worker, with how often it comes and when it last began
        places = np.flatnonzero(np.diff(whose, prepend=-1) | np.diff(ids, prepend=-1))
        counts, latest = np.diff(places, append=len(ids)), np.maximum.reduceat(begins[order], places)
        whose, ids = whose[places], ids[places]
        begin = np.flatnonzero(np.diff(whose, prepend=-1))  # of each worker
        sizes = np.diff(begin, append=len(ids))
        rank = np.arange(len(ids)) - np.repeat(begin, sizes)
        good = (ids == rank) & ((np.diff(counts, prepend=0) <= 0) | (rank == 0))
        first = np.minimum.reduceat(np.where(good, np.repeat(sizes, sizes), rank), begin)
        names = list(number)
        return {
            names[who]: (until, whole)
            for who, until, whole, some in zip(
                whose[begin].tolist(),
                latest[begin + np.maximum(first, 1) - 1].tolist(),
                (first == sizes).tolist(),
                (first > 0).tolist(),
                strict=True,
            )
            if some
        }

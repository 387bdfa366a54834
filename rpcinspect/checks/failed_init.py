"""`failed-init`: processes met at a store, or tried to connect, but opened no pipe.

In: visits to stores, refusals, pipes. `init_rpc` meets at the store, opens connections of Gloo, publishes
the address of its agent, and opens pipes. A visit failed if its process left the store without a pipe, or
without an address. Left out are visits that may go on after the capture, that could not be read completely,
or whose pipes would not be captured: over shared memory, or between hosts without captured traffic. Visits
that failed at one store at one time are one attempt. A refusal counts where a store names its address; in a
capture with nothing else, wherever a process tried again and again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, field

from rpcinspect.checks.check import Check
from rpcinspect.checks.evidence import CaptureEvidence
from rpcinspect.session.hosts import host_of
from rpcinspect.session.model import Finding
from rpcinspect.session.words import counted, duration, several, unique
from rpcinspect.store.visits import Visit
from rpcinspect.tcp.refusals import Refusal

MAX_ATTEMPTS = 4
"""Attempts at one store that are reported one by one."""
RETRIES = 2
"""So many refusals by an address of a store, or by one that nothing is known of, are no coincidence."""
GRACE_NS = 1_000_000_000
"""A process may try to connect for so long after it has left the store."""
WAITS_FOR_ALL = (
    "Rank 0, which has the store, tells its address once as many processes as world_size says are connected: "
    "see which one did not come, or whether world_size is right."
)
WAITS_NS = 2_000_000_000
"""Who waits for a store tries again sooner."""
LONG_NS = 10_000_000_000
"""A store that is not there for so long does not only come late."""


class FailedInit(Check):
    """Finds failed calls of init_rpc."""

    def finish(self, evidence: CaptureEvidence) -> Iterable[Finding]:
        return failed_inits(evidence)


class _Attempt(Struct, eq=False):
    """Visits that failed at one store at one time."""

    visits: list[Visit] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)

    @property
    def begin_ns(self) -> int:
        return min(visit.begin_ns for visit in self.visits)

    @property
    def end_ns(self) -> int | None:
        """Returns the end of the last visit; None while one of them may go on."""
        ends = [visit.ended_ns for visit in self.visits]
        known = [end for end in ends if end is not None]
        return max(known) if len(known) == len(ends) else None

    @property
    def who(self) -> list[str]:
        return sorted({visit.who for visit in self.visits}, key=_in_order)


def failed_inits(evidence: CaptureEvidence) -> Iterator[Finding]:
    """Returns the findings: attempts at each store, then refusals that are of no attempt."""
    wire = evidence.wire
    if not (wire.visits or wire.refusals):
        return
    names, refused_of = _Addresses(wire.visits), _refusals_by_visit(evidence)
    attempts = _attempts(_failed(evidence, refused_of))
    told: set[Refusal] = set()
    for at_store in attempts.values():
        for attempt in at_store:
            its = {one for visit in attempt.visits for one in refused_of[id(visit)]}
            attempt.refusals = sorted(its, key=lambda one: (one.first_ns, one.server))
            told |= its
        for attempt in at_store[:MAX_ATTEMPTS]:
            yield _attempt(evidence, names, attempt)
        if len(at_store) > MAX_ATTEMPTS:
            yield _more_attempts(evidence, at_store[MAX_ATTEMPTS:])
    yield from _refused(evidence, names, [one for one in wire.refusals if one not in told])


def _refusals_by_visit(evidence: CaptureEvidence) -> dict[int, list[Refusal]]:
    """Returns `id` of the visit → refusals by addresses that its process had read, while it was there."""
    readers: dict[tuple[str, str], list[Visit]] = defaultdict(list)
    for visit in evidence.wire.visits:
        for address in visit.read:
            readers[host_of(visit.client), address].append(visit)
    found: dict[int, list[Refusal]] = defaultdict(list)
    for one in evidence.wire.refusals:
        for visit in readers.get((one.host, one.server), ()):
            end_ns = visit.ended_ns
            if visit.begin_ns <= one.last_ns and (end_ns is None or one.first_ns <= end_ns + GRACE_NS):
                found[id(visit)].append(one)
    return found


def _failed(evidence: CaptureEvidence, refused_of: Mapping[int, Sequence[Refusal]]) -> list[Visit]:
    visits = [v for v in evidence.wire.visits if v.rank is not None or v.name is not None]
    by_place: dict[tuple[str, str, int], list[Visit]] = defaultdict(list)
    for visit in visits:
        by_place[visit.server, visit.root, visit.group].append(visit)
    pipes = _Pipes(evidence)
    found = []
    for its in by_place.values():
        group = _Group(evidence, its)
        found += [v for v in its if _has_failed(evidence, v, group, pipes, refused_of.get(id(v), ()))]
    return sorted(found, key=lambda visit: visit.begin_ns)


class _Group:
    """All visits for one init_rpc of one store."""

    def __init__(self, evidence: CaptureEvidence, visits: Sequence[Visit]) -> None:
        self._talking = evidence.wire.talking
        self._of: dict[tuple[int | None, str], list[Visit]] = defaultdict(list)
        self._places: dict[str, set[str]] = defaultdict(set)
        """Where agents listen, by host."""
        for visit in visits:
            self._of[visit.rank, host_of(visit.client)].append(visit)
            if visit.place is not None:
                self._places[host_of(visit.place)].add(visit.place)

    def has_agent_elsewhere(self, visit: Visit) -> bool:
        """Returns whether the process has another connection to the store, from its agent."""
        same = self._of[visit.rank, host_of(visit.client)] if visit.rank is not None else ()
        return any(v is not visit and (v.place or v.succeeded) and _overlap(v, visit) for v in same)

    def is_seen(self, visit: Visit, place: str) -> bool:
        """Whether there are others, and the capture shows all traffic between them and this agent."""
        hosts = {host_of(address) for address, who in visit.read.items() if who != visit.name}
        hosts |= {host for host, places in self._places.items() if places != {place}}
        return bool(hosts) and all((host_of(place), host) in self._talking for host in hosts)


def _has_failed(
    evidence: CaptureEvidence, visit: Visit, group: _Group, pipes: _Pipes, refused: Sequence[Refusal]
) -> bool:
    if visit.succeeded or not visit.whole or pipes.of(visit) or group.has_agent_elsewhere(visit):
        return False
    place = visit.place
    if visit.ended_ns is None:
        return place is None and any(one.last_ns < evidence.last_ns - GRACE_NS for one in refused)
    if place is None:
        return True
    lost = evidence.wire.damaged or place in evidence.wire.reached or not place.rpartition(":")[2].isdigit()
    return not lost and group.is_seen(visit, place)


def _overlap(one: Visit, other: Visit) -> bool:
    begin_ns = max(one.begin_ns, other.begin_ns)
    return all(visit.ended_ns is None or begin_ns <= visit.ended_ns for visit in (one, other))


class _Pipes:
    """When pipes of each name, and to each port, were opened."""

    def __init__(self, evidence: CaptureEvidence) -> None:
        times: dict[str | None, list[int]] = defaultdict(list)
        for pipe in evidence.session.pipes:
            times[pipe.client_name or None].append(pipe.first_ns)
            if pipe.listener is not None:
                times[f":{pipe.listener.port}"].append(pipe.first_ns)
        self._times = {key: sorted(its) for key, its in times.items()}

    def of(self, visit: Visit) -> bool:
        """Returns whether a pipe may be of this process: addresses may be translated on their way, so ports
        count."""
        port = None if visit.place is None else f":{visit.place.rpartition(':')[2]}"
        return any(self._opened(key, visit) for key in {None, visit.name, port})

    def _opened(self, key: str | None, visit: Visit) -> bool:
        times = self._times.get(key, ())
        at = bisect_left(times, visit.begin_ns)
        return at < len(times) and (visit.ended_ns is None or times[at] <= visit.ended_ns)


def _attempts(visits: Sequence[Visit]) -> dict[tuple[str, str], list[_Attempt]]:
    """Returns attempts by store and root; visits that overlap in time are of one."""
    found: dict[tuple[str, str], list[_Attempt]] = defaultdict(list)
    for visit in visits:
        its = found[visit.server, visit.root]
        end = its[-1].end_ns if its else -1
        if not its or (end is not None and end < visit.begin_ns):
            its.append(_Attempt())
        its[-1].visits.append(visit)
    return found


class _Addresses:
    """The workers that published an address in a store."""

    def __init__(self, visits: Iterable[Visit]) -> None:
        self._of: dict[str, list[Visit]] = defaultdict(list)
        self._read: dict[str, str] = {}
        self._ranks: dict[tuple[str, str, int], set[int]] = defaultdict(set)
        for visit in visits:
            if visit.rank is not None:
                self._ranks[visit.server, visit.root, visit.group].add(visit.rank)
            if visit.meets_at is not None:
                self._of[visit.meets_at].append(visit)
            if visit.place is not None:
                self._of[visit.place].append(visit)
            for address, who in visit.read.items():
                self._read.setdefault(address, who)
                if who.startswith("rank "):
                    self._ranks[visit.server, visit.root, visit.group].add(int(who.removeprefix("rank ")))

    def whose(self, address: str) -> str | None:
        """Returns the owner of an address; None where no store names it."""
        its = self._of.get(address)
        if its:
            return its[-1].who if its[-1].place == address else f"Gloo of {its[-1].who}"
        who = self._read.get(address)
        return f"Gloo of {who}" if who is not None and who.startswith("rank ") else who

    def absent(self, attempt: _Attempt) -> list[str]:
        """Returns the ranks that an attempt waited for: those without an address of Gloo in the store."""
        places = {(visit.server, visit.root, visit.group) for visit in attempt.visits}
        there = {rank for place in places for rank in self._ranks[place]}
        awaited = {rank for visit in attempt.visits for rank in visit.awaited}
        return [f"rank {rank}" for rank in sorted(awaited - there)]

    def agent(self, address: str) -> str | None:
        """The worker whose RPC agent listens there."""
        who = self.whose(address)
        return None if who is None or who.startswith("Gloo of ") else who

    def went_on(self, refusal: Refusal) -> bool:
        """Whether that was Gloo of a worker with an agent: Gloo listens during init_rpc only."""
        its = self._of.get(refusal.server, ())
        return any(
            v.meets_at == refusal.server
            and v.place is not None
            and (v.ended_ns is None or v.ended_ns > refusal.last_ns)
            for v in its
        )

    def left(self, refusal: Refusal) -> bool:
        """Returns whether every owner of the address had left the store before the attempt to connect."""
        its = self._of.get(refusal.server, ())
        return bool(its) and all(v.ended_ns is not None and v.ended_ns < refusal.first_ns for v in its)


def _attempt(evidence: CaptureEvidence, names: _Addresses, attempt: _Attempt) -> Finding:
    who, store = attempt.who, attempt.visits[0].server
    when = f"{_after(evidence, attempt.begin_ns)} into the capture"
    text = f"{_people(who)} met at the store {store} {when}, but opened no pipe: "
    if len(attempt.visits) == 1:
        text = f"{_people(who)} came to the store {store} {when}, and opened no pipe: "
    remedy = "See in the log of these processes why init_rpc failed."
    shared, absent = _names_given_twice(attempt.visits), names.absent(attempt)
    if shared:
        text += several([f"{several(ranks)} have one name, {name}" for name, ranks in shared.items()])
        remedy = "Give each worker a name of its own: init_rpc refuses a name that is there twice."
    elif absent and not attempt.refusals:
        they = "it" if len(who) == 1 else "they"
        text += f"{they} waited for the address of {several(absent)}, which never came"
        remedy = f"See in the log of {several(absent)} whether it came to init_rpc."
        if absent == ["rank 0"]:
            remedy = WAITS_FOR_ALL
    elif not attempt.refusals:
        text += _how_far(attempt.visits)
    else:
        text += _told(names, attempt.refusals)
        if any(names.went_on(one) for one in attempt.refusals):
            remedy = (
                "A group with a fixed world_size takes nobody who comes later: start all of its workers "
                "again, or leave world_size out."
            )
        elif any(names.left(one) for one in attempt.refusals):
            remedy = (
                "Give each attempt a store of its own (init_method): where workers are started again, the "
                "old one still has the addresses of those before."
            )
    return _finding(text, remedy, [_label(visit) for visit in attempt.visits])


def _names_given_twice(visits: Iterable[Visit]) -> Mapping[str, Sequence[str]]:
    """Returns name → the ranks that published it, where these are several."""
    found: dict[str, set[int]] = defaultdict(set)
    for visit in visits:
        if visit.name is not None and visit.rank is not None:
            found[visit.name].add(visit.rank)
    return {name: [f"rank {rank}" for rank in sorted(its)] for name, its in found.items() if len(its) > 1}


def _how_far(visits: Sequence[Visit]) -> str:
    there = unique(visit.place for visit in visits if visit.place is not None)
    if there:
        return f"agents listened at {several(there)}, and nobody connected"
    return f"{'it' if len(visits) == 1 else 'all'} left before an RPC agent was there"


def _told(names: _Addresses, refused: Sequence[Refusal]) -> str:
    parts = []
    for one in refused:
        whose = names.whose(one.server)
        known = f" ({whose}{' of an earlier attempt' if names.left(one) else ''})" if whose else ""
        parts.append((one.count, f"to {one.server}{known}"))
    total, verb = sum(count for count, _ in parts), outcome(refused)
    if len(parts) == 1:
        return f"{counted(total, 'connection')} {parts[0][1]} {verb}"
    return f"{counted(total, 'connection')} {verb}, {several([f'{count:,} {to}' for count, to in parts])}"


def outcome(refused: Collection[Refusal]) -> str:
    """What came of some connections: `were refused`, `got no answer`, or `failed` where some did either."""
    silent = {one.silent for one in refused}
    count = sum(one.count for one in refused)
    return "failed" if len(silent) > 1 else "got no answer" if True in silent else _were_refused(count)


def _were_refused(count: int) -> str:
    return "was refused" if count == 1 else "were refused"


def _more_attempts(evidence: CaptureEvidence, attempts: Sequence[_Attempt]) -> Finding:
    count = sum(one.count for attempt in attempts for one in attempt.refusals)
    refused = f": {counted(count, 'connection')} {_were_refused(count)}" if count else ""
    return _finding(
        f"{counted(len(attempts), 'more time')} processes met at the store {attempts[0].visits[0].server}, "
        f"last {_after(evidence, attempts[-1].begin_ns)} into the capture, but opened no pipe{refused}",
        "See the attempts before these.",
        [_label(visit) for attempt in attempts for visit in attempt.visits],
    )


def _refused(evidence: CaptureEvidence, names: _Addresses, left: Sequence[Refusal]) -> Iterator[Finding]:
    wire = evidence.wire
    nothing = not (evidence.session.totals.messages or evidence.session.pipes or wire.visits or wire.stores)
    for one in left:
        agent = names.agent(one.server)
        if agent is not None:
            what, workers = f" ({agent})", [agent]
        elif one.count < RETRIES or not (nothing or (one.server in wire.stores and _is_over(evidence, one))):
            continue
        else:
            what, workers = "" if nothing else " (the store)", [one.host]
        when = f"{_after(evidence, one.first_ns)}"
        if one.count > 1:
            when = f"from {when} to {_after(evidence, one.last_ns)}"
        yield _finding(
            f"{counted(one.count, 'connection')} of {one.host} to {one.server}{what} {outcome([one])}, "
            f"{when} into the capture, and no later one came about",
            f"Check that the process that should listen at {one.server} runs and can be reached.",
            workers,
        )


def _is_over(evidence: CaptureEvidence, refusal: Refusal) -> bool:
    """Whether that host would have tried again, had it not given up, before the capture ended."""
    return evidence.last_ns - refusal.last_ns > WAITS_NS or refusal.last_ns - refusal.first_ns > LONG_NS


def _finding(text: str, remedy: str, workers: Iterable[str]) -> Finding:
    return Finding(
        code="failed-init", severity="error", text=f"{text}.", remedy=remedy, workers=unique(workers)
    )


def _label(visit: Visit) -> str:
    """The name of the process that other output uses."""
    return visit.name or (visit.client if visit.rank is None else f"worker:{visit.rank}")


def _in_order(who: str) -> tuple[int, str]:
    _, _, number = who.rpartition(" ")
    return (int(number) if number.isdigit() else 0), who


def _people(who: Sequence[str]) -> str:
    """`Ranks 0, 1, 2`, `worker0, worker1`."""
    if len(who) > 1 and all(one.startswith("rank ") for one in who):
        return f"Ranks {several([one.removeprefix('rank ') for one in who])}"
    named = several(who)
    return f"R{named[1:]}" if named.startswith("rank ") else named


def _after(evidence: CaptureEvidence, time_ns: int) -> str:
    return duration(max(0, time_ns - evidence.first_ns))

"""What ties a request to one of those that its sender served then, and what rules the others out.

In: the requests of a session. Out: for each request that code sends its `PossibleCauses`: what it may have
been sent for. Only what must be, or can't be, removes a candidate. What a worker keeps where all of its code
finds it ties nothing: an answer may hold what a thread of the worker fetched, a call may send what was
brought before.

Arguments that tell again and again which request a call was sent for are no coincidence any more (`matched`).
That is a rule of a function that calls another, and holds in every single case of the run, or not at all: one
exception, and nothing is told. It can't know of a program that acts in lock step with what it serves, with
the same values, nor of functions that send each other's values around.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from heapq import heappop, heappush

from rpcinspect.rpc.questions import FETCHES, GENERAL
from rpcinspect.run.possible_causes import CauseColumn, Likelihood, PossibleCauses
from rpcinspect.run.requests import MAX_OPEN, Case, Requests, Serving, Traffic, TypeAndFunction
from rpcinspect.session.identity import WorkerKey
from rpcinspect.session.provenance import Id, What
from rpcinspect.session.uncaptured import NEVER

SCOPE_NS = 250_000_000
"""A fork that is given back within so long of the answer to what brought it was its function's alone; one
that is given back later was kept by the worker."""


def decide(requests: Requests) -> CauseColumn:
    """What explains each request that code sends."""
    senders = [_Sender(requests, member, worker) for member, worker in sorted(requests.workers.items())]
    cases: dict[int, Case] = {}
    for sender in senders:
        cases.update(sender.cases)
    values: Mapping[int, frozenset[int]] = {}
    wanted = {row for case in cases.values() if case.rows for row in (case.row, *case.rows)}
    if wanted:
        values = requests.provenance.values(wanted)
        for sender in senders:
            sender.weigh(values)
    likelihood = Likelihood(requests, cases.values(), values)
    found = CauseColumn(len(requests.begin))
    for row, case in cases.items():
        if case.rows:
            unseen = case.unseen and not case.settled
            found[row] = PossibleCauses(likelihood.order(case), case.own, likelihood.own(case), unseen)
        else:
            found[row] = PossibleCauses((), case.own, case.own, case.unseen)
    return found


class _Sender:
    """A worker with the requests that it sent and their candidates."""

    def __init__(self, requests: Requests, member: WorkerKey, worker: Traffic) -> None:
        self.requests = requests
        self.job, self.name = member
        self.worker = worker
        self.unseen_until, self.unseen_since = requests.unseen_until(member), requests.unseen_since(member)
        self.cases: dict[int, Case] = {}
        """By row, in the order in which they began."""
        self._asynchronous = bool(requests.where(lambda kind: kind.asynchronous, worker.received))
        self._collect()

    def _collect(self) -> None:
        requests = self.requests
        serving = Serving(requests, self.worker.received)
        general = requests.of_types(GENERAL, self.worker.sent)
        for row in sorted(general, key=requests.begin.__getitem__):
            serving.at(requests.begin[row])
            self.cases[row] = self._case(row, serving)

    def _case(self, row: int, serving: Serving) -> Case:
        """A context is that of a thread: whoever sends in one that another worker opened serves a request in
        it, or goes on with an asynchronous function in the thread of one that is. A context that the worker
        opened itself, or none, may be that of a thread or a callback of any request.
        """
        requests, context = self.requests, self.requests.context(row)
        since = requests.wanted(row)
        own = context is None or requests.creators.get((self.job, context)) in (self.name, None)
        rows = [one for one in serving.latest(None if own else context, since) if one != row]
        if not own and self._asynchronous:
            others = [one for one in serving.latest(None, since) if requests.kind(one).asynchronous]
            rows += [one for one in others if one != row and one not in rows]
        unseen = since <= self.unseen_until or requests.begin[row] > self.unseen_since
        return Case(row, rows, own, unseen)

    def weigh(self, values: Mapping[int, frozenset[int]]) -> None:
        """Takes away what evidence rules out."""
        open_cases = [case for case in self.cases.values() if case.rows]
        if not open_cases:
            return
        rrefs, tensors = _RRefs(self), _Tensors(self)
        told = {case.row: rrefs.holders(case) for case in open_cases}
        shared = self._fetch_at_once(told)
        for case in open_cases:
            holders = told[case.row]
            if holders and (len(holders) > 1 or holders[0] not in shared or not self._fetches(case.row)):
                case.rows, case.own, case.settled = holders, False, True
        for case, holder in tensors.holders(self.cases):
            if not case.certain:
                case.settle(holder)
        for row, parent in matched(self.requests, self.worker, self.cases, values).items():
            self.cases[row].settle(parent)

    def _fetches(self, row: int) -> bool:
        return self.requests.kind(row).type in FETCHES

    def _fetch_at_once(self, told: Mapping[int, list[int]]) -> set[int]:
        """Requests for which one fetch began while another one went on: a function waits for each, so that
        several threads have what it brought, maybe those of other requests.
        """
        until: dict[int, int] = {}
        found = set()
        for row, holders in told.items():  # in the order in which they began
            if len(holders) == 1 and self._fetches(row):
                holder = holders[0]
                if self.requests.begin[row] < until.get(holder, -NEVER):
                    found.add(holder)
                until[holder] = max(until.get(holder, -NEVER), self.requests.over(row))
        return found


class _RRefs:
    """What messages bring to one worker, and what it makes; go on with `holders` in the order of time."""

    def __init__(self, sender: _Sender) -> None:
        self._requests = requests = sender.requests
        self._name = sender.name
        self._known: dict[Id, int] = {}
        """RRef → when the worker first had it from a call of its own: it made it, or an answer brought it."""
        deleted: dict[Id, int] = {}
        """Fork → when it was given back."""
        for row in sender.worker.sent:
            for event in requests.events.get(row, ()):
                if event.what == What.MADE:
                    self._know(event.rref, requests.begin[row])
                elif event.what == What.DELETED:
                    deleted.setdefault(event.fork, requests.begin[row])
            answer = requests.answer(row)
            for event in requests.brought(answer) if answer is not None else ():
                self._know(event.rref, requests.over(row))
        self._forks: dict[Id, _Forks] = defaultdict(_Forks)
        for row in sorted(sender.worker.received, key=requests.arrived.__getitem__):
            for event in requests.brought(row):
                self._forks[event.rref].coming.append((row, deleted.get(event.fork, NEVER)))

    def _know(self, rref: Id, time_ns: int) -> None:
        self._known[rref] = min(time_ns, self._known.get(rref, NEVER))

    def holders(self, case: Case) -> list[int]:
        """Returns the candidates of which one sent a request, since only they had an RRef in it."""
        left: list[int] = []
        for rref in self._used(case.row):
            holders = None if case.unseen else self._alone(rref, case)
            if holders and (not left or len(holders) < len(left)):
                left = holders
        return left

    def _used(self, row: int) -> Iterator[Id]:
        """RRefs of others that the sender of a request must have had."""
        job, owners = self._requests.session.job(row), self._requests.owners
        for event in self._requests.events.get(row, ()):
            if event.what in USES and owners.get((job, event.rref)) != self._name:
                yield event.rref

    def _alone(self, rref: Id, case: Case) -> list[int]:
        """The open requests that brought an RRef, if nothing else of the worker had it, and those that use
        what these make, which holds it before their answer is sent."""
        begin = self._requests.begin[case.row]
        if self._known.get(rref, NEVER) <= begin or rref not in self._forks:
            return []
        requests = self._requests
        holders = self._forks[rref].at(begin, requests.wanted(case.row), requests)
        if any(requests.kind(row).asynchronous for row in holders):
            return []  # such a function leaves what it got to whoever sets its future
        made = {event.rref for row in holders for event in requests.made(row)}
        users = {row for row in case.rows if any(event.rref in made for event in requests.brought(row))}
        return sorted(users.union(holders)) if users.union(holders).issubset(case.rows) else []


class _Forks:
    """The forks of one RRef that requests bring to a worker, while time goes on."""

    def __init__(self) -> None:
        self.coming: list[tuple[int, int]] = []
        """(request, when the worker gave the fork back), in the order in which they arrive."""
        self._next = 0
        self._kept_until = -NEVER
        """All code of the worker may have one until then."""
        self._scoped: list[tuple[int, int]] = []
        """(when its request is over and it is gone, request), a heap: forks of their functions alone."""

    def at(self, begin: int, since: int, requests: Requests) -> list[int]:
        """The open requests that alone have the RRef when a request begins that is asked for then or since;
        none if others may have it, or had.
        """
        while self._next < len(self.coming) and requests.arrived[self.coming[self._next][0]] <= begin:
            row, deleted = self.coming[self._next]
            answered = requests.answered(row)
            if answered == NEVER or deleted > answered + SCOPE_NS:
                self._kept_until = max(self._kept_until, deleted)
            else:
                heappush(self._scoped, (max(answered, deleted), row))
            self._next += 1
        while self._scoped and self._scoped[0][0] < begin:
            self._kept_until = max(self._kept_until, heappop(self._scoped)[0])
        if since <= self._kept_until or len(self._scoped) > MAX_OPEN:
            return []
        rows = sorted({row for _, row in self._scoped})
        return [] if any(requests.answered(row) < begin for row in rows) else rows


class _Tensors:
    """Which bytes were brought to one worker, when first and by what."""

    def __init__(self, sender: _Sender) -> None:
        self._requests = requests = sender.requests
        received = sender.worker.received
        answers = [row for row in map(requests.answer, sender.worker.sent) if row is not None]
        self._marks = requests.provenance.tensors({*received, *answers, *sender.cases})
        self._brought: dict[int, list[tuple[int, int]]] = defaultdict(list)
        """Mark → (when it arrived, row) of all that brought it, ascending."""
        for row in sorted((*received, *answers), key=requests.arrived.__getitem__):
            for mark in self._marks.get(row, ()):
                self._brought[mark].append((requests.arrived[row], row))
        opaque = requests.provenance.opaque({*received, *answers})
        self._hidden = min((requests.arrived[row] for row in opaque), default=NEVER)
        """When something came first that has tensors of which nothing is known."""

    def holders(self, cases: Mapping[int, Case]) -> Iterator[tuple[Case, int]]:
        """Cases with the candidate that alone brought bytes which they carry: where all calls of the kind do,
        and were waited for, and there are enough of them to be no coincidence.
        """
        signs: dict[TypeAndFunction, list[Case]] = defaultdict(list)
        for case in cases.values():
            signs[self._requests.sign(case.row)].append(case)
        for its in signs.values():
            if len(its) >= LEAST_MATCHES and not all(case.certain and case.rows for case in its):
                found = [self._holder(case) for case in its]
                if None not in found:
                    yield from ((case, row) for case, row in zip(its, found, strict=True) if row is not None)

    def _holder(self, case: Case) -> int | None:
        requests = self._requests
        begin, found = requests.begin[case.row], set()
        for mark in self._marks.get(case.row, ()):
            before = [row for time_ns, row in self._brought.get(mark, [])[:2] if time_ns < begin]
            if len(before) == 1 and before[0] in case.rows:
                found.add(before[0])
        if len(found) != 1 or case.unseen or self._hidden <= begin:
            return None
        holder = found.pop()
        return holder if requests.waits_for(holder, case.row) else None


USES = frozenset({What.BROUGHT, What.FETCHED, What.DIFFERENTIATED})


LEAST_MATCHES = 5
LEAST_VALUES = 4
"""So many calls, and values, must have told their requests before it is a rule that they do."""


def matched(
    requests: Requests, worker: Traffic, cases: Mapping[int, Case], values: Mapping[int, frozenset[int]]
) -> dict[int, int]:
    """Returns call → the only open request with a value among the call's arguments, where every call of the
    kind has a value of an open request, and many of exactly one."""
    found: dict[int, int] = {}
    signs: dict[TypeAndFunction, list[Case]] = defaultdict(list)
    for case in cases.values():
        signs[requests.sign(case.row)].append(case)
    served: dict[str | None, list[int]] = defaultdict(list)
    for row in worker.received:
        served[requests.kind(row).function].append(row)
    for its in signs.values():
        if any(case.rows and not case.certain for case in its):
            rule = _rule(its, values)
            if all(requests.waits_for(parent, row) for row, parent in rule.items()):
                found |= _of_one_function(requests, served, its, rule)
    return found


def _rule(cases: Sequence[Case], values: Mapping[int, frozenset[int]]) -> dict[int, int]:
    found: dict[int, int] = {}
    marks: set[int] = set()
    for case in cases:
        held = _holders(case, values)
        if not held:
            return {}
        alone = {rows[0]: mark for mark, rows in held.items() if len(rows) == 1}
        if len(alone) == 1:
            ((row, mark),) = alone.items()
            found[case.row] = row
            marks.add(mark)
        elif alone or len(held) < len(values[case.row]):
            return {}  # several are told, or none where there is something that none of them has
    enough = len(found) >= LEAST_MATCHES and len(marks) >= LEAST_VALUES
    return found if enough else {}


def _of_one_function(
    requests: Requests,
    served: Mapping[str | None, Sequence[int]],
    cases: Sequence[Case],
    rule: Mapping[int, int],
) -> dict[int, int]:
    """Returns the matches without those that are certain already, if one function made all of these calls,
    and made one whenever it was called."""
    functions = {requests.kind(parent).function for parent in rule.values()}
    if len(functions) != 1:
        return {}
    callers = len(set(rule.values())) + len(cases) - len(rule)
    if callers < len(served[functions.pop()]):
        return {}
    wanted = {case.row for case in cases if not case.certain and not case.unseen}
    return {row: parent for row, parent in rule.items() if row in wanted}


def _holders(case: Case, values: Mapping[int, frozenset[int]]) -> dict[int, list[int]]:
    """Value of a call → the requests that it may have been sent for which have it."""
    own = values.get(case.row, frozenset())
    held = {mark: [row for row in case.rows if mark in values.get(row, ())] for mark in own}
    return {mark: rows for mark, rows in held.items() if rows}

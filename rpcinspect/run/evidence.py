"""What ties a request to one of those that its sender served then, and what rules the others out.

In: the requests of a session. Out: for each request that code sends a `Verdict`: what it may have been sent
for. Only what must be, or can't be, removes a candidate.

Requests that certainly come from the same code share their candidates (`_Links`): those of one autograd
context that the sender opened itself, and those that use an RRef or a tensor which an answer to another of
them brought.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from msgspec import Struct

from rpcinspect.rpc.questions import FETCHES, GENERAL
from rpcinspect.run.coincidence import matched, never_by_chance, sign_of
from rpcinspect.run.likelihood import Likelihood
from rpcinspect.run.requests import NEVER, Member, Requests, Worker
from rpcinspect.run.serving import Serving
from rpcinspect.session.provenance import Event, Id, What

KEPT_NS = 250_000_000
"""A fork that is given back so long after the answer to what brought it was kept by the worker."""
ROUNDS = 4
"""How often what has become certain is used for what has not."""


class Verdict(Struct, eq=False):
    """What a request may have been sent for."""

    rows: tuple[int, ...]
    """Requests, the likeliest first."""
    own: bool
    """Its sender's own program."""
    own_likely: bool = False

    @property
    def certain(self) -> bool:
        """Whether one explanation is left."""
        return len(self.rows) + self.own == 1


class Case(Struct, eq=False):
    """A request that code sends, and what is left of its candidates."""

    row: int
    rows: list[int]
    own: bool
    settled: bool = False
    """Evidence names one of them."""

    def settle(self, row: int) -> None:
        """Leaves one."""
        self.rows, self.own, self.settled = [row], False, True

    @property
    def certain(self) -> bool:
        """Whether one explanation is left."""
        return len(self.rows) + self.own == 1


def decide(requests: Requests) -> dict[int, Verdict]:
    """A verdict of each request that code sends."""
    senders = [_Sender(requests, member, worker) for member, worker in sorted(requests.workers.items())]
    cases: dict[int, Case] = {}
    for sender in senders:
        cases.update(sender.cases)
    values: Mapping[int, frozenset[int]] = {}
    wanted = {row for case in cases.values() if case.rows for row in (case.row, *case.rows)}
    answers = {requests.answer(row) for row in wanted}
    if wanted:
        tensors = requests.provenance.tensors(wanted | {row for row in answers if row is not None})
        values = requests.provenance.values(wanted)
        for sender in senders:
            sender.weigh(tensors, values)
    likelihood = Likelihood(requests, cases.values(), values)
    return {
        row: Verdict(likelihood.order(case), case.own, likelihood.own(case) if case.rows else case.own)
        for row, case in cases.items()
    }


class _Sender:
    """One worker: what it sent, and what each of that may have been sent for."""

    def __init__(self, requests: Requests, member: Member, worker: Worker) -> None:
        self.requests = requests
        self.job, self.name = member
        self.worker = worker
        self.cases: dict[int, Case] = {}
        """By row, in the order in which they began."""
        self.links = _Links()
        self._collect()

    def _collect(self) -> None:
        requests = self.requests
        serving = Serving(requests, self.worker.received)
        general = [row for row in self.worker.sent if requests.kind(row).type in GENERAL]
        for row in sorted(general, key=requests.begin.__getitem__):
            serving.at(requests.begin[row])
            if not serving:
                self.cases[row] = Case(row, [], True)
                continue
            self.cases[row] = self._case(row, serving)

    def _case(self, row: int, serving: Serving) -> Case:
        requests, context = self.requests, self.requests.context(row)
        kind = requests.kind(row)
        around: tuple[int | None, ...] | None = None
        here = True
        if context is not None:
            here = requests.creator(self.job, context) == self.name
            around = (context, None) if here else (context,)
        elif not kind.builtin:
            around = (None,)  # in a context it would have been wrapped
        rows = [one for one in serving.latest(around) if one != row and self._may_wait(row, one)]
        if context is not None and here and all(requests.inside(one) != context for one in rows):
            self.links.join(row, ("context", context))  # whoever opened it sends all that is in it
        return Case(row, rows, here)

    def _may_wait(self, row: int, one: int) -> bool:
        """Whether a function that is over by its answer can have waited for a fetch: `to_here` blocks."""
        requests = self.requests
        if requests.kind(row).type not in FETCHES or requests.kind(one).asynchronous:
            return True
        return requests.over(row) <= requests.answered(one)

    def weigh(self, tensors: Mapping[int, frozenset[int]], values: Mapping[int, frozenset[int]]) -> None:
        """Takes away what evidence rules out."""
        open_cases = [case for case in self.cases.values() if case.rows]
        if not open_cases:
            return
        for sign in never_by_chance(self.requests, self.worker, self.cases):
            for case in open_cases:
                if sign_of(self.requests, case.row) == sign:
                    case.own = False
        brought = _Brought(self)
        for case in open_cases:
            self._by_rrefs(case, brought)
            self._by_tensors(case, tensors)
            self._by_results(case, tensors, brought)
        for _ in range(ROUNDS):
            left = sum(len(case.rows) + case.own for case in open_cases)
            self._share()
            self._busy(open_cases)
            for row, parent in matched(self.requests, self.cases, values).items():
                self.cases[row].settle(parent)
            if sum(len(case.rows) + case.own for case in open_cases) == left:
                break

    def _by_rrefs(self, case: Case, brought: _Brought) -> None:
        """An RRef is used by code that it was brought to, or that made it."""
        for rref in brought.used(case.row):
            holders = [row for row in case.rows if rref in brought.rrefs(row)]
            kept, calls = brought.kept(rref, case)
            if kept:
                continue
            if holders and not calls:
                case.rows, case.own = holders, False
            elif len(calls) == 1 and not holders:
                self.links.join(case.row, ("call", calls[0]))
                self.links.join(calls[0], ("call", calls[0]))

    def _by_tensors(self, case: Case, tensors: Mapping[int, frozenset[int]]) -> None:
        """Bytes that only one open request brought."""
        found = set()
        for mark in tensors.get(case.row, ()):
            holders = [row for row in case.rows if mark in tensors.get(row, ())]
            if len(holders) == 1:
                found.add(holders[0])
        if len(found) == 1:
            case.settle(found.pop())

    def _by_results(self, case: Case, tensors: Mapping[int, frozenset[int]], brought: _Brought) -> None:
        """An answer that holds what the answer to this request brought, or the RRef that it made."""
        requests = self.requests
        answer = requests.answer(case.row)
        if answer is None or case.settled:
            return
        result = tensors.get(answer, frozenset()) - tensors.get(case.row, frozenset())
        made = brought.made_by(case.row) | brought.rrefs(answer)
        found = []
        for row in case.rows:
            final = requests.answer(row)
            if final is None:
                continue
            held = requests.begin[final] >= requests.over(case.row) and any(
                mark in tensors.get(final, ()) and mark not in tensors.get(row, ()) for mark in result
            )
            if held or made & brought.rrefs(final):
                found.append(row)
        if len(found) == 1:
            case.settle(found[0])

    def _share(self) -> None:
        """What comes from the same code has the same parent."""
        for group in self.links.groups():
            cases = [self.cases[row] for row in group if row in self.cases]
            if len(cases) < 2:
                continue
            common = set(cases[0].rows).intersection(*(case.rows for case in cases[1:]))
            own = all(case.own for case in cases)
            if not common and not own:
                continue  # they contradict each other: damaged times, or code that hands on what it got
            for case in cases:
                case.rows = [row for row in case.rows if row in common]
                case.own = own

    def _busy(self, cases: Sequence[Case]) -> None:
        """A function that waits for a fetch sends nothing meanwhile."""
        requests = self.requests
        spans: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for case in cases:
            if case.certain and case.rows and requests.kind(case.row).type in FETCHES:
                spans[case.rows[0]].append((requests.begin[case.row], requests.over(case.row)))
        several = {row for row, its in spans.items() if _overlap(its)}
        for case in cases:
            if case.certain:
                continue
            begin = requests.begin[case.row]
            left = [
                row
                for row in case.rows
                if row in several or not any(a < begin < b for a, b in spans.get(row, ()))
            ]
            if left or case.own:
                case.rows = left


class _Brought:
    """What messages bring to one worker, and what it makes."""

    def __init__(self, sender: _Sender) -> None:
        self._requests = requests = sender.requests
        self._name = sender.name
        self._received: dict[Id, list[Event]] = defaultdict(list)
        """RRef → the forks of it that requests have brought."""
        self._cases = sender.cases
        self._sources: dict[Id, list[tuple[int, Id]]] = defaultdict(list)
        """RRef → calls of this worker that made it, or whose answer brought it, and the fork."""
        self._deleted: dict[Id, int] = {}
        """Fork → when it was given back."""
        self._rrefs: dict[int, frozenset[Id]] = {}
        for row in sender.worker.received:
            for event in requests.brought(row):
                self._received[event.rref].append(event)
        for row in sender.worker.sent:
            answer = requests.answer(row)
            for event in requests.events.get(row, ()):
                if event.what == What.MADE:
                    self._sources[event.rref].append((row, event.fork))
                elif event.what == What.DELETED:
                    self._deleted.setdefault(event.fork, requests.begin[row])
            for event in requests.brought(answer) if answer is not None else ():
                self._sources[event.rref].append((row, event.fork))

    def rrefs(self, row: int) -> frozenset[Id]:
        """The RRefs that a message brings."""
        known = self._rrefs.get(row)
        if known is None:
            known = frozenset(event.rref for event in self._requests.brought(row))
            self._rrefs[row] = known
        return known

    def made_by(self, row: int) -> frozenset[Id]:
        """The RRef that a remote call makes."""
        events = self._requests.events.get(row, ())
        return frozenset(event.rref for event in events if event.what == What.MADE)

    def used(self, row: int) -> Iterator[Id]:
        """RRefs of others that the sender of a request must have had."""
        for event in self._requests.events.get(row, ()):
            if event.what in USES and self._requests.owner(row, event) != self._name:
                yield event.rref

    def kept(self, rref: Id, case: Case) -> tuple[bool, list[int]]:
        """Whether the worker may have kept the RRef where other code of it finds it; and its own calls before
        this one that made it, or whose answer brought it, if it was not kept.
        """
        requests, begin = self._requests, self._requests.begin[case.row]
        for event in self._received.get(rref, ()):
            row = event.row
            if requests.arrived[row] > begin or requests.answered(row) >= begin:
                continue  # not there yet, or open
            deleted = self._deleted.get(event.fork)
            if deleted is None or deleted > begin:
                return True, []
        calls = []
        for row, fork in self._sources.get(rref, ()):
            known = requests.begin[row] if rref in self.made_by(row) else requests.over(row)
            if row == case.row or known > begin:
                continue
            deleted = self._deleted.get(fork, NEVER)
            if all(deleted > requests.answered(one) + KEPT_NS for one in self._cases[row].rows):
                return True, []  # made by the worker's own program, or kept when what made it was answered
            calls.append(row)
        return False, calls


class _Links:
    """Requests that come from the same code: a union-find over rows and over what they have in common."""

    def __init__(self) -> None:
        self._parents: dict[object, object] = {}
        self._rows: dict[int, None] = {}

    def join(self, row: int, common: object) -> None:
        """A request has this in common with others."""
        self._rows[row] = None
        one, other = self._root(row), self._root(common)
        self._parents[one] = other

    def _root(self, node: object) -> object:
        root = node
        while self._parents.setdefault(root, root) != root:
            root = self._parents[root]
        while self._parents[node] != root:
            self._parents[node], node = root, self._parents[node]
        return root

    def groups(self) -> Iterable[list[int]]:
        """The requests that belong together."""
        found: dict[object, list[int]] = defaultdict(list)
        for row in self._rows:
            found[self._root(row)].append(row)
        return found.values()


def _overlap(spans: list[tuple[int, int]]) -> bool:
    """Whether a function had two fetches under way at once: it has threads of its own."""
    spans = sorted(spans)
    return any(later[0] < earlier[1] for earlier, later in pairwise(spans))


USES = frozenset({What.BROUGHT, What.FETCHED, What.DIFFERENTIATED})

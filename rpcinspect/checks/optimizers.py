"""Which parameters the steps of DistributedOptimizer change, as far as messages tell.

In: a session, and its steps: rows with the context whose gradients each applies. Out: an `OptimizerStep` for
each that was carried out, with the RRefs of what it changes: the parameters that its part of the optimizer
was made with, and the objects that these are known to belong to, since a call on such an object, or given
nothing else, made them or answered with them. Then which RRefs a context used in a forward call, and whether
two are of one object.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from msgspec import Struct

from rpcinspect.pickles.safe_names import MAKE_OPTIMIZERS, STEP_OPTIMIZERS
from rpcinspect.session.model import NONE, AutogradContext, Edge, Session
from rpcinspect.session.provenance import Id, What

MAKES = frozenset(map(str, MAKE_OPTIMIZERS))
STEPS = frozenset(f"{prefix}{name}" for name in STEP_OPTIMIZERS for prefix in ("", "__torch__."))
"""Functions as requests name them; those of TorchScript have a prefix."""

MAX_DEPTH = 4
"""Objects that an object belongs to, one behind the other."""
MAX_FORWARDS = 64
"""Of one RRef, that are compared."""

CallKey = tuple[int, frozenset[int], frozenset[int]]
"""What is called with what: the number of the kind, marks of values, marks of tensors."""


class OptimizerStep(Struct, frozen=True):
    """An optimizer step that a worker carried out for another."""

    arrived_ns: int
    done_ns: int
    """When its answer began."""
    index: int
    context: int
    job: int
    owner: str
    trained: frozenset[Id]
    """RRefs of what it changes; empty where that is not known."""


class _Forward(Struct, frozen=True):
    """A forward call on one RRef whose answer has tensors that require grad."""

    begin_ns: int
    end_ns: int
    request: int
    answer: int


class Optimizers:
    def __init__(self, session: Session, steps: Iterable[tuple[int, int]]) -> None:
        self._session = session
        self._brought: dict[int, dict[Id, None]] = defaultdict(dict)
        """Row → the RRefs that it brings, in order."""
        self._source: dict[tuple[int, Id], int] = {}
        """(job, RRef) → row of the request that made it, or whose answer was the first to bring it."""
        self._remote: dict[tuple[int, Id], int] = {}
        """(job, RRef) → row of the remote call that made it."""
        self._fetched: dict[int, Id] = {}
        self._same: dict[tuple[int, Id, Id], bool] = {}
        columns = session.messages
        for event in session.provenance.events():
            row, job = event.row, session.job(event.row)
            if event.what == What.BROUGHT:
                self._brought[row].setdefault(event.rref)
                at_owner = event.rref[0] == event.owner and not columns.from_client[row]
                if at_owner and columns.partner[row] != NONE:
                    self._source.setdefault((job, event.rref), columns.partner[row])
            elif event.what == What.MADE:
                self._source[job, event.rref] = self._remote[job, event.rref] = row
            elif event.what == What.FETCHED:
                self._fetched[row] = event.rref
        self.parameters = self._of_optimizers()
        """(job, RRef of a part of an optimizer) → the RRefs of its parameters."""
        self.steps = sorted(self._carried_out(steps), key=lambda step: step.arrived_ns)
        """In the order in which they arrived."""

    def _of_optimizers(self) -> Mapping[tuple[int, Id], frozenset[Id]]:
        session, found = self._session, {}
        columns, provenance = session.messages, session.provenance
        for row, brought in self._brought.items():
            if not columns.from_client[row] or provenance.kind_of(row).function not in MAKES:
                continue
            answer = columns.partner[row]
            for optimizer in self._brought.get(answer, ()):
                found[session.job(row), optimizer] = frozenset(brought)
        return found

    def _carried_out(self, steps: Iterable[tuple[int, int]]) -> Iterator[OptimizerStep]:
        session = self._session
        columns = session.messages
        for row, context in steps:
            answer, job, owner = (
                columns.partner[row],
                session.job(row),
                session.destination(row),
            )
            # a worker that steps on its own changes what is its own
            if answer == NONE or session.provenance.kind_of(answer).failed or session.source(row) == owner:
                continue
            trained: set[Id] = set()
            for optimizer in self._brought.get(row, ()):
                for parameter in self.parameters.get((job, optimizer), ()):
                    trained.update(self._belonging(job, parameter))
            arrived, done = columns.end_time_ns[row], columns.time_ns[answer]
            index = int(session.index[row])
            yield OptimizerStep(arrived, done, index, context, job, owner, frozenset(trained))

    def _belonging(self, job: int, rref: Id) -> Iterator[Id]:
        """The RRef, that of the object that it is a part of, and so on."""
        for _ in range(MAX_DEPTH):
            yield rref
            row = self._source.get((job, rref))
            given = [] if row is None else list(self._brought.get(row, ()))
            if row is None or not given:
                return
            callee = self._session.provenance.kind_of(row).callee
            if len(given) > 1 and (callee is None or not callee.through):
                return
            rref = given[0]

    def used(self, context: AutogradContext, edge: Edge) -> frozenset[Id]:
        """The RRefs that the call was given whose result a forward message is; none where it is no result."""
        session = self._session
        answer = int(session.order[edge.forward])
        request = session.messages.partner[answer]
        if session.messages.from_client[answer] or request == NONE:
            return frozenset()
        found = set(self._brought.get(request, ()))
        fetched = self._fetched.get(request)
        while fetched is not None and fetched not in found:
            found.add(fetched)
            made = self._remote.get((context.job, fetched))
            if made is None or session.provenance.context[made] != context.context_id:
                break  # the value was there before: it is not known to be a result of this context
            given = self._brought.get(made, {})
            found.update(given)
            fetched = next(iter(given)) if len(given) == 1 else None
        return frozenset(found)

    def one_object(self, job: int, one: Id, other: Id) -> bool:
        """Whether results prove that two RRefs stand for one object, although each is trained by an optimizer
        of its own: the same call on both gives the same result, which it could not if each object had only
        the steps that its own optimizer made.
        """
        key = (job, min(one, other), max(one, other))
        known = self._same.get(key)
        if known is None:
            known = self._same[key] = self._made_alike(*key) and self._proves(
                self._results(job, one), self._results(job, other)
            )
        return known

    def _made_alike(self, job: int, one: Id, other: Id) -> bool:
        rows = [self._remote.get((job, rref)) for rref in (one, other)]
        first, second = rows
        provenance = self._session.provenance
        if first is None or second is None or provenance.kind[first] != provenance.kind[second]:
            return False
        values = provenance.values({first, second})
        return values[first] == values[second]

    @staticmethod
    def _proves(
        ones: Mapping[tuple[CallKey, int], frozenset[int]],
        others: Mapping[tuple[CallKey, int], frozenset[int]],
    ) -> bool:
        """`_results` of both. Two objects that were made alike and are trained alike have the same results
        after as many steps each, and other ones after another number.
        """
        part = {key for (key, count), result in ones.items() if others.get((key, count), result) != result}
        for (key, count), result in ones.items():
            for (other_key, other_count), other in others.items():
                if key != other_key or result != other:
                    continue
                if count == other_count:
                    if key in part and ones.get((key, 0), result) != result:
                        return True
                elif (
                    ones.get((key, other_count), result) != result
                    or others.get((key, count), result) != result
                ):
                    return True
        return False

    def _results(self, job: int, rref: Id) -> Mapping[tuple[CallKey, int], frozenset[int]]:
        """(call, steps that were made before) → marks of the result; only what can't be mistaken."""
        provenance = self._session.provenance
        forwards = self._forwards.get((job, rref), ())[:MAX_FORWARDS]
        steps = [step for step in self.steps if step.job == job and rref in step.trained]
        requests, answers = [one.request for one in forwards], [one.answer for one in forwards]
        values, tensors = provenance.values(requests), provenance.tensors({*requests, *answers})
        opaque = set(provenance.opaque({*requests, *answers}))
        found: dict[tuple[CallKey, int], frozenset[int]] = {}
        for one in forwards:
            result = tensors[one.answer]
            if not result or opaque & {one.request, one.answer}:
                continue
            if any(step.arrived_ns <= one.end_ns and step.done_ns >= one.begin_ns for step in steps):
                continue
            count = sum(1 for step in steps if step.done_ns < one.begin_ns)
            key = (provenance.kind[one.request], values[one.request], tensors[one.request])
            found.setdefault((key, count), result)
        return found

    @cached_property
    def _forwards(self) -> Mapping[tuple[int, Id], Sequence[_Forward]]:
        session, found = self._session, defaultdict(list)
        columns = session.messages
        for context in session.contexts:
            for edge in context.edges:
                answer = int(session.order[edge.forward])
                request = columns.partner[answer]
                if columns.from_client[answer] or request == NONE:
                    continue
                used = self._brought.get(request, ())
                if len(used) == 1:
                    one = _Forward(columns.end_time_ns[request], columns.time_ns[answer], request, answer)
                    found[context.job, next(iter(used))].append(one)
        return {key: sorted(its, key=lambda one: one.begin_ns) for key, its in found.items()}

"""`optimizer-without-gradients`: an optimizer was stepped without the context that its gradients are in.

Distributed autograd keeps gradients in the context, `.grad` of the parameters stays None, and an optimizer of
torch.optim changes nothing then. It is said of a `step` that was called through an RRef: of one of
torch.optim's classes; or, in the context and without arguments, of the object whose own result the gradients
came for. Never where anything could have told the worker which context it is: then its code may get the
gradients itself. Kept are the rows of such calls.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct, field

from rpcinspect.checks.check import MAX_INDEXES, Check
from rpcinspect.checks.evidence import CaptureEvidence
from rpcinspect.pickles.tree import Dict, Global
from rpcinspect.rpc.callee import PROXIES, Name, name_of
from rpcinspect.rpc.questions import CALLS, arguments_of
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.callees import classes_of
from rpcinspect.session.model import NONE, AutogradContext, Edge, Finding, Session
from rpcinspect.session.provenance import MAX_MARKS, Id, MessageKind, mark_of
from rpcinspect.session.words import counted, numbers, packed, unique

STEP = "step"
OPTIMIZERS = "torch.optim."
PROXY_NAMES = frozenset(map(str, PROXIES))
SCHEDULES = ("torch.optim.lr_scheduler", "torch.optim.swa_utils")
"""Modules below it whose classes have a step that needs no gradients."""


class _PlainStep(Struct, frozen=True):
    """A call of `step` through an RRef that was answered."""

    row: int
    job: int
    caller: str
    owner: str
    rref: Id
    context: int | None
    """In which it was called."""
    name: Name
    optimizer: bool
    """Of a class of torch.optim."""


class _Case(Struct, eq=False):
    """Steps that one caller made alike on one owner."""

    context: int
    edge: Edge
    step: _PlainStep
    contexts: set[int] = field(default_factory=set)
    messages: set[int] = field(default_factory=set)


class PlainSteps(Check):
    WHOLE_JOB = True

    KINDS = CALLS

    def __init__(self) -> None:
        self._calls: dict[int, bool] = {}
        """Row → whether it is given nothing."""

    def feed(self, record: RpcRecord, kind: MessageKind) -> bool:
        callee = kind.callee
        if record.facts.forks and callee is not None and callee.through and callee.what == STEP:
            self._calls[record.row] = _given_nothing(record)
        return False  # what repeats brings no RRef

    def finish(self, evidence: CaptureEvidence) -> Iterable[Finding]:
        if not self._calls:
            return
        session = evidence.session
        contexts: dict[tuple[int, str], list[AutogradContext]] = defaultdict(list)
        for context in session.contexts:
            contexts[context.job, context.creator].append(context)
        brought = session.provenance.brought()
        told = _KnownContexts(evidence)
        found: dict[tuple[int, str, str, str], _Case] = {}
        for step in self._steps(session, brought):
            meant = _meant(evidence, brought, step, contexts.get((step.job, step.caller), ()))
            if meant is None or told.may_know(step.job, step.owner, meant[0]):
                continue
            key = (step.job, step.owner, step.caller, step.name.full)
            case = found.setdefault(key, _Case(*meant, step))
            case.contexts.add(meant[0])
            case.messages |= {meant[1].backward[0], int(session.index[step.row])}
        for case in found.values():
            yield _finding(session, case)

    def _steps(self, session: Session, brought: Mapping[int, Sequence[Id]]) -> Iterator[_PlainStep]:
        """Returns the steps that may have needed gradients, in the order of time."""
        provenance, columns = session.provenance, session.messages
        classes = classes_of(session)
        for row in sorted(self._calls, key=session.index.__getitem__):
            callee = provenance.kind_of(row).callee
            assert callee is not None
            answer, job = columns.partner[row], session.job(row)
            if answer == NONE or provenance.kind_of(answer).failed or row not in brought:
                continue
            made = classes.get((job, brought[row][0]))
            optimizer = _is_optimizer(made) or _is_optimizer(callee.owner)
            context = provenance.context_of(row)
            if optimizer or (self._calls[row] and context is not None):
                ends = session.source(row), session.destination(row)
                yield _PlainStep(row, job, *ends, brought[row][0], context, name_of(callee, made), optimizer)


def _given_nothing(record: RpcRecord) -> bool:
    """Returns whether a call of a method brings nothing but the RRef of its object."""
    args, kwargs = arguments_of(record) or ((), Dict())
    if record.facts.function in PROXY_NAMES and type(args) is tuple and len(args) == 4:
        args, kwargs = args[2], args[3]
    elif type(args) in (tuple, list) and len(args) == 2:
        args = ()
    nothing = type(args) in (tuple, list) and not args and type(kwargs) is Dict and not kwargs.pairs
    return nothing and len(record.facts.forks) == 1 and not record.like.tensors


def _meant(
    evidence: CaptureEvidence,
    brought: Mapping[int, Sequence[Id]],
    step: _PlainStep,
    contexts: Sequence[AutogradContext],
) -> tuple[int, Edge] | None:
    """The context, one of the caller's, whose gradients a step could be for, and an edge that they came by:
    that in which it was called, else the last one whose gradients came before."""
    begin_ns = evidence.session.messages.time_ns[step.row]
    found: tuple[int, int, Edge] | None = None
    for context in contexts:
        if step.context not in (None, context.context_id):
            continue
        for edge in context.edges:
            if edge.sender != step.owner or edge.sender == edge.receiver or not edge.backward:
                continue
            came_ns = evidence.end_ns(edge.backward[0])
            if came_ns > begin_ns or (found is not None and came_ns <= found[0]):
                continue
            if step.optimizer or step.rref in _given(evidence.session, brought, edge):
                found = came_ns, context.context_id, edge
    return None if found is None else found[1:]


def _is_optimizer(name: Global | None) -> bool:
    return name is not None and name.module.startswith(OPTIMIZERS) and name.module not in SCHEDULES


def _given(session: Session, brought: Mapping[int, Sequence[Id]], edge: Edge) -> Sequence[Id]:
    """The RRefs that the call was given whose result a forward message is."""
    answer = int(session.order[edge.forward])
    request = session.messages.partner[answer]
    return () if session.messages.from_client[answer] else brought.get(request, ())


class _KnownContexts:
    """Contexts whose id a worker may know from its requests."""

    def __init__(self, evidence: CaptureEvidence) -> None:
        self._run = evidence
        self._marks: dict[tuple[int, str], frozenset[int] | None] = {}

    def may_know(self, job: int, worker: str, context: int) -> bool:
        """Returns whether a worker may know the context, also where a request is incomplete or requests may
        be missing."""
        key = (job, worker)
        if key not in self._marks:
            self._marks[key] = self._values(job, worker)
        marks = self._marks[key]
        return marks is None or mark_of(context) in marks

    def _values(self, job: int, worker: str) -> frozenset[int] | None:
        """Marks of the values in all requests to a worker."""
        run, session = self._run, self._run.session
        pipes = run.pipes_to.get((job, worker), ())
        if any(run.damaged(pipe, True) for pipe in pipes):
            return None
        columns, provenance = session.messages, session.provenance
        ours = np.isin(np.asarray(columns.pipe), list(pipes))
        ours &= (np.asarray(columns.from_client) != 0) & (np.asarray(columns.control) == 0)
        rows = np.flatnonzero(ours & provenance.of_kinds(lambda kind: kind.type in CALLS)).tolist()
        found: set[int] = set()
        for its in provenance.values(rows).values():
            if len(its) >= MAX_MARKS:
                return None
            found |= its
        return frozenset(found)


def _finding(session: Session, case: _Case) -> Finding:
    owner, caller = case.step.owner, case.step.caller
    number = numbers([int(session.index[case.step.row])])
    more = len(case.contexts) - 1
    others = f"; the same in {counted(more, 'other context')}" if more else ""
    return Finding(
        code="optimizer-without-gradients",
        severity="warning",
        text=f"Gradients of context {packed(case.context)} came to {owner} "
        f"({numbers(case.edge.backward[:1])}), and {caller} called {case.step.name.short} there ({number}), "
        f"but no request told {owner} the context{others}. Distributed autograd keeps gradients in their "
        "context: an optimizer finds no .grad.",
        remedy="Step with DistributedOptimizer(…).step(context_id), or give context_id to the worker, which "
        "gets the gradients by dist_autograd.get_gradients(context_id).",
        messages=tuple(sorted(case.messages))[:MAX_INDEXES],
        workers=unique([owner, caller]),
    )

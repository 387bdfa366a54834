"""`stale-gradient`: an optimizer changed a worker's weights between another context's forward and backward.

Steps are told by the functions by which DistributedOptimizer makes them; each names the context whose
gradients it applies. It is held against another context only if that is known to have used what the step
changed: by the RRefs of both, by results that only one object can give, or since autograd itself says that a
weight was changed under it. If that says so and no step lies wholly between, one that was carried out at its
begin or end is named as what it is: there at that time. Kept are the rows of steps with their contexts, and
those of such errors.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable

from msgspec import Struct, field

from rpcinspect.checks.check import MAX_INDEXES, Check
from rpcinspect.checks.evidence import CaptureEvidence
from rpcinspect.checks.optimizers import STEPS, Optimizers, OptimizerStep
from rpcinspect.late_pattern import late
from rpcinspect.rpc.message import MessageType
from rpcinspect.rpc.questions import CALLS, arguments_of
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.remote_error import error_of
from rpcinspect.rpc.types import unpack_id
from rpcinspect.session.model import NONE, AutogradContext, Edge, Finding
from rpcinspect.session.provenance import Id, MessageKind
from rpcinspect.session.words import counted, numbers, packed, unique

MODIFIED = "needed for gradient computation has been modified by an inplace operation"
"""How autograd says that a backward pass met a weight that is not the one of its forward pass."""

EXPECTED = late(r"expected version (\d{1,12})")
UNKNOWN = 1 << 62
"""Any number of steps may have been before it."""

MAX_BLAMED = 256
"""Gradients that failed of which it is asked what changed weights under them."""
MAX_STEPS = 64
"""Between a forward message and its gradient that are looked at."""


class _Victims(Struct, eq=False):
    """Contexts of one worker, spoilt on one owner by steps of another worker's contexts."""

    first: tuple[int, Edge, OptimizerStep, int]
    """(context, edge, step, gradient)."""
    between: bool
    """Whether that step began after the forward message and was done before the gradient."""
    contexts: set[int] = field(default_factory=set)
    messages: set[int] = field(default_factory=set)


class StaleGradients(Check):
    WHOLE_JOB = True

    KINDS = CALLS | {MessageType.EXCEPTION}

    def __init__(self) -> None:
        self._steps: list[tuple[int, int]] = []
        """(row, context whose gradients are applied)."""
        self._spoilt: dict[int, int] = {}
        """Row of an answer that says that something was changed → the version that was needed."""

    def feed(self, record: RpcRecord, kind: MessageKind) -> bool:
        if kind.function not in STEPS and kind.type != MessageType.EXCEPTION:
            return False
        if kind.function in STEPS:
            context = context_of_step(record)
            if context is not None:
                self._steps.append((record.row, context))
        else:
            error = error_of(record)
            if error is not None and MODIFIED in error.text:
                version = EXPECTED.search(error.text)
                self._spoilt[record.row] = UNKNOWN if version is None else int(version[1])
        return True

    def finish(self, evidence: CaptureEvidence) -> Iterable[Finding]:
        if not self._steps:
            return
        optimizers = Optimizers(evidence.session, self._steps)
        steps: dict[tuple[int, str], list[OptimizerStep]] = defaultdict(list)
        for step in optimizers.steps:
            steps[step.job, step.owner].append(step)
        found: dict[tuple[int, str, str, str], _Victims] = {}
        cases = [
            (context, edge)
            for context in evidence.session.contexts
            for edge in context.edges
            if edge.backward and edge.sender != edge.receiver and (context.job, edge.sender) in steps
        ]
        blamed = {
            edge.forward: self._blamed(evidence, context, edge, steps[context.job, edge.sender])
            for context, edge in [one for one in cases if self._expected(evidence, one[1]) is not None][
                :MAX_BLAMED
            ]
        }
        # where no step can have been it, something else changes what the backward pass needs
        doubtful = {
            (context.job, edge.sender, context.creator)
            for context, edge in cases
            if blamed.get(edge.forward) == []
        }
        for context, edge in cases:
            its, gradient = steps[context.job, edge.sender], edge.backward[0]
            steps_of_others = [
                (step, True) for step in self._guilty(evidence, optimizers, context, edge, its)
            ]
            if not steps_of_others and (context.job, edge.sender, context.creator) not in doubtful:
                steps_of_others = blamed.get(edge.forward, [])
            for step, between in steps_of_others:
                guilty = evidence.session.by_id(unpack_id(step.context)[0], context.job)
                key = (context.job, edge.sender, context.creator, guilty)
                case = (context.context_id, edge, step, gradient)
                victims = found.setdefault(key, _Victims(case, between))
                if between and not victims.between:
                    victims.first, victims.between = case, between
                victims.contexts.add(context.context_id)
                victims.messages |= {edge.forward, step.index, gradient}
        for (_, owner, victim, guilty), victims in found.items():
            yield _finding(owner, victim, guilty, victims)

    def _guilty(
        self,
        evidence: CaptureEvidence,
        optimizers: Optimizers,
        context: AutogradContext,
        edge: Edge,
        steps: list[OptimizerStep],
    ) -> Iterable[OptimizerStep]:
        """The steps of other contexts that changed, between an edge's forward message and its gradient, what
        the forward call used."""
        before_ns = evidence.time_ns(edge.backward[0])
        between = [
            step
            for step in _between(steps, evidence.end_ns(edge.forward), before_ns)
            if step.context != context.context_id and step.done_ns <= before_ns
        ]
        if not between:
            return
        used = optimizers.used(context, edge)
        for step in between:
            if not used.isdisjoint(step.trained) or any(
                optimizers.one_object(context.job, a, b) for a in used for b in step.trained
            ):
                yield step

    def _blamed(
        self, evidence: CaptureEvidence, context: AutogradContext, edge: Edge, steps: list[OptimizerStep]
    ) -> list[tuple[OptimizerStep, bool]]:
        """Where autograd says that something was changed: the steps of other contexts that may have done it,
        and whether they lie wholly between. Else the first of those that were carried out while the forward
        call or the gradient was being dealt with. Each step of an optimizer makes new versions of weights,
        so that one that has made more steps before than there were versions trains other weights."""
        session, columns = evidence.session, evidence.session.messages
        gradient, forward = int(session.order[edge.backward[0]]), int(session.order[edge.forward])
        request = forward if columns.from_client[forward] else columns.partner[forward]
        expected = self._expected(evidence, edge)
        if request == NONE or expected is None:
            return []
        asked_ns, told_ns = columns.end_time_ns[request], columns.end_time_ns[forward]
        came_ns, over_ns = columns.time_ns[gradient], columns.time_ns[columns.partner[gradient]]
        before: dict[tuple[int, frozenset[Id]], int] = defaultdict(int)
        there = []
        for step in steps:
            if step.done_ns <= asked_ns:
                before[run_by(step)] += 1
            elif step.arrived_ns < over_ns and step.context != context.context_id:
                there.append(step)
        there = [step for step in there if before[run_by(step)] <= expected]
        between = [s for s in there if s.arrived_ns > told_ns and s.done_ns <= came_ns][:MAX_STEPS]
        return [(step, True) for step in between] or [(step, False) for step in there[:1]]

    def _expected(self, evidence: CaptureEvidence, edge: Edge) -> int | None:
        """Returns the version that a backward pass needed, where the answer to a gradient reports a changed
        one."""
        answer = evidence.session.messages.partner[int(evidence.session.order[edge.backward[0]])]
        return None if answer == NONE else self._spoilt.get(answer)


def run_by(step: OptimizerStep) -> tuple[int, frozenset[Id]]:
    """Whose optimizer a step is of: the worker, and what it trains."""
    return unpack_id(step.context)[0], step.trained


def _between(steps: list[OptimizerStep], after_ns: int, before_ns: int) -> list[OptimizerStep]:
    """Returns the first few steps between two times."""
    low = bisect_right(steps, after_ns, key=lambda step: step.arrived_ns)
    high = bisect_left(steps, before_ns, key=lambda step: step.arrived_ns)
    return steps[low : min(high, low + MAX_STEPS)]


def context_of_step(record: RpcRecord) -> int | None:
    """The context whose gradients a distributed optimizer's step applies: its second argument."""
    args, _ = arguments_of(record) or ((), None)
    return args[1] if type(args) is tuple and len(args) == 2 and type(args[1]) is int else None


def _finding(owner: str, victim: str, guilty: str, victims: _Victims) -> Finding:
    context, edge, step, gradient = victims.first
    more = len(victims.contexts) - 1
    others = f"; the same in {counted(more, 'other context')} of {victim}" if more else ""
    where = (
        f"etween forward ({numbers([edge.forward])}) and gradient ({numbers([gradient])}) of context "
        f"{packed(context)} on {owner}"
    )
    its = f"the optimizer step {numbers([step.index])} of context {packed(step.context)} ({guilty})"
    if victims.between:
        text = f"B{where}, {its} changed weights there"
    else:
        text = (
            f"What the backward pass needs was changed b{where}, as autograd says, and {its} was carried "
            "out at that time"
        )
    return Finding(
        code="stale-gradient",
        severity="warning",
        text=f"{text}{others}.",
        remedy=f"Let only one trainer at a time be between forward and step on {owner} (a lock, or "
        "gradients that are collected and applied together).",
        messages=tuple(sorted(victims.messages))[:MAX_INDEXES],
        workers=unique([owner, victim, guilty]),
    )

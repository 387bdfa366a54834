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

from rpcinspect.rpc.message import MessageType
from rpcinspect.rpc.questions import CALLS, arguments_of
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.remote_error import error_of
from rpcinspect.session.model import NONE, AutogradContext, Edge, Finding
from rpcinspect.trace.evidence import CaptureEvidence
from rpcinspect.trace.notes import Note
from rpcinspect.trace.optimizers import STEPS, Optimizers, Step
from rpcinspect.trace.stage import MAX_INDEXES, Stage
from rpcinspect.trace.words import counted, numbers, packed, unique

MODIFIED = "needed for gradient computation has been modified by an inplace operation"
"""How autograd says that a backward pass met a weight that is not the one of its forward pass."""

MAX_STEPS = 64
"""Between a forward message and its gradient that are looked at."""


class _Victims(Struct, eq=False):
    """Contexts of one worker, spoilt on one owner by steps of another worker's contexts."""

    first: tuple[int, Edge, Step, int]
    """(context, edge, step, gradient)."""
    between: bool
    """Whether that step began after the forward message and was done before the gradient."""
    contexts: set[int] = field(default_factory=set)
    messages: set[int] = field(default_factory=set)


class StaleGradients(Stage):
    """See the module's text."""

    KINDS = CALLS | {MessageType.EXCEPTION}

    def __init__(self) -> None:
        self._steps: list[tuple[int, int]] = []
        """(row, context whose gradients are applied)."""
        self._spoilt: set[int] = set()
        """Rows of answers that say that a weight was changed."""

    def feed(self, record: RpcRecord, note: Note) -> None:
        if note.function in STEPS:
            context = context_of_step(record)
            if context is not None:
                self._steps.append((record.row, context))
        elif note.kind == MessageType.EXCEPTION:
            error = error_of(record)
            if error is not None and MODIFIED in error.text:
                self._spoilt.add(record.row)

    def indifferent(self, record: RpcRecord, note: Note) -> bool:
        return note.function not in STEPS and note.kind != MessageType.EXCEPTION

    def finish(self, run: CaptureEvidence) -> Iterable[Finding]:
        if not self._steps:
            return
        optimizers = Optimizers(run.session, self._steps)
        steps: dict[tuple[int, str], list[Step]] = defaultdict(list)
        for step in optimizers.steps:
            steps[step.job, step.owner].append(step)
        found: dict[tuple[int, str, str, str], _Victims] = {}
        for context in run.session.contexts:
            for edge in context.edges:
                its = steps.get((context.job, edge.sender))
                if not its or not edge.backward or edge.sender == edge.receiver:
                    continue
                gradient = edge.backward[0]
                guilty_steps = [(step, True) for step in self._guilty(run, optimizers, context, edge, its)]
                guilty_steps = guilty_steps or [
                    (step, False) for step in self._around(run, context, edge, its)
                ]
                for step, between in guilty_steps:
                    guilty = run.creator(step.context, context.job)
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
        run: CaptureEvidence,
        optimizers: Optimizers,
        context: AutogradContext,
        edge: Edge,
        steps: list[Step],
    ) -> Iterable[Step]:
        """The steps of other contexts that changed, between an edge's forward message and its gradient, what
        the forward call used."""
        before_ns = run.time_ns(edge.backward[0])
        between = [
            step
            for step in _between(steps, run.end_ns(edge.forward), before_ns)
            if step.context != context.context_id and step.done_ns <= before_ns
        ]
        if not between:
            return
        used = optimizers.used(context, edge)
        for step in between:
            if (
                not used.isdisjoint(step.trained)
                or self._changed(run, edge.backward[0])
                or any(optimizers.one_object(context.job, a, b) for a in used for b in step.trained)
            ):
                yield step

    def _around(
        self, run: CaptureEvidence, context: AutogradContext, edge: Edge, steps: list[Step]
    ) -> Iterable[Step]:
        """Where autograd says that a weight was changed: the first step of another context that was carried
        out while the forward call or the gradient was being dealt with."""
        session, columns = run.session, run.session.messages
        gradient, forward = int(session.order[edge.backward[0]]), int(session.order[edge.forward])
        if not self._changed(run, edge.backward[0]) or columns.partner[forward] == NONE:
            return
        after_ns = columns.end_time_ns[columns.partner[forward]]
        before_ns = columns.time_ns[columns.partner[gradient]]
        for step in steps[: bisect_left(steps, before_ns, key=lambda step: step.arrived_ns)]:
            if step.done_ns > after_ns and step.context != context.context_id:
                yield step
                return

    def _changed(self, run: CaptureEvidence, gradient: int) -> bool:
        """Whether the answer to a gradient says that a weight was changed."""
        answer = run.session.messages.partner[int(run.session.order[gradient])]
        return answer != NONE and answer in self._spoilt


def _between(steps: list[Step], after_ns: int, before_ns: int) -> list[Step]:
    """The first of those between two times."""
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
    others = f"; so it was in {counted(more, 'other context')} of {victim}" if more else ""
    where = (
        f"etween forward ({numbers([edge.forward])}) and gradient ({numbers([gradient])}) of context "
        f"{packed(context)} on {owner}"
    )
    its = f"the optimizer step {numbers([step.index])} of context {packed(step.context)} ({guilty})"
    if victims.between:
        text = f"B{where}, {its} changed weights there"
    else:
        text = f"Weights were changed b{where}, as autograd says, and {its} was carried out at that time"
    return Finding(
        code="stale-gradient",
        severity="warning",
        text=f"{text}{others}.",
        remedy=f"Let only one trainer at a time be between forward and step on {owner} (a lock, or "
        f"gradients that "
        "are collected and applied together).",
        messages=tuple(sorted(victims.messages))[:MAX_INDEXES],
        workers=unique([owner, victim, guilty]),
    )

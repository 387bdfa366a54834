"""`stale-gradient`: an optimizer changed a worker's weights between another context's forward and backward.

Steps are told by the functions by which DistributedOptimizer makes them; each names the context whose
gradients it applies. Kept are the rows of steps with their contexts; edges and gradients are the session's.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable

from msgspec import Struct, field

from rpcinspect.rpc.questions import CALLS, arguments_of
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.model import Edge, Finding
from rpcinspect.trace.evidence import CaptureEvidence
from rpcinspect.trace.notes import Note
from rpcinspect.trace.stage import MAX_INDEXES, Stage
from rpcinspect.trace.words import counted, numbers, packed, unique

OPTIMIZER = "torch.distributed.optim.optimizer."
STEPS = frozenset(
    {
        f"{OPTIMIZER}_local_optimizer_step",
        f"{OPTIMIZER}_script_local_optimizer_step",
        f"__torch__.{OPTIMIZER}_script_local_optimizer_step",
    }
)
"""Called with an RRef to the optimizer and a context id."""


MAX_STEPS = 64
"""Between a forward message and its gradient that are looked at."""


class _Step(Struct, frozen=True):
    arrived_ns: int
    index: int
    context: int


class _Victims(Struct, eq=False):
    """Contexts of one worker, spoilt on one owner by steps of another worker's contexts."""

    first: tuple[int, Edge, _Step, int]
    """(context, edge, step, gradient)."""
    contexts: set[int] = field(default_factory=set)
    messages: set[int] = field(default_factory=set)


class StaleGradients(Stage):
    """See the module's text."""

    KINDS = CALLS

    def __init__(self) -> None:
        self._steps: list[tuple[int, int]] = []
        """(row, context whose gradients are applied)."""

    def feed(self, record: RpcRecord, note: Note) -> None:
        if note.function in STEPS:
            context = context_of_step(record)
            if context is not None:
                self._steps.append((record.row, context))

    def indifferent(self, record: RpcRecord, note: Note) -> bool:
        return note.function not in STEPS

    def finish(self, run: CaptureEvidence) -> Iterable[Finding]:
        steps = self._by_owner(run)
        found: dict[tuple[int, str, str, str], _Victims] = {}
        for context in run.session.contexts if steps else ():
            for edge in context.edges:
                its = steps.get((context.job, edge.sender), [])
                for gradient in edge.backward[:1] if its else ():
                    for step in _between(its, run.end_ns(edge.forward), run.time_ns(gradient)):
                        if step.context != context.context_id:
                            guilty = run.creator(step.context, context.job)
                            key = (context.job, edge.sender, context.creator, guilty)
                            case = (context.context_id, edge, step, gradient)
                            victims = found.setdefault(key, _Victims(case))
                            victims.contexts.add(context.context_id)
                            victims.messages |= {edge.forward, step.index, gradient}
        for (_, owner, victim, guilty), victims in found.items():
            yield _finding(owner, victim, guilty, victims)

    def _by_owner(self, run: CaptureEvidence) -> dict[tuple[int, str], list[_Step]]:
        """The steps on each worker, as they arrived there."""
        session = run.session
        steps: dict[tuple[int, str], list[_Step]] = defaultdict(list)
        for row, context in self._steps:
            key = (run.job(row), session.destination(row))
            steps[key].append(_Step(session.messages.end_time_ns[row], int(session.index[row]), context))
        return {key: sorted(its, key=lambda step: step.arrived_ns) for key, its in steps.items()}


def _between(steps: list[_Step], after_ns: int, before_ns: int) -> list[_Step]:
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
    return Finding(
        code="stale-gradient",
        severity="warning",
        text=f"Between forward ({numbers([edge.forward])}) and gradient ({numbers([gradient])}) of context "
        f"{packed(context)} on {owner}, the optimizer step {numbers([step.index])} of context "
        f"{packed(step.context)} ({guilty}) changed weights there{others}.",
        remedy=f"Let only one trainer at a time be between forward and step on {owner} (a lock, or "
        f"gradients that "
        "are collected and applied together).",
        messages=tuple(sorted(victims.messages))[:MAX_INDEXES],
        workers=unique([owner, victim, guilty]),
    )

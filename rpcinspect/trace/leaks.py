"""`leaked-context` and `leaked-rref`: what nobody cleaned up although the run went on, or came to its end.

An autograd context is leaked on every worker that took part in it and got no clean-up. An RRef may live as
long as the job, so that one is leaked only if a fork was left when the pipes to its owner were closed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from rpcinspect.session.model import AutogradContext, Finding, RRef
from rpcinspect.trace.evidence import CaptureEvidence
from rpcinspect.trace.stage import MAX_INDEXES, Stage
from rpcinspect.trace.words import counted, packed, several, unique


class LeakedContexts(Stage):
    """See the module's text."""

    def finish(self, run: CaptureEvidence) -> Iterable[Finding]:
        named = {(worker.job, worker.name) for worker in run.session.workers}
        groups: dict[tuple[int, str, tuple[str, ...]], list[AutogradContext]] = defaultdict(list)
        for context in run.session.contexts:
            left = _left_behind(run, context, named)
            if left:
                groups[context.job, context.creator, left].append(context)
        for (_, creator, left), contexts in groups.items():
            indexes = sorted({edge.forward for context in contexts for edge in context.edges})
            names = several([packed(context.context_id) for context in contexts])
            yield Finding(
                code="leaked-context",
                severity="warning",
                text=f"{counted(len(contexts), 'autograd context')} of {creator} ({names}) got no clean-up "
                f"on "
                f"{several(left)}: graph and gradients stay in memory there.",
                remedy="Leave every context (with dist_autograd.context()), also after an error, and while "
                "its "
                "workers are still there.",
                messages=tuple(indexes[:MAX_INDEXES]),
                workers=unique([creator, *left]),
            )


def _left_behind(
    run: CaptureEvidence, context: AutogradContext, named: set[tuple[int, str | None]]
) -> tuple[str, ...]:
    """The workers of a context that should have got a clean-up and did not."""
    session = run.session
    cleaned = {session.destination(int(session.order[index])) for index in context.cleanup}
    left = tuple([w for w in context.workers if w != context.creator and w not in cleaned])
    if not left or any((context.job, worker) not in named for worker in context.workers):
        return ()  # or who is who is not certain
    messages = [index for edge in context.edges for index in (edge.forward, *edge.backward)]
    messages += context.cleanup
    if not messages:
        return ()
    last_ns = max(run.end_ns(index) for index in messages)
    # a worker that left took the context with it
    left = tuple(w for w in left if not run.cut_off(last_ns, until_ns=run.left_ns(w, context.job)))
    if run.damaged_among(context.workers, left):
        return ()
    return left


class LeakedRRefs(Stage):
    """See the module's text."""

    def finish(self, run: CaptureEvidence) -> Iterable[Finding]:
        groups: dict[tuple[int, str, str], list[tuple[RRef, int]]] = defaultdict(list)
        over: dict[tuple[str, int], bool] = {}
        for rref in run.session.rrefs:
            if rref.owner is None or not rref.alive:
                continue
            who = (rref.owner, rref.job)
            if who not in over:
                over[who] = _over(run, *who)
            if not over[who]:
                continue
            for fork in rref.alive:
                if fork.begin is not None and fork.holder is not None:
                    groups[rref.job, rref.owner, fork.holder].append((rref, fork.begin))
        for (_, owner, holder), forks in groups.items():
            names = several(unique(f"{r.rref_id[0]}:{r.rref_id[1]}" for r, _ in forks))
            yield Finding(
                code="leaked-rref",
                severity="warning",
                text=f"{counted(len(forks), 'fork')} of RRefs of {owner} ({names}) held by {holder} had "
                f"not been "
                f"deleted when the connections to {owner} were closed.",
                remedy=f"Drop the RRefs on {holder} before it leaves (del, no reference cycles), and leave "
                f"with "
                "rpc.shutdown(), which waits for the deletes.",
                messages=tuple(sorted(begin for _, begin in forks[:MAX_INDEXES])),
                workers=unique([owner, holder]),
            )


def _over(run: CaptureEvidence, owner: str, job: int) -> bool:
    """Whether every pipe to a worker was closed, after all that was due had come."""
    pipes = run.pipes_to(owner, job)
    return bool(pipes) and all(run.end(pipe) is not None and not run.damaged(pipe, True) for pipe in pipes)

"""Gradients that never came, and passes that never ran: `missing-gradient`, `dangling-send`, `lost-edge`.

In: the session, which has edges, gradients and passes. Out: findings. PyTorch's
distributed backward pass waits for the gradient of every send function that a worker has in the context (the
*FAST* mode of its notes). One that can't come lets it wait forever, without a message that says so. That
holds for each pass of a context, so that one that begins with a later result hangs where an earlier result
got its gradient in a pass before.

A caller that got results that require grad may leave the context without a pass, while others of the job got
their gradients. `loss.backward()` in place of `dist_autograd.backward(context_id, …)` looks like that, and so
does an evaluation. Nothing is said where an error came in between, or where gradients may be in a hole of the
capture; nor of requests whose answer needs no gradient (`detached.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np
from msgspec import Struct, field

from rpcinspect.checks.check import MAX_INDEXES, Check
from rpcinspect.checks.evidence import CaptureEvidence
from rpcinspect.rpc.questions import PASSES
from rpcinspect.session.contexts import first_ns, is_missing, passes
from rpcinspect.session.model import NONE, AutogradContext, Edge, Finding, Session
from rpcinspect.session.provenance import NO_CONTEXT
from rpcinspect.session.words import counted, numbers, packed, several, unique


class LostGradients(Check):
    """Edges that a pass waits for, and those of requests that failed."""

    WHOLE_JOB = True

    def finish(self, evidence: CaptureEvidence) -> Iterable[Finding]:
        session = evidence.session
        failed = set(session.indexes(_failed_requests(session)))
        dangling = {edge.forward for one in session.contexts for edge in one.edges if edge.forward in failed}
        lacking = [one for one in session.contexts if not all(edge.backward for edge in one.edges)]
        begun = passes(session) if lacking or _any_open_pass(session) else {}
        for context in lacking:
            its = begun.get(context.key, ())
            if its:
                yield from _missing(evidence, context, its, dangling, failed)
        for context in session.contexts if begun else ():
            yield from _missing_again(evidence, context, begun.get(context.key, ()))
        yield from _dangling(session, dangling)


def _any_open_pass(session: Session) -> bool:
    """Whether any request that carries a pass to a worker has no answer."""
    of_passes = session.provenance.of_kinds(lambda kind: kind.type in PASSES)
    return bool(np.any(of_passes & (np.asarray(session.messages.partner) == NONE)))


def _missing(
    evidence: CaptureEvidence,
    context: AutogradContext,
    begun: Sequence[int],
    dangling: Collection[int],
    failed: Collection[int],
) -> Iterator[Finding]:
    """The edges of a context that were there when its first pass began, and got nothing."""
    began_ns = first_ns(evidence.session, begun)
    edges = [
        edge
        for edge in context.edges
        if is_missing(evidence.session, edge, began_ns)
        and edge.forward not in dangling
        and not evidence.gradient_may_be_lost(edge, context.job)
    ]
    if not edges or (not context.cleanup and evidence.cut_off(max(map(evidence.end_ns, begun)))):
        return
    broken = sorted(index for edge in context.edges for index in edge.backward if index in failed)
    if broken:
        cause = f"the pass failed in {numbers(broken)}"
        remedy = "Fix that failure first: see the error-response finding."
    else:
        cause = "the loss does not depend on them, and PyTorch waits for every edge"
        remedy = (
            "Let the loss depend on every result that requires grad (0 * result.sum() is enough); make other "
            "calls outside of the context, or with detached tensors."
        )
    text = (
        f"Context {packed(context.context_id)} ran a backward pass, but {counted(len(edges), 'edge')} of "
        f"{len(context.edges):,} got no gradient ({_ways(edges)}): {cause}."
    )
    yield _of_edges("missing-gradient", "error", text, remedy, edges)


def _missing_again(
    evidence: CaptureEvidence, context: AutogradContext, begun: Sequence[int]
) -> Iterator[Finding]:
    """The edges of a worker that got gradients in earlier passes, and none in the one that hangs there."""
    for index, worker in _other_passes(evidence, begun):
        edges = [
            edge
            for edge in context.edges
            if edge.sender == worker
            and edge.backward
            and max(edge.backward) < index
            and edge.forward < index
            and not evidence.gradient_may_be_lost(edge, context.job)
        ]
        if edges:
            text = (
                f"Context {packed(context.context_id)} ran another backward pass (#{index}), but "
                f"{counted(len(edges), 'edge')} of an earlier one got no gradient in it ({_ways(edges)}), "
                "and PyTorch waits for every edge of the context in each pass."
            )
            remedy = (
                "Begin a context of its own for each forward and backward pass, or add up the losses and "
                "run one pass."
            )
            yield _of_edges("missing-gradient", "error", text, remedy, edges, index)


def _other_passes(evidence: CaptureEvidence, begun: Sequence[int]) -> Iterator[tuple[int, str]]:
    """The messages without an answer that began a pass at a worker after others, where that is certain: the
    first message of a pass is answered once the pass is over there.
    """
    session, columns = evidence.session, evidence.session.messages
    over_ns: dict[str, int | None] = {}
    """Worker → when its passes so far were over; None where one is not, or failed."""
    for index in sorted(begun):
        row = int(session.order[index])
        worker, answer, began_ns = session.destination(row), columns.partner[row], columns.time_ns[row]
        before = over_ns.get(worker)
        if answer == NONE:
            if before is not None and before <= began_ns and not evidence.cut_off(began_ns):
                yield index, worker
            over_ns[worker] = None
        elif session.provenance.kind_of(answer).failed:
            over_ns[worker] = None
        elif worker not in over_ns or before is not None:
            over_ns[worker] = max(before or 0, columns.end_time_ns[answer])


def _failed_requests(session: Session) -> list[int]:
    """Returns the rows of requests whose answer is an error."""
    failed = np.flatnonzero(session.provenance.of_kinds(lambda kind: kind.failed))
    rows = np.asarray(session.messages.partner)[failed]
    return [int(row) for row in rows[rows != NONE]]


def _dangling(session: Session, dangling: Collection[int]) -> Iterator[Finding]:
    """Wrapped requests that failed, by who called what."""
    groups: dict[tuple[int, str, str, str], list[Edge]] = defaultdict(list)
    contexts: dict[int, int] = {}
    for context in session.contexts:
        for edge in context.edges:
            if edge.forward in dangling:
                kind = session.provenance.kind_of(int(session.order[edge.forward]))
                key = (context.job, edge.sender, edge.receiver, kind.what)
                groups[key].append(edge)
                contexts[edge.forward] = context.context_id
    for (_, caller, callee, what), edges in groups.items():
        indexes = sorted(edge.forward for edge in edges)
        names = several(unique(packed(contexts[index]) for index in indexes))
        text = (
            f"{callee} answered {counted(len(edges), 'request')} of {caller} ({what} {numbers(indexes)}) in "
            f"context {names} with an error: the send function that {caller} made for it can never get a "
            f"gradient."
        )
        remedy = (
            "Leave the context and begin another one: a backward pass in this one waits for that gradient "
            "forever."
        )
        yield _of_edges("dangling-send", "error", text, remedy, edges)


class _Left(Struct, eq=False):
    """Contexts of one creator that no pass ran in."""

    contexts: list[int] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)


class PasslessContexts(Check):
    """Contexts that were left without a backward pass."""

    WHOLE_JOB = True

    def finish(self, evidence: CaptureEvidence) -> Iterable[Finding]:
        session = evidence.session
        passed: dict[int, int] = defaultdict(int)
        for context in session.contexts:
            passed[context.job] += any(edge.backward for edge in context.edges)
        without = [one for one in session.contexts if passed[one.job] and _left_alone(evidence, one)]
        if not without:
            return
        begun, broken = passes(session), _broken(session)
        found: dict[tuple[int, str], _Left] = defaultdict(_Left)
        for context in without:
            if context.key not in begun and context.key not in broken:
                left = found[context.job, context.creator]
                left.contexts.append(context.context_id)
                left.edges += context.edges
        for (job, creator), left in found.items():
            text = (
                f"{creator} left {counted(len(left.contexts), 'autograd context')} "
                f"({several([packed(context) for context in left.contexts])}) in which no backward pass had "
                "run, although results that require grad came in "
                f"{'it' if len(left.contexts) == 1 else 'them'} ({_ways(left.edges)}); "
                f"{counted(passed[job], 'other context')} of the job got gradients."
            )
            remedy = (
                "Call dist_autograd.backward(context_id, …) in the context: loss.backward() does not know "
                "it. Where no gradient is wanted, as in an evaluation, compute the results under "
                "torch.no_grad()."
            )
            yield _of_edges("lost-edge", "warning", text, remedy, left.edges, first=creator)


def _broken(session: Session) -> set[tuple[int, int]]:
    """Returns (job, context) of contexts in which a request failed or had no answer."""
    columns, contexts = session.messages, session.provenance.context
    open_ones = (np.asarray(columns.from_client) != 0) & (np.asarray(columns.partner) == NONE)
    rows = np.flatnonzero(open_ones & (np.asarray(contexts) != NO_CONTEXT)).tolist()
    return {(session.job(row), contexts[row]) for row in (*rows, *_failed_requests(session))}


def _left_alone(evidence: CaptureEvidence, context: AutogradContext) -> bool:
    """Whether a context was cleaned up without any gradient for a result, as far as the capture shows."""
    columns, order, edges = evidence.session.messages, evidence.session.order, context.edges
    return (
        bool(context.cleanup)
        and not any(edge.backward for edge in edges)
        and any(not columns.from_client[int(order[edge.forward])] for edge in edges)
        and not any(evidence.gradient_may_be_lost(edge, context.job) for edge in edges)
    )


def _ways(edges: Sequence[Edge]) -> str:
    """Returns sender and receiver of edges, with the forward messages."""
    ways = unique(f"{edge.sender} → {edge.receiver}" for edge in edges)
    return f"{several(ways)}: {numbers(sorted(edge.forward for edge in edges))}"


def _of_edges(
    code: str,
    severity: str,
    text: str,
    remedy: str,
    edges: Sequence[Edge],
    *more: int,
    first: str | None = None,
) -> Finding:
    """A finding of edges: their forward messages and `more`, the workers at their ends after the `first`."""
    ends = [name for edge in edges for name in (edge.sender, edge.receiver)]
    return Finding(
        code=code,
        severity=severity,
        text=text,
        remedy=remedy,
        messages=tuple(sorted([*(edge.forward for edge in edges), *more]))[:MAX_INDEXES],
        workers=unique(ends if not first else [first, *ends]),
    )

"""`missing-gradient` and `dangling-send`: send functions whose gradient never came.

PyTorch's distributed backward pass waits for the gradient of every send function that a worker has in the
context (the *FAST* mode of its notes). One that can't come lets it wait forever, without a message that
says so. Edges and gradients are the session's; here are kept only requests that failed and passes that
RRefs began.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable

from rpcinspect.rpc.command import RRefBackwardReq
from rpcinspect.rpc.message import MessageType
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.model import AutogradContext, Edge, Finding
from rpcinspect.trace.evidence import CaptureEvidence
from rpcinspect.trace.notes import Note
from rpcinspect.trace.stage import MAX_INDEXES, Stage
from rpcinspect.trace.words import counted, numbers, packed, several, unique


class LostGradients(Stage):
    """See the module's text."""

    KINDS = (MessageType.RREF_BACKWARD_REQ,)

    def __init__(self) -> None:
        self._failed: list[tuple[int, str]] = []
        """(row, what) of wrapped requests with an edge whose answer is an error."""
        self._rref_passes: list[tuple[int, int]] = []
        """(context, row) of RREF_BACKWARD_REQs."""
        self._failed_passes: list[int] = []
        """Rows of gradient requests whose answer is an error."""

    def feed(self, record: RpcRecord, note: Note) -> None:
        command = record.rpc.command
        if isinstance(command, RRefBackwardReq):
            self._rref_passes.append((command.autograd_context_id, record.row))

    def pair(self, row: int, request: Note, answer_row: int, answer: Note) -> None:
        if not answer.failed:
            return
        if request.wrapped and request.grads:
            self._failed.append((row, request.what))
        elif request.kind == MessageType.BACKWARD_AUTOGRAD_REQ:
            self._failed_passes.append(row)

    def indifferent_pair(self, request: Note, answer: Note) -> bool:
        return not answer.failed

    def finish(self, run: CaptureEvidence) -> Iterable[Finding]:
        session = run.session
        dangling = {int(session.index[row]): what for row, what in self._failed}
        failed = {int(session.index[row]) for row in self._failed_passes}
        began: dict[tuple[int, int], int] = {}
        for context_id, row in self._rref_passes:
            key = (run.job(row), context_id)
            began[key] = min(int(session.index[row]), began.get(key, len(session.messages)))
        for context in session.contexts:
            first = began.get((context.job, context.context_id))
            yield from _missing(run, context, first, dangling, failed)
        yield from _dangling(run, dangling)


def _missing(
    run: CaptureEvidence,
    context: AutogradContext,
    rref_pass: int | None,
    dangling: Collection[int],
    failed: Collection[int],
) -> Iterable[Finding]:
    """The edges of a context that were there when its first pass began, and got nothing."""
    without = [edge for edge in context.edges if not edge.backward and edge.forward not in dangling]
    if not without:
        return
    gradients = sorted(index for edge in context.edges for index in edge.backward)
    begun = [*gradients[:1], *([] if rref_pass is None else [rref_pass])]
    if not begun:
        return
    edges = [
        edge
        for edge in without
        if edge.forward < min(begun) and not run.damaged_between(edge.receiver, edge.sender)
    ]
    latest = max(run.end_ns(index) for index in [*begun, *gradients[-1:]])
    if not edges or (not context.cleanup and run.cut_off(latest)):
        return
    broken = [index for index in gradients if index in failed]
    if broken:
        cause = f"the pass failed in {numbers(broken)}"
        remedy = "Mend that failure first: the error-response finding says what it is."
    else:
        cause = "what the pass began with does not depend on them, and PyTorch waits for every one"
        remedy = (
            "Use every result that requires grad in what the backward pass begins with, "
            "or make such calls outside of the context."
        )
    ways = several(unique(f"{edge.sender} → {edge.receiver}" for edge in edges))
    yield Finding(
        code="missing-gradient",
        severity="error",
        text=f"Context {packed(context.context_id)} ran a backward pass, but {counted(len(edges), 'edge')} "
        f"of "
        f"{len(context.edges):,} got no gradient ({ways}: {numbers(e.forward for e in edges)}): {cause}.",
        remedy=remedy,
        messages=tuple(sorted(edge.forward for edge in edges))[:MAX_INDEXES],
        workers=_workers(edges),
    )


def _dangling(run: CaptureEvidence, dangling: dict[int, str]) -> Iterable[Finding]:
    """Wrapped requests that failed, by who called what."""
    groups: dict[tuple[int, str, str, str], list[Edge]] = defaultdict(list)
    contexts: dict[int, int] = {}
    for context in run.session.contexts:
        for edge in context.edges:
            if edge.forward in dangling:
                key = (context.job, edge.sender, edge.receiver, dangling[edge.forward])
                groups[key].append(edge)
                contexts[edge.forward] = context.context_id
    for (_, caller, callee, what), edges in groups.items():
        indexes = tuple(sorted(edge.forward for edge in edges))
        names = several(unique(packed(contexts[index]) for index in indexes))
        yield Finding(
            code="dangling-send",
            severity="error",
            text=f"{callee} answered {counted(len(edges), 'request')} of {caller} ({what} "
            f"{numbers(indexes)}) in "
            f"context {names} with an error: the send function that {caller} made for it can never get a "
            f"gradient.",
            remedy="Leave the context and begin another one: a backward pass in this one waits for that "
            "gradient "
            "forever.",
            messages=indexes[:MAX_INDEXES],
            workers=unique([caller, callee]),
        )


def _workers(edges: Iterable[Edge]) -> tuple[str, ...]:
    return unique(name for edge in edges for name in (edge.sender, edge.receiver))

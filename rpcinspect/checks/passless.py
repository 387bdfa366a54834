"""`lost-edge`: contexts that were left without a backward pass, while others of the job got their gradients.

In: the contexts of a job, and which of their requests failed. Out: findings. A caller got results that
require grad, and left the context. `loss.backward()` in place of `dist_autograd.backward(context_id, …)`
looks like that, and so does an evaluation. Nothing is said where an error came in between, or where gradients
may be in a hole of the capture; nor of requests whose answer needs no gradient (`detached.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np
from msgspec import Struct, field

from rpcinspect.checks.evidence import CaptureEvidence
from rpcinspect.checks.notes import Note
from rpcinspect.checks.stage import MAX_INDEXES, Stage
from rpcinspect.session.contexts import passes
from rpcinspect.session.model import NONE, AutogradContext, Edge, Finding
from rpcinspect.session.provenance import NO_CONTEXT
from rpcinspect.session.words import counted, numbers, packed, several, unique


class _Left(Struct, eq=False):
    """Contexts of one creator."""

    contexts: list[int] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)


class PasslessContexts(Stage):
    """See the module's text."""

    def __init__(self) -> None:
        self._failed: list[int] = []
        """Rows of requests whose answer is an error."""

    def pair(self, row: int, request: Note, answer_row: int, answer: Note) -> None:
        if answer.failed:
            self._failed.append(row)

    def indifferent_pair(self, request: Note, answer: Note) -> bool:
        return not answer.failed

    def finish(self, run: CaptureEvidence) -> Iterable[Finding]:
        session = run.session
        passed: dict[int, int] = defaultdict(int)
        for context in session.contexts:
            passed[context.job] += any(edge.backward for edge in context.edges)
        without = [one for one in session.contexts if passed[one.job] and _left_alone(run, one)]
        if not without:
            return
        begun, broken = passes(session), self._broken(run)
        found: dict[tuple[int, str], _Left] = defaultdict(_Left)
        for context in without:
            key = (context.job, context.context_id)
            if key not in begun and key not in broken:
                left = found[context.job, context.creator]
                left.contexts.append(context.context_id)
                left.edges += context.edges
        for (job, creator), left in found.items():
            yield _finding(creator, left, passed[job])

    def _broken(self, run: CaptureEvidence) -> set[tuple[int, int]]:
        """(job, context) of those in which a request failed or had no answer."""
        columns, contexts = run.session.messages, run.session.provenance.context
        open_ones = (np.asarray(columns.from_client) != 0) & (np.asarray(columns.partner) == NONE)
        rows = np.flatnonzero(open_ones & (np.asarray(contexts) != NO_CONTEXT)).tolist()
        return {(run.job(row), contexts[row]) for row in (*rows, *self._failed)}


def _left_alone(run: CaptureEvidence, context: AutogradContext) -> bool:
    """Whether a context was cleaned up without any gradient for a result, as far as the capture shows."""
    session = run.session
    return (
        bool(context.cleanup)
        and not any(edge.backward for edge in context.edges)
        and any(not session.messages.from_client[int(session.order[edge.forward])] for edge in context.edges)
        and not any(
            run.damaged_between(edge.receiver, edge.sender) or run.unheard(edge.receiver, context.job)
            for edge in context.edges
        )
    )


def _finding(creator: str, left: _Left, passed: int) -> Finding:
    indexes = sorted(edge.forward for edge in left.edges)
    ways = several(unique(f"{edge.sender} → {edge.receiver}" for edge in left.edges))
    one = len(left.contexts) == 1
    return Finding(
        code="lost-edge",
        severity="warning",
        text=f"{creator} left {counted(len(left.contexts), 'autograd context')} "
        f"({several([packed(context) for context in left.contexts])}) in which no backward pass had run, "
        f"although results that require grad came in {'it' if one else 'them'} ({ways}: {numbers(indexes)}); "
        f"{counted(passed, 'other context')} of the job got gradients.",
        remedy="Call dist_autograd.backward(context_id, …) in the context: loss.backward() does not know it. "
        "Where no gradient is wanted, as in an evaluation, compute the results under torch.no_grad().",
        messages=tuple(indexes[:MAX_INDEXES]),
        workers=unique([creator, *(name for edge in left.edges for name in (edge.sender, edge.receiver))]),
    )

"""What is known of a whole session as rows of tables: captures, workers, pipes, contexts, edges, references,
findings; and its calls.

In: the session, what of it is shown. Out: for each table dicts with a value for each column.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from rpcinspect.fields.plain import Json
from rpcinspect.filter.matches import Shown
from rpcinspect.session.contexts import ContextSpan, context_spans
from rpcinspect.session.model import AutogradContext, Session
from rpcinspect.views.columns import cells_of
from rpcinspect.views.jsonl.calls import CALL, OfSession
from rpcinspect.views.questions.session import (
    CAPTURE,
    CONTEXT,
    FINDING,
    PIPE,
    RREF,
    SPAN,
    WORKER,
    edge_json,
    pipes_of,
)

_context, _span, _call = cells_of(CONTEXT), cells_of(SPAN), cells_of(CALL)


def edge_rows(
    session: Session, contexts: Sequence[AutogradContext], spans: Sequence[ContextSpan]
) -> Iterator[Json]:
    """A row for each edge of each context."""
    columns = session.messages
    for context, span in zip(contexts, spans, strict=True):
        of = {"context_id": context.context_id, "job": context.job}
        for edge, expected in zip(context.edges, span.waited_for, strict=True):
            row = int(session.order[edge.forward])
            of |= {"begin_ns": columns.time_ns[row], "end_ns": columns.end_time_ns[row]}
            yield {**of, **edge_json(edge), "gradient_expected": expected, "gradients": len(edge.backward)}


def call_rows(calls: OfSession) -> Iterator[Json]:
    """A row for each request with its answer."""
    return map(_call, chain.from_iterable(calls.batches(calls.rows)))


def session_rows(session: Session, shown: Shown | None) -> Iterator[tuple[str, Iterable[Json]]]:
    """Yields the rows of each of these tables: all captures, workers and pipes, of the rest what shown
    messages take part in."""
    contexts = session.contexts if shown is None else shown.contexts(session)
    spans = context_spans(session, contexts)
    both = zip(contexts, spans, strict=True)
    yield "captures", map(cells_of(CAPTURE), session.captures)
    yield "workers", map(cells_of(WORKER), session.workers)
    yield "pipes", map(cells_of(PIPE), pipes_of(session))
    yield "contexts", ({**_context(context), **_span(span)} for context, span in both)
    yield "edges", edge_rows(session, contexts, spans)
    yield "rrefs", map(cells_of(RREF), session.rrefs if shown is None else shown.rrefs(session))
    yield "findings", map(cells_of(FINDING), session.findings if shown is None else shown.findings(session))

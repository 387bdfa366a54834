"""What is known of a whole session as rows of tables: captures, workers, pipes, contexts, edges, references,
findings.

In: the session, what of it is shown, and the spans of the contexts that are. Out: for each table dicts with a
value for each column.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter

from rpcinspect.export.parquet.table_file import ParquetRow
from rpcinspect.fields.plain import Picked
from rpcinspect.filter.matches import Shown
from rpcinspect.session.contexts import ContextSpan, context_spans
from rpcinspect.session.model import AutogradContext, CaptureInfo, Finding, Fork, Session
from rpcinspect.views.jsonl.calls import OfSession, call_json
from rpcinspect.views.jsonl.lines import finding_json, pipe_json


def _ids(forks: Sequence[Fork]) -> list[str]:
    return ["{}:{}".format(*fork.fork_id) for fork in forks]


_capture = Picked("number=capture path format packets bytes first_time_ns last_time_ns reader")
_clock = Picked("clock_offset_ns=offset_ns clock_uncertainty_ns=uncertainty_ns clock_applied=certain")
worker_row = Picked("name id worker_group=group job addresses")
_context = Picked("context_id job creator workers edges cleanup", edges=len)
_span = Picked(
    "begin_ns end_ns backward_ns gradients_expected=expected gradients_came=came", gradients_expected=sum
)
_edge = Picked(
    "autograd_message_id sender receiver forward tensors_requiring_grad gradients=backward backward",
    gradients=len,
)
rref_row = Picked(
    "rref_created_on=rref_id rref_local_id=rref_id job owner forks deleted live_forks=alive",
    rref_created_on=itemgetter(0),
    rref_local_id=itemgetter(1),
    forks=_ids,
    deleted=_ids,
    live_forks=_ids,
)


def capture_row(capture: CaptureInfo) -> ParquetRow:
    """The row of a file of the session."""
    return _capture(capture) | ({} if capture.clock is None else _clock(capture.clock))


def pipe_rows(session: Session) -> Iterator[ParquetRow]:
    """A row for each pipe."""
    for pipe in session.pipes:
        if not pipe.logged:
            line = pipe_json(pipe, session)
            yield {**line, "job": session.jobs[pipe.number], "channels": list(line["channels"].items())}


def context_rows(contexts: Sequence[AutogradContext], spans: Sequence[ContextSpan]) -> Iterator[ParquetRow]:
    """A row for each autograd context."""
    for context, span in zip(contexts, spans, strict=True):
        yield {**_context(context), **_span(span), "duration_ns": span.end_ns - span.begin_ns}


def edge_rows(
    session: Session, contexts: Sequence[AutogradContext], spans: Sequence[ContextSpan]
) -> Iterator[ParquetRow]:
    """A row for each edge of each context."""
    columns = session.messages
    for context, span in zip(contexts, spans, strict=True):
        of = {"context_id": context.context_id, "job": context.job}
        for edge, expected in zip(context.edges, span.expected, strict=True):
            row = int(session.order[edge.forward])
            times = {"begin_ns": columns.time_ns[row], "end_ns": columns.end_time_ns[row]}
            yield {**of, **_edge(edge), **times, "gradient_expected": expected}


def call_rows(calls: OfSession) -> Iterator[ParquetRow]:
    """A row for each request with its answer."""
    for batch in calls.batches(calls.rows):
        for call in batch:
            line = call_json(call)
            error = line["error"] or {}
            line |= {f"error_{name}": error.get(name) for name in ("type", "node_id", "text")}
            yield {**line, "kwargs": None if line["kwargs"] is None else list(line["kwargs"].items())}


def finding_row(finding: Finding) -> ParquetRow:
    """The row of a finding; its first worker stands alone too, since engines count list items differently."""
    line = finding_json(finding)
    return {**line, "first_worker": next(iter(line["workers"]), None)}


def session_rows(session: Session, shown: Shown | None) -> Iterator[tuple[str, Iterable[ParquetRow]]]:
    """The rows of each of these tables. Captures, workers and pipes are all told of, of the rest what shown
    messages take part in.
    """
    contexts = session.contexts if shown is None else shown.contexts(session)
    found = context_spans(session, contexts)
    yield "captures", map(capture_row, session.captures)
    yield "workers", map(worker_row, session.workers)
    yield "pipes", pipe_rows(session)
    yield "contexts", context_rows(contexts, found)
    yield "edges", edge_rows(session, contexts, found)
    yield "rrefs", map(rref_row, session.rrefs if shown is None else shown.rrefs(session))
    yield "findings", map(finding_row, session.findings if shown is None else shown.findings(session))

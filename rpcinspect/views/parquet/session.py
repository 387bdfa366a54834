"""What is known of a whole session as rows of tables: captures, workers, pipes, contexts, edges, references,
findings.

In: the session, what of it is shown, and the spans of the contexts that are. Out: for each table dicts with a
value for each column.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rpcinspect.session.contexts import ContextSpan, context_spans
from rpcinspect.session.model import AutogradContext, Finding, Fork, RRef, Session, Worker
from rpcinspect.views.contract.jsonl import capture_json, finding_json, pipe_json, worker_json
from rpcinspect.views.contract.message import text
from rpcinspect.views.shown import Shown

Row = dict[str, Any]


def capture_rows(session: Session) -> Iterator[Row]:
    """A row for each file of the session."""
    for capture in session.captures:
        line, clock = capture_json(capture), capture.clock
        line["number"] = line.pop("capture")
        line["clock_offset_ns"] = None if clock is None else clock.offset_ns
        line["clock_uncertainty_ns"] = None if clock is None else clock.uncertainty_ns
        line["clock_applied"] = None if clock is None else clock.certain
        yield line


def worker_row(worker: Worker) -> Row:
    """The row of a worker."""
    line = worker_json(worker)
    line["worker_group"] = line.pop("group")
    return line


def pipe_rows(session: Session) -> Iterator[Row]:
    """A row for each pipe."""
    for pipe in session.pipes:
        if pipe.logged:
            continue
        line = pipe_json(pipe, session)
        yield {**line, "job": session.jobs[pipe.number], "channels": list(line["channels"].items())}


def context_rows(contexts: Sequence[AutogradContext], spans: Sequence[ContextSpan]) -> Iterator[Row]:
    """A row for each autograd context."""
    for context, span in zip(contexts, spans, strict=True):
        yield {
            "context_id": context.context_id,
            "job": context.job,
            "creator": text(context.creator),
            "workers": [text(worker) for worker in context.workers],
            "edges": len(context.edges),
            "cleanup": context.cleanup,
            "begin_ns": span.begin_ns,
            "end_ns": span.end_ns,
            "duration_ns": span.end_ns - span.begin_ns,
            "backward_ns": span.backward_ns,
            "gradients_expected": sum(span.expected),
            "gradients_came": span.came,
        }


def edge_rows(
    session: Session, contexts: Sequence[AutogradContext], spans: Sequence[ContextSpan]
) -> Iterator[Row]:
    """A row for each edge of each context."""
    columns = session.messages
    for context, span in zip(contexts, spans, strict=True):
        for edge, expected in zip(context.edges, span.expected, strict=True):
            row = int(session.order[edge.forward])
            yield {
                "context_id": context.context_id,
                "job": context.job,
                "autograd_message_id": edge.autograd_message_id,
                "sender": text(edge.sender),
                "receiver": text(edge.receiver),
                "forward": edge.forward,
                "begin_ns": columns.time_ns[row],
                "end_ns": columns.end_time_ns[row],
                "tensors_requiring_grad": edge.tensors_requiring_grad,
                "gradient_expected": expected,
                "gradients": len(edge.backward),
                "backward": edge.backward,
            }


def rref_rows(rrefs: Sequence[RRef]) -> Iterator[Row]:
    """A row for each remote reference."""
    for rref in rrefs:
        yield {
            "rref_created_on": rref.rref_id[0],
            "rref_local_id": rref.rref_id[1],
            "job": rref.job,
            "owner": None if rref.owner is None else text(rref.owner),
            "forks": _ids(rref.forks),
            "deleted": _ids(fork for fork in rref.forks if fork.deleted is not None),
            "live_forks": _ids(rref.alive),
        }


def _ids(forks: Iterable[Fork]) -> list[str]:
    return ["{}:{}".format(*fork.fork_id) for fork in forks]


def finding_row(finding: Finding) -> Row:
    """The row of a finding; its first worker stands alone too, since engines count list items differently."""
    line = finding_json(finding)
    return {**line, "first_worker": next(iter(line["workers"]), None)}


def session_rows(session: Session, shown: Shown | None) -> Iterator[tuple[str, Iterable[Row]]]:
    """The rows of each of these tables. Captures, workers and pipes are all told of, of the rest what shown
    messages take part in.
    """
    contexts = session.contexts if shown is None else shown.contexts(session)
    found = context_spans(session, contexts)
    yield "captures", capture_rows(session)
    yield "workers", map(worker_row, session.workers)
    yield "pipes", pipe_rows(session)
    yield "contexts", context_rows(contexts, found)
    yield "edges", edge_rows(session, contexts, found)
    yield "rrefs", rref_rows(session.rrefs if shown is None else shown.rrefs(session))
    yield "findings", map(finding_row, session.findings if shown is None else shown.findings(session))

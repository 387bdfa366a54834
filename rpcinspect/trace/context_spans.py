"""When each autograd context began, passed backward and ended, and which of its edges had to get a gradient.

In: a session and some of its contexts. Out: a `ContextSpan` for each of these. It says the same as
`graph.read_graphs`, which needs every record.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from msgspec import Struct

from rpcinspect.rpc.questions import PASSES
from rpcinspect.session.model import NONE, AutogradContext, Edge, Session
from rpcinspect.session.provenance import NO_CONTEXT


class ContextSpan(Struct, frozen=True, kw_only=True):
    """What is told of one context; each field is that of `graph.ContextGraph`."""

    begin_ns: int
    end_ns: int
    backward_ns: int | None
    expected: tuple[bool, ...]
    """Of each edge: a gradient came for it, or had to come."""
    came: int


def context_spans(session: Session, contexts: Sequence[AutogradContext]) -> tuple[ContextSpan, ...]:
    """A span of each of the contexts, in their order."""
    pipes = session.messages.pipe
    rows: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row, context in enumerate(session.provenance.context):
        if context != NO_CONTEXT:
            rows[session.jobs[pipes[row]], context].append(row)
    return tuple(_span(session, one, rows.get((one.job, one.context_id), [])) for one in contexts)


def _span(session: Session, context: AutogradContext, rows: list[int]) -> ContextSpan:
    columns, provenance = session.messages, session.provenance
    cleanup = _with_answers(session, [int(session.order[index]) for index in context.cleanup])
    all_rows = _with_answers(session, rows)
    working = all_rows - cleanup or all_rows
    backward = min(
        (columns.time_ns[row] for row in rows if provenance.kind_of(row).type in PASSES), default=None
    )
    return ContextSpan(
        begin_ns=min((columns.time_ns[row] for row in working), default=0),
        end_ns=max((columns.end_time_ns[row] for row in working), default=0),
        backward_ns=backward,
        expected=tuple(_expected(session, edge, backward) for edge in context.edges),
        came=sum(1 for edge in context.edges if edge.backward),
    )


def _with_answers(session: Session, rows: Iterable[int]) -> set[int]:
    """Rows, and those of the answers to the requests among them."""
    columns = session.messages
    found = set()
    for row in rows:
        found.add(row)
        if columns.from_client[row] and columns.partner[row] != NONE:
            found.add(columns.partner[row])
    return found


def _expected(session: Session, edge: Edge, backward_ns: int | None) -> bool:
    if edge.backward:
        return True
    begin = session.messages.time_ns[int(session.order[edge.forward])]
    return backward_ns is not None and begin < backward_ns

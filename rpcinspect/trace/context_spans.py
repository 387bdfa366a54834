"""When each autograd context began, passed backward and ended, and which of its edges had to get a gradient.

In: every record, in any order, then the session and some of its contexts. Out: a `ContextSpan` for each of
these. It says the same as `graph.read_graphs`, which needs all records at once; of a record this keeps five
bytes.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence

from msgspec import Struct

from rpcinspect.rpc.command import PropagateGradientsReq, RRefBackwardReq
from rpcinspect.rpc.questions import context_of
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.model import NONE, AutogradContext, Edge, Session

PASSES = (PropagateGradientsReq, RRefBackwardReq)


class ContextSpan(Struct, frozen=True, kw_only=True):
    """What is told of one context; each field is that of `graph.ContextGraph`."""

    begin_ns: int
    end_ns: int
    backward_ns: int | None
    expected: tuple[bool, ...]
    """Of each edge: a gradient came for it, or had to come."""
    came: int


class ContextSpans:
    """The stage: `feed` every record, then `finish`."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        """Context id → a small number."""
        self._contexts = array("i")
        """Of each row that number, or `NONE`."""
        self._passes = array("b")
        """Of each row: it belongs to a backward pass."""

    def feed(self, record: RpcRecord) -> None:
        """Takes a record."""
        while len(self._contexts) <= record.row:
            self._contexts.append(NONE)
            self._passes.append(False)
        context = context_of(record)
        if context is not None:
            self._contexts[record.row] = self._numbers.setdefault(context, len(self._numbers))
            self._passes[record.row] = isinstance(record.rpc.command, PASSES)

    def finish(self, session: Session, contexts: Sequence[AutogradContext]) -> tuple[ContextSpan, ...]:
        """A span of each of the contexts, in their order."""
        columns = session.messages
        rows: dict[tuple[int, int], list[int]] = defaultdict(list)
        for row, number in enumerate(self._contexts):
            if number != NONE:
                rows[session.jobs[columns.pipe[row]], number].append(row)
        found = []
        for context in contexts:
            key = (context.job, self._numbers.get(context.context_id, NONE))
            found.append(self._span(session, context, rows.get(key, [])))
        return tuple(found)

    def _span(self, session: Session, context: AutogradContext, rows: list[int]) -> ContextSpan:
        columns = session.messages
        cleanup = _with_answers(session, [int(session.order[index]) for index in context.cleanup])
        all_rows = _with_answers(session, rows)
        working = all_rows - cleanup or all_rows
        backward = min((columns.time_ns[row] for row in rows if self._passes[row]), default=None)
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

"""Distributed autograd contexts: their edges, which gradients came back, and when each began and ended.

In: a session, whose provenance says what each message does in a context. Out: an `AutogradContext` for each,
and a `ContextSpan` of those that are asked for. An *edge* is a send function and its recv function: one
forward message with tensors that require grad; its gradients go the other way and name the same autograd
message id.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from rpcinspect.rpc.message import MessageType
from rpcinspect.rpc.questions import PASSES
from rpcinspect.rpc.types import unpack_id
from rpcinspect.session.identity import EndKey
from rpcinspect.session.model import NONE, AutogradContext, Edge, MessageColumns, Session
from rpcinspect.session.provenance import NO_CONTEXT, Provenance


def receivers(
    provenance: Provenance, columns: MessageColumns, ends: Collection[EndKey]
) -> Iterator[tuple[EndKey, EndKey]]:
    """Yields each of these ends with each end that received the forward message of an edge for which the
    first sent a gradient."""
    row, context, message, what = _facts(provenance)
    if not ends or not len(row):
        return
    pipe, client = np.asarray(columns.pipe)[row], np.asarray(columns.from_client)[row]
    sender = pipe * 2 + client
    asked = np.isin(sender, [number * 2 + way for number, way in ends]) & (what == BACKWARD)
    if not asked.any():
        return
    forth = (what > 0) & np.isin(message, message[asked])
    keys = (array[forth].tolist() for array in (context, message, pipe, client))
    receiver: dict[tuple[int, int], set[EndKey]] = defaultdict(set)
    for one, other, number, way in zip(*keys, strict=True):
        receiver[one, other].add((number, not way))
    found = zip(context[asked].tolist(), message[asked].tolist(), sender[asked].tolist(), strict=True)
    for one, other, end in set(found):
        for its in receiver.get((one, other), ()):
            yield (end >> 1, bool(end & 1)), its


def read_contexts(session: Session) -> tuple[AutogradContext, ...]:
    """Returns one record per context and job, by job and id; labels and indexes are the session's."""
    m = session.messages
    row, context, message, what = _facts(session.provenance)
    pipe, index = np.asarray(m.pipe)[row], session.index[row]
    job: NDArray[np.int64] = np.asarray(session.jobs, dtype=np.int64)[pipe]
    # unsigned, ids have their creator in the upper bits: this is the order of unpack_id
    order = np.lexsort((index, context.view(np.uint64), job))
    forth = np.asarray(m.from_client)[row]
    columns = (job, context, message, what, index, pipe, forth)
    *facts, pipes, ways = [column[order].tolist() for column in columns]
    labels = [
        list(zip(session.servers, session.clients, strict=True)),
        list(zip(session.clients, session.servers, strict=True)),
    ]
    ends = [labels[way][pipe] for pipe, way in zip(pipes, ways, strict=True)]
    out = []
    for (number, identifier), its in groupby(zip(*facts, ends, strict=True), key=itemgetter(0, 1)):
        creator = session.by_id(unpack_id(identifier)[0], number)
        out.append(_context(identifier, number, creator, list(its)))
    return tuple(out)


def _facts(provenance: Provenance) -> tuple[NDArray[np.int64], ...]:
    """Returns columns: the row of each message of a context, the context, its autograd message id, and what
    it does: of a wrapped message its tensors that require grad, else one of the numbers below."""
    contexts = np.asarray(provenance.context)
    row = np.flatnonzero(contexts != NO_CONTEXT)
    what = np.asarray([DOES.get(kind.type, kind.grads) for kind in provenance.kinds], dtype=np.int64)
    of_row = what[np.asarray(provenance.kind)[row]]
    return row, contexts[row], np.asarray(provenance.autograd_message)[row], of_row


ContextKey: TypeAlias = tuple[int, int]
"""(job, context)."""

BACKWARD, CLEANUP, TOUCH = -1, -2, -3
DOES: dict[int, int] = {
    MessageType.BACKWARD_AUTOGRAD_REQ: BACKWARD,
    MessageType.CLEANUP_AUTOGRAD_CONTEXT_REQ: CLEANUP,
    MessageType.RREF_BACKWARD_REQ: TOUCH,
}

ContextFact: TypeAlias = tuple[int, int, int, int, int, tuple[str, str]]
"""Job, context; what one message does there: autograd message, what, its index, (sender, receiver)."""


def _context(context: int, job: int, creator: str, facts: Sequence[ContextFact]) -> AutogradContext:
    """The context of one job, from what its messages do, in the order of time."""
    workers: dict[str, None] = {creator: None}
    backward: dict[int, list[int]] = {}
    cleanup: list[int] = []
    for _, _, message, what, at, ends in facts:
        workers[ends[0]] = workers[ends[1]] = None
        if what == BACKWARD:
            backward.setdefault(message, []).append(at)
        elif what == CLEANUP:
            cleanup.append(at)
    # Ids are unique; where one is repeated nevertheless, gradients belong to the first of its messages.
    edges = [
        Edge(
            autograd_message_id=message,
            sender=ends[0],
            receiver=ends[1],
            forward=at,
            tensors_requiring_grad=what,
            backward=tuple(backward.pop(message, ())),
        )
        for _, _, message, what, at, ends in facts
        if what > 0  # without one, addSendRpcBackward is not called: there is no edge
    ]
    return AutogradContext(
        context_id=context,
        creator=creator,
        workers=tuple(workers),
        edges=tuple(edges),
        cleanup=tuple(cleanup),
        job=job,
    )


class ContextSpan(Struct, frozen=True, kw_only=True):
    """Times at which a context began, passed backward and ended."""

    messages: tuple[int, ...]
    """Indexes of all its messages and of the answers to its requests, ascending."""
    begin_ns: int
    """First byte of its first message."""
    end_ns: int
    """Last byte of its last message before the cleanup, answers included."""
    backward_ns: int | None
    """First byte of the first message of a backward pass; None if none crossed the network."""
    waited_for: tuple[bool, ...]
    """Of each edge: a gradient came for it, or had to come."""
    came: int
    """Edges that a gradient came for."""

    @property
    def expected(self) -> int:
        """Edges that a gradient came for, or had to come for."""
        return sum(self.waited_for)


def context_spans(session: Session, contexts: Sequence[AutogradContext]) -> tuple[ContextSpan, ...]:
    """A span of each of the contexts, in their order."""
    pipes = session.messages.pipe
    rows: dict[ContextKey, list[int]] = defaultdict(list)
    for row, context in enumerate(session.provenance.context):
        if context != NO_CONTEXT:
            rows[session.jobs[pipes[row]], context].append(row)
    begun = passes(session)
    return tuple(_span(session, one, rows.get(one.key, ()), begun.get(one.key, ())) for one in contexts)


def _span(
    session: Session, context: AutogradContext, rows: Sequence[int], begun: Sequence[int]
) -> ContextSpan:
    columns, backward_ns = session.messages, first_ns(session, begun)
    cleanup = _with_answers(session, [int(session.order[index]) for index in context.cleanup])
    all_rows = _with_answers(session, rows)
    working = all_rows - cleanup or all_rows
    return ContextSpan(
        messages=session.indexes([*all_rows]),
        begin_ns=min((columns.time_ns[row] for row in working), default=0),
        end_ns=max((columns.end_time_ns[row] for row in working), default=0),
        backward_ns=backward_ns,
        waited_for=tuple(
            bool(edge.backward) or is_missing(session, edge, backward_ns) for edge in context.edges
        ),
        came=sum(1 for edge in context.edges if edge.backward),
    )


def _with_answers(session: Session, rows: Iterable[int]) -> set[int]:
    """Returns rows, and the rows of the answers to requests among them."""
    columns = session.messages
    found = set()
    for row in rows:
        found.add(row)
        if columns.from_client[row] and columns.partner[row] != NONE:
            found.add(columns.partner[row])
    return found


def passes(session: Session) -> dict[ContextKey, list[int]]:
    """(job, context) → indexes of the messages that carried a backward pass to a worker, ascending."""
    found: dict[ContextKey, list[int]] = defaultdict(list)
    for row in np.flatnonzero(session.provenance.of_kinds(lambda kind: kind.type in PASSES)).tolist():
        key = session.job(row), session.provenance.context[row]
        found[key].append(int(session.index[row]))
    return {key: sorted(its) for key, its in found.items()}


def first_ns(session: Session, begun: Sequence[int]) -> int | None:
    """When the first of the `passes` of a context began; None if none crossed the network."""
    return min((session.messages.time_ns[int(session.order[index])] for index in begun), default=None)


def is_missing(session: Session, edge: Edge, backward_ns: int | None) -> bool:
    """Returns whether an edge existed when the first pass of its context began, and got no gradient: the pass
    waits for it."""
    begin_ns = session.messages.time_ns[int(session.order[edge.forward])]
    return not edge.backward and backward_ns is not None and begin_ns < backward_ns

"""The distributed autograd graph of each context: what was sent with grads, and which gradients came back.

In: a run. Out: a `ContextGraph` per context. Edges, messages and times are those of the session
(`session.contexts`), which keeps no records; what only records tell is added here: tensors with their bytes,
names, and which answers are errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from rpcinspect.checks.zeros import all_zeros
from rpcinspect.rpc.command import PropagateGradientsReq
from rpcinspect.rpc.command_codec import message_type_of
from rpcinspect.rpc.message import is_request, type_name
from rpcinspect.rpc.questions import element_bytes, failed
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.contexts import ContextSpan, context_spans
from rpcinspect.session.model import NONE, AutogradContext
from rpcinspect.tcp.ranges import CaptureBytes

if TYPE_CHECKING:
    from rpcinspect.run.run import RunModel


class GraphTensor(Struct, frozen=True, kw_only=True):
    """A tensor on an edge."""

    dtype: str
    shape: tuple[int, ...]
    layout: str
    requires_grad: bool
    nbytes: int
    """Of its elements, those of sparse tensors with their indices."""
    zero: bool = False
    """Its bytes were captured, and all its elements are 0. Told of gradients only."""


class GraphGradient(Struct, frozen=True, kw_only=True):
    """A BACKWARD_AUTOGRAD_REQ of an edge."""

    message: int
    answer: int | None
    begin_ns: int
    end_ns: int
    """When the request was complete."""
    tensors: tuple[GraphTensor, ...]
    nbytes: int
    """Of all tensors of the message, as they travelled."""
    retain_graph: bool
    failed: bool
    """Answered by an error."""

    @property
    def zero(self) -> bool:
        """Whether all tensors that came are zeros."""
        return bool(self.tensors) and all(tensor.zero for tensor in self.tensors)


class GraphEdge(Struct, frozen=True, kw_only=True):
    """An edge from the sender's send function to the receiver's recv function."""

    autograd_message_id: int
    sender: str
    receiver: str
    forward: int
    """Index of the message."""
    answers: int | None
    """The request that it answers; None if it is a request itself, or its request was not captured."""
    what: str
    """The function that is called or that returns, else the kind of message."""
    begin_ns: int
    end_ns: int
    tensors: tuple[GraphTensor, ...]
    nbytes: int
    gradients: tuple[GraphGradient, ...]

    @property
    def tensors_requiring_grad(self) -> int:
        """How many of its tensors do."""
        return sum(tensor.requires_grad for tensor in self.tensors)

    @property
    def backward(self) -> tuple[int, ...]:
        """Indexes of the messages that carried its gradients."""
        return tuple(gradient.message for gradient in self.gradients)


class Passing(Struct, frozen=True, kw_only=True):
    """A message of the context that makes no edge: a call without grads, an answer, a pass that an RRef
    began, cleanup.
    """

    message: int
    source: str
    destination: str
    request: bool
    answers: int | None
    what: str
    kind: str
    """Name of its type, envelopes off."""
    begin_ns: int
    end_ns: int
    failed: bool


class ContextGraph(Struct, frozen=True, kw_only=True):
    """The autograd graph of one context, as far as it was captured."""

    context_id: int
    job: int
    creator: str
    workers: tuple[str, ...]
    """The creator first, then in the order in which they appear."""
    edges: tuple[GraphEdge, ...]
    """In the order of their forward messages."""
    passing: tuple[Passing, ...]
    begin_ns: int
    """First byte of its first message."""
    end_ns: int
    """Last byte of its last message before the cleanup, answers included."""
    backward_ns: int | None
    """First byte of the first message of a backward pass; None if none crossed the network."""
    missing: tuple[GraphEdge, ...]
    """Edges that were there when the first pass began, and got no gradient: it waits for each of them."""
    cleanup: tuple[int, ...]
    shown: frozenset[int] | None = None
    """Indexes of the messages that are to be shown; None: all. What else is told is of the whole context."""

    @property
    def messages(self) -> frozenset[int]:
        """Returns the indexes of all messages of the context."""
        edges = {m for edge in self.edges for m in (edge.forward, *(g.message for g in edge.gradients))}
        return frozenset(edges.union(message.message for message in self.passing))

    def shows(self, message: int) -> bool:
        """Whether a message is to be shown."""
        return self.shown is None or message in self.shown

    def shows_gradient(self, gradient: GraphGradient) -> bool:
        """Returns whether the gradient's message is shown, or the answer to it."""
        return self.shows(gradient.message) or (gradient.answer is not None and self.shows(gradient.answer))

    def shows_edge(self, edge: GraphEdge) -> bool:
        """Returns whether the edge's forward message is shown, or one of its gradients."""
        return self.shows(edge.forward) or any(map(self.shows_gradient, edge.gradients))

    @property
    def gradients(self) -> tuple[GraphGradient, ...]:
        """Returns the gradients of all edges, in the order of time."""
        return tuple(sorted((g for edge in self.edges for g in edge.gradients), key=lambda g: g.message))

    @property
    def expected(self) -> int:
        """Edges that a gradient came for, or had to come for."""
        return self.came + len(self.missing)

    @property
    def came(self) -> int:
        """Edges that a gradient came for."""
        return sum(1 for edge in self.edges if edge.gradients)

    @property
    def zero(self) -> int:
        """Gradients that are all zeros."""
        return sum(gradient.zero for edge in self.edges for gradient in edge.gradients)

    @property
    def failed(self) -> int:
        """Gradients that were answered by an error."""
        return sum(gradient.failed for edge in self.edges for gradient in edge.gradients)

    @property
    def nbytes(self) -> int:
        """Of the tensors of all edges and gradients, as they travelled."""
        return sum(edge.nbytes + sum(gradient.nbytes for gradient in edge.gradients) for edge in self.edges)


def read_graphs(run: RunModel) -> tuple[ContextGraph, ...]:
    """Returns the graphs in the order of the session's contexts. Zero gradients are found only with
    `run.source`, which has the bytes of gradients."""
    reader, contexts = _GraphReader(run), run.session.contexts
    spans = context_spans(run.session, contexts)
    return tuple(reader.graph(*both) for both in zip(contexts, spans, strict=True))


class _GraphReader:
    def __init__(self, run: RunModel) -> None:
        self._run = run
        self._session = run.session
        self._messages = run.messages

    def graph(self, context: AutogradContext, span: ContextSpan) -> ContextGraph:
        edges = tuple(
            self._edge(edge.autograd_message_id, edge.forward, edge.backward) for edge in context.edges
        )
        used = {edge.forward for edge in edges} | {g.message for edge in edges for g in edge.gradients}
        waited = zip(edges, span.waited_for, strict=True)
        return ContextGraph(
            context_id=context.context_id,
            job=context.job,
            creator=context.creator,
            workers=context.workers,
            edges=edges,
            passing=tuple(self._passing(index) for index in span.messages if index not in used),
            begin_ns=span.begin_ns,
            end_ns=span.end_ns,
            backward_ns=span.backward_ns,
            missing=tuple(edge for edge, expected in waited if expected and not edge.gradients),
            cleanup=context.cleanup,
        )

    def _edge(self, message_id: int, index: int, gradients: Sequence[int]) -> GraphEdge:
        record = self._messages[index]
        session, row = self._session, record.row
        return GraphEdge(
            autograd_message_id=message_id,
            sender=session.source(row),
            receiver=session.destination(row),
            forward=index,
            answers=session.answers(row),
            what=self._what(index),
            begin_ns=record.tp.first_ns,
            end_ns=record.tp.last_ns,
            tensors=_tensors(record),
            nbytes=_travelled(record),
            gradients=tuple(self._gradient(gradient) for gradient in gradients),
        )

    def _gradient(self, index: int) -> GraphGradient:
        record = self._messages[index]
        command, answer = record.rpc.command, self._answer(index)
        known = command if isinstance(command, PropagateGradientsReq) else None  # else it was given up since
        return GraphGradient(
            message=index,
            answer=answer,
            begin_ns=record.tp.first_ns,
            end_ns=record.tp.last_ns,
            tensors=() if known is None else _tensors(record, known.grads, self._run.source),
            nbytes=_travelled(record),
            retain_graph=known is not None and known.retain_graph,
            failed=answer is not None and failed(self._messages[answer]),
        )

    def _passing(self, index: int) -> Passing:
        record = self._messages[index]
        session, row = self._session, record.row
        return Passing(
            message=index,
            source=session.source(row),
            destination=session.destination(row),
            request=is_request(record.rpc.message.type),
            answers=session.answers(row),
            what=self._what(index),
            kind=type_name(message_type_of(record.rpc.command)),
            begin_ns=record.tp.first_ns,
            end_ns=record.tp.last_ns,
            failed=failed(record),
        )

    def _answer(self, index: int) -> int | None:
        """The index of the answer to a request."""
        columns = self._session.messages
        row = self._messages[index].row
        partner = columns.partner[row]
        return int(self._session.index[partner]) if columns.from_client[row] and partner != NONE else None

    def _what(self, index: int) -> str:
        """Who is called by a message, or whose result it brings; else the kind of message."""
        record = self._messages[index]
        request = self._session.answers(record.row)
        call = self._run.calls.get(index if request is None else request)
        name = None if call is None or call.name is None else call.name.short
        return name or type_name(message_type_of(record.rpc.command))


def _tensors(
    record: RpcRecord, which: Sequence[int] | None = None, source: CaptureBytes | None = None
) -> tuple[GraphTensor, ...]:
    """The message's own tensors (parts of sparse ones are none), or those that a gradient request lists."""
    metas = record.rpc.tensors
    chosen = [i for i, meta in enumerate(metas) if meta.part_of is None]
    if which is not None:
        chosen = [i for i in which if i < len(metas)]
    return tuple(
        GraphTensor(
            dtype=metas[i].dtype,
            shape=metas[i].sizes,
            layout=metas[i].layout,
            requires_grad=metas[i].requires_grad,
            nbytes=element_bytes(metas, metas[i]),
            zero=source is not None and all_zeros(record, metas[i], source),
        )
        for i in chosen
    )


def _travelled(record: RpcRecord) -> int:
    """Bytes of a message's storages."""
    return sum(tensor.descriptor.length for tensor in record.tp.tensors)

"""What requests depend on beyond their cause: edges, RRefs, forks. One table per job, made once for all
sessions.

In: a session, whose provenance says what each message does to RRefs, and its exchanges. Out: which message
made an edge, an RRef or a fork known, so that whatever builds on it can be skipped where that message is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from msgspec import Struct, field

from rpcinspect.rpc.command import PropagateGradientsReq
from rpcinspect.rpc.envelope import RpcWithAutograd
from rpcinspect.rpc.questions import requires_grad, rref_of
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.run.exchanges import Exchange
from rpcinspect.session.model import Session
from rpcinspect.session.provenance import Event, What

Id = tuple[int, int]


class Carrier(Struct, frozen=True):
    """A message by the request that it belongs to."""

    request: int
    """Index of the request."""
    is_answer: bool
    sender: str
    receiver: str


class JobFacts(Struct, eq=False):
    """What is known in one job; ids are unique in it."""

    edges: dict[Id, Carrier] = field(default_factory=dict)
    """(context, autograd message id) → the forward message that made the edge."""
    gradients: dict[Id, list[int]] = field(default_factory=lambda: defaultdict(list))
    """The same key → the gradient requests that came for it."""
    makers: dict[Id, Carrier] = field(default_factory=dict)
    """RRef → the remote call that makes it."""
    mentions: dict[Id, Carrier] = field(default_factory=dict)
    """RRef → the first message that names it."""
    owners: dict[Id, str] = field(default_factory=dict)
    """RRef → the worker that has its value."""
    forks: dict[Id, Carrier] = field(default_factory=dict)
    """Fork → the message that made it known to its receiver: a remote call, a fork request, a pickle."""
    names: dict[int, str] = field(default_factory=dict)
    """Worker id → name, from autograd envelopes."""


def read_facts(session: Session, calls: Sequence[Exchange]) -> dict[int, JobFacts]:
    """The facts of each job; `calls` are exchanges of the session."""
    found: dict[int, JobFacts] = defaultdict(JobFacts)
    carriers: dict[int, tuple[int, Carrier]] = {}
    """Row → job, and the message."""
    for _, carrier, record, call in _messages(calls):
        _note_edges(found[call.job], carrier, record)
        carriers[record.row] = call.job, carrier
    events = [event for event in session.provenance.events() if event.row in carriers]
    for event in sorted(events, key=lambda event: int(session.index[event.row])):
        job, carrier = carriers[event.row]
        _note_rref(found[job], carrier, event)
    return dict(found)


def read_edges(calls: Sequence[Exchange]) -> dict[Id, Carrier]:
    """(context, autograd message id) → the forward message that made the edge, of calls of one job."""
    facts = JobFacts()
    for _, carrier, record, _ in _messages(calls):
        _note_edges(facts, carrier, record)
    return facts.edges


def _messages(calls: Sequence[Exchange]) -> list[tuple[int, Carrier, RpcRecord, Exchange]]:
    """Requests and answers by index."""
    messages: list[tuple[int, Carrier, RpcRecord, Exchange]] = []
    for call in calls:
        there = Carrier(call.index, False, call.caller, call.callee)
        messages.append((call.index, there, call.request, call))
        if call.response is not None and call.answer is not None:
            back = Carrier(call.index, True, call.callee, call.caller)
            messages.append((call.answer, back, call.response, call))
    return sorted(messages, key=lambda item: item[0])


def edge_of(record: RpcRecord) -> Id | None:
    """(context, autograd message id) of a gradient request."""
    command = record.rpc.command
    if not isinstance(command, PropagateGradientsReq):
        return None
    metadata = command.autograd_metadata
    return metadata.autograd_context_id, metadata.autograd_message_id


def rrefs_in(record: RpcRecord) -> list[Id]:
    """Every RRef that a message uses, but not the one that it makes."""
    rref = rref_of(record)
    found = {fork.rref_id: None for fork in record.facts.forks}
    if rref is not None:
        found[rref] = None
    return list(found)


def _note_edges(facts: JobFacts, carrier: Carrier, record: RpcRecord) -> None:
    for envelope in record.rpc.envelopes:
        if isinstance(envelope, RpcWithAutograd):
            metadata = envelope.autograd_metadata
            facts.names.setdefault(envelope.from_worker_id, carrier.sender)
            if requires_grad(record):
                key = (metadata.autograd_context_id, metadata.autograd_message_id)
                facts.edges.setdefault(key, carrier)
    edge = edge_of(record)
    if edge is not None:
        facts.gradients[edge].append(carrier.request)


def _note_rref(facts: JobFacts, carrier: Carrier, event: Event) -> None:
    rref, fork = event.rref, event.fork
    if event.what is What.MADE:
        facts.makers.setdefault(rref, carrier)
        facts.owners.setdefault(rref, carrier.receiver)
        facts.forks.setdefault(fork, carrier)
    elif event.what is What.BROUGHT:
        facts.mentions.setdefault(rref, carrier)
        facts.forks.setdefault(fork, carrier)
        owner = facts.names.get(event.owner)
        if owner is not None:
            facts.owners.setdefault(rref, owner)
    elif event.what in OF_OWNERS and not carrier.is_answer:
        facts.owners.setdefault(rref, carrier.receiver)
        facts.mentions.setdefault(rref, carrier)
        if event.what is What.REQUESTED:
            facts.forks.setdefault(fork, carrier)


OF_OWNERS = frozenset({What.REQUESTED, What.DELETED, What.FETCHED, What.DIFFERENTIATED})
"""Requests about an RRef, which go to its owner."""

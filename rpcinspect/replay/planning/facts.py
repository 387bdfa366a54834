"""What requests depend on beyond their cause: edges, RRefs, forks. One table per job, made once for all
sessions.

In: exchanges. Out: which message made an edge, an RRef or a fork known, so that whatever builds on it can be
skipped where that message is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from msgspec import Struct, field

from rpcinspect.rpc.command import PropagateGradientsReq
from rpcinspect.rpc.envelope import RpcWithAutograd
from rpcinspect.rpc.message import MessageType
from rpcinspect.rpc.questions import created, fork_of, requires_grad, rref_of
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.run.exchanges import Call

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


def read_facts(calls: Sequence[Call]) -> dict[int, JobFacts]:
    """The facts of each job."""
    found: dict[int, JobFacts] = defaultdict(JobFacts)
    messages: list[tuple[int, Carrier, RpcRecord, Call]] = []
    for call in calls:
        there = Carrier(call.index, False, call.caller, call.callee)
        messages.append((call.index, there, call.request, call))
        if call.response is not None and call.answer is not None:
            back = Carrier(call.index, True, call.callee, call.caller)
            messages.append((call.answer, back, call.response, call))
    for _, carrier, record, call in sorted(messages, key=lambda item: item[0]):
        facts = found[call.job]
        _note_edges(facts, carrier, record)
        _note_rrefs(facts, carrier, record)
    return dict(found)


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


def _note_rrefs(facts: JobFacts, carrier: Carrier, record: RpcRecord) -> None:
    made = created(record)
    if made is not None:
        facts.makers.setdefault(made[0], carrier)
        facts.owners.setdefault(made[0], carrier.receiver)
        facts.forks.setdefault(made[1], carrier)
    for fork in record.facts.forks:
        facts.mentions.setdefault(fork.rref_id, carrier)
        facts.forks.setdefault(fork.fork_id, carrier)
        owner = facts.names.get(fork.owner_id)
        if owner is not None:
            facts.owners.setdefault(fork.rref_id, owner)
    rref, fork_id = rref_of(record), fork_of(record)
    if rref is not None and not carrier.is_answer:
        facts.owners.setdefault(rref, carrier.receiver)  # requests about an RRef go to its owner
        facts.mentions.setdefault(rref, carrier)
        if record.rpc.message.type == MessageType.RREF_FORK_REQUEST and fork_id is not None:
            facts.forks.setdefault(fork_id, carrier)

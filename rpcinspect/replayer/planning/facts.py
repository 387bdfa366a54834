"""What requests depend on beyond their cause: edges, RRefs, forks. One table per job, for all sessions.

In: a run, whose edges and provenance tell which message made an edge, an RRef or a fork known. Out: these
messages by the requests that they belong to: whatever builds on a request is skipped with it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping

from msgspec import Struct, field

from rpcinspect.rpc.command import PropagateGradientsReq
from rpcinspect.rpc.envelope import RpcWithAutograd
from rpcinspect.rpc.questions import rref_of
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.run.exchanges import Exchange
from rpcinspect.run.run import RunModel
from rpcinspect.session.provenance import Event, Id, What


class Carrier(Struct, frozen=True):
    """A message by the request that it belongs to."""

    request: int
    """Index of the request."""
    is_answer: bool
    sender: str
    receiver: str


class JobFacts(Struct, eq=False):
    """RRefs and contexts of one job, within which ids are unique."""

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
    types: dict[Id, str] = field(default_factory=dict)
    """RRef that a message brings → its type there."""

    def type_of(self, rref: Id) -> str:
        """Returns the type of an RRef, which of one that is never brought only Python can use."""
        return self.types.get(rref, "PyObject")


def read_facts(run: RunModel) -> dict[int, JobFacts]:
    """The facts of each job; of a job without calls, empty ones."""
    found: dict[int, JobFacts] = defaultdict(JobFacts)
    carriers = _carriers(run.exchanges.calls)
    for call in run.exchanges.calls:
        facts, edge = found[call.job], edge_of(call.request)
        if edge is not None:
            facts.gradients[edge].append(call.index)
        for record in (call.request, call.response):
            for fork in () if record is None else record.facts.forks:
                facts.types[fork.rref_id] = fork.type_str
    for (job, context, message_id), forward in run.edges.items():
        if forward in carriers:
            found[job].edges[context, message_id] = carriers[forward]
    names: dict[int, dict[int, str]] = defaultdict(dict)
    """Job → worker id → name: from envelopes alone, since a plan takes no label for a worker."""
    for job, name, number in senders(run.exchanges.calls):
        names[job].setdefault(number, name)
    index = run.session.index
    for event in sorted(run.session.provenance.events(), key=lambda event: int(index[event.row])):
        carrier = carriers.get(int(index[event.row]))
        if carrier is not None:
            job = run.calls[carrier.request].job
            _note_rref(found[job], names[job], carrier, event)
    return found


def senders(calls: Iterable[Exchange]) -> Iterator[tuple[int, str, int]]:
    """(job, name, worker id) of the sender of each autograd envelope, which carries that id."""
    for call in calls:
        for name, record in ((call.caller, call.request), (call.callee, call.response)):
            for envelope in () if record is None else record.rpc.envelopes:
                if isinstance(envelope, RpcWithAutograd):
                    yield call.job, name, envelope.from_worker_id


def _carriers(calls: Collection[Exchange]) -> dict[int, Carrier]:
    """Returns requests and answers by their own indexes."""
    found: dict[int, Carrier] = {}
    for call in calls:
        found[call.index] = Carrier(call.index, False, call.caller, call.callee)
        if call.answer is not None:
            found[call.answer] = Carrier(call.index, True, call.callee, call.caller)
    return found


def edge_of(record: RpcRecord) -> Id | None:
    """(context, autograd message id) that a gradient request names; None for any other message."""
    command = record.rpc.command
    if not isinstance(command, PropagateGradientsReq):
        return None
    metadata = command.autograd_metadata
    return metadata.autograd_context_id, metadata.autograd_message_id


def rrefs_in(record: RpcRecord) -> list[Id]:
    """Every RRef that a message uses, without the one that it makes."""
    rref = rref_of(record)
    own = () if rref is None else (rref,)
    return list(dict.fromkeys((*(fork.rref_id for fork in record.facts.forks), *own)))


def _note_rref(facts: JobFacts, names: Mapping[int, str], carrier: Carrier, event: Event) -> None:
    rref, fork = event.rref, event.fork
    if event.what is What.MADE:
        facts.makers.setdefault(rref, carrier)
        facts.owners.setdefault(rref, carrier.receiver)
        facts.forks.setdefault(fork, carrier)
    elif event.what is What.BROUGHT:
        facts.mentions.setdefault(rref, carrier)
        facts.forks.setdefault(fork, carrier)
        if event.owner in names:
            facts.owners.setdefault(rref, names[event.owner])
    elif event.what in OF_OWNERS and not carrier.is_answer:
        facts.owners.setdefault(rref, carrier.receiver)
        facts.mentions.setdefault(rref, carrier)
        if event.what is What.REQUESTED:
            facts.forks.setdefault(fork, carrier)


OF_OWNERS = frozenset({What.REQUESTED, What.DELETED, What.FETCHED, What.DIFFERENTIATED})
"""Requests about an RRef, which go to its owner."""

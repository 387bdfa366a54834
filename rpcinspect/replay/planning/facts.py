"""What requests depend on beyond their cause: edges, RRefs, forks. One table per job, made once for all
sessions.

In: a run, whose contexts and RRefs say which message made an edge, an RRef or a fork known. Out: these
messages by the requests that they belong to, so that whatever builds on one can be skipped where it is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

from msgspec import Struct, field

from rpcinspect.rpc.command import PropagateGradientsReq
from rpcinspect.rpc.questions import rref_of
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.run.exchanges import Exchange
from rpcinspect.run.run import Run
from rpcinspect.session.model import RRef

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
    """RRef → the first message that names it, but for what makes it."""
    owners: dict[Id, str] = field(default_factory=dict)
    """RRef → the worker that has its value."""
    forks: dict[Id, Carrier] = field(default_factory=dict)
    """Fork → the message that made it known to its receiver: a remote call, a fork request, a pickle."""


def read_facts(run: Run) -> dict[int, JobFacts]:
    """The facts of each job."""
    found: dict[int, JobFacts] = defaultdict(JobFacts)
    carriers = _carriers(run.exchanges.calls)
    edges = _edges(run, carriers)
    for call in run.exchanges.calls:
        facts, edge = found[call.job], edge_of(call.request)
        if edge is not None:
            facts.gradients[edge].append(call.index)
    for job, its in edges.items():
        found[job].edges = its
    for rref in (*run.rrefs, *run.session.older_rrefs):
        _note_rref(found[rref.job], rref, carriers)
    return dict(found)


def read_edges(calls: Collection[Exchange]) -> dict[Id, Carrier]:
    """(context, autograd message id) → the forward message that made the edge, of calls of one job."""
    first = next(iter(calls), None)
    return {} if first is None else _edges(first.run, _carriers(calls)).get(first.job, {})


def _edges(run: Run, carriers: Mapping[int, Carrier]) -> dict[int, dict[Id, Carrier]]:
    """By job."""
    found: dict[int, dict[Id, Carrier]] = defaultdict(dict)
    for (job, *edge), forward in run.edges.items():
        if forward in carriers:
            found[job][edge[0], edge[1]] = carriers[forward]
    return found


def _carriers(calls: Collection[Exchange]) -> dict[int, Carrier]:
    """Requests and answers by their own indexes."""
    found: dict[int, Carrier] = {}
    for call in calls:
        found[call.index] = Carrier(call.index, False, call.caller, call.callee)
        if call.answer is not None:
            found[call.answer] = Carrier(call.index, True, call.callee, call.caller)
    return found


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


def _note_rref(facts: JobFacts, rref: RRef, carriers: Mapping[int, Carrier]) -> None:
    made = None if rref.created is None else carriers.get(rref.created)
    naming = [*rref.fetches, *rref.backwards]
    for fork in rref.forks:
        its = [at for at in (fork.begin, fork.requested, fork.deleted) if at is not None and at in carriers]
        naming += [at for at in its if at != rref.created]
        if its and its[0] != fork.deleted:
            facts.forks[fork.fork_id] = carriers[its[0]]
    first = min((at for at in naming if at in carriers), default=None)
    if first is not None:
        facts.mentions[rref.rref_id] = carriers[first]
    if made is not None:
        facts.makers[rref.rref_id] = made
    if rref.owner is not None:
        facts.owners[rref.rref_id] = rref.owner

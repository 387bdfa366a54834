"""`lost-edge` and `detached-parameter`: tensors that require grad at one end, and can't get a gradient there.

A tensor that requires grad in a message without an autograd envelope arrives as a leaf. One in an envelope
has an edge, but if the callee returns nothing that requires grad and sends nothing else in the context,
that edge leads nowhere. An nn.Parameter is pickled by value in either case: its data travels detached.

Nobody waits for a gradient where a parameter is only read, where a module as a whole is put on another
worker, or where a job without any context hands gradients back on its own: tensors of the same shape, the
other way.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from msgspec.structs import replace

from rpcinspect.checks.check import Check, MessageGroup, MessageGroups, finding_of
from rpcinspect.checks.evidence import CaptureEvidence
from rpcinspect.checks.optimizers import Optimizers
from rpcinspect.pickles.python import PythonPickle
from rpcinspect.pickles.semantic import tensor_index
from rpcinspect.pickles.tree import Dict, walk
from rpcinspect.rpc.command_codec import parameter_indexes
from rpcinspect.rpc.message import MessageType
from rpcinspect.rpc.questions import CALLS, FETCHES
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.model import NONE, Finding, Session
from rpcinspect.session.provenance import NO_ID, Id, MessageKind, What
from rpcinspect.session.words import counted, numbers, packed, several, unique

ANSWERED_AT_ONCE = frozenset({MessageType.PYTHON_CALL, MessageType.SCRIPT_CALL})
"""Calls whose result comes back with the answer; that of a remote call stays with the callee."""
REQUESTS = CALLS | FETCHES
"""Requests with tensors of the user's program, in them or in their answers."""
ANSWERS = frozenset(
    {
        MessageType.PYTHON_RET,
        MessageType.SCRIPT_RET,
        MessageType.PYTHON_RREF_FETCH_RET,
        MessageType.SCRIPT_RREF_FETCH_RET,
    }
)

MAX_PLAIN = 4096
"""Messages of one way and sizes that are kept."""

Sizes: TypeAlias = tuple[int, ...]
Way: TypeAlias = tuple[int, int]
"""(pipe, whether it is the client that sends)."""


class DetachedTensors(Check):
    KINDS = REQUESTS | ANSWERS

    def __init__(self) -> None:
        self._bare_rows: dict[int, tuple[Sizes, ...]] = {}
        """Messages with grads and without an autograd envelope → the sizes of their tensors that require
        grad."""
        self._plain: dict[tuple[Way, Sizes], array[int]] = defaultdict(lambda: array("q"))
        """Messages without an envelope whose tensors need no gradient, by the sizes of each."""
        self._parameters = {inside: MessageGroups() for inside in (True, False)}
        """Requests with a trainable nn.Parameter, by whether they are in a context."""

    def feed(self, record: RpcRecord, kind: MessageKind) -> bool:
        if not kind.autograd and record.like.tensors:
            self._note_sizes(record, kind)
        pickle = record.facts.pickle
        if record.facts.parameters and kind.type in CALLS and pickle is not None:
            trainable = parameter_indexes(pickle, trainable=True)
            if not kind.autograd and trainable:
                trainable -= _of_modules(pickle)
            if trainable:
                self._parameters[kind.autograd].add(record.row, kind.what)
        return _bare(kind)  # what repeats has no parameters

    def _note_sizes(self, record: RpcRecord, kind: MessageKind) -> None:
        row, own = record.row, [meta for meta in record.like.tensors if meta.part_of is None]
        if _bare(kind):
            self._bare_rows[row] = tuple({meta.sizes: None for meta in own if meta.requires_grad})
        elif not kind.grads:
            way = record.tp.pipe.number, record.tp.from_client
            for meta in own:
                if len(self._plain[way, meta.sizes]) < MAX_PLAIN:
                    self._plain[way, meta.sizes].append(row)

    def _bare_groups(self, session: Session) -> MessageGroups:
        """Returns requests and answers with grads and without an autograd envelope."""
        groups, kind_of = MessageGroups(), session.provenance.kind_of
        for row in self._bare_rows:
            partner = session.messages.partner[row]
            if kind_of(row).type in REQUESTS:
                groups.add(row, kind_of(row).what)
            elif partner != NONE and kind_of(partner).type in REQUESTS:
                groups.add(row, f"answer of {kind_of(partner).what}")
        return groups

    def finish(self, evidence: CaptureEvidence) -> Iterable[Finding]:
        bare = self._bare_groups(evidence.session)
        for group in bare.gathered(evidence, self._wanted_back(evidence, bare)):
            yield finding_of(
                group,
                "lost-edge",
                "warning",
                f"{counted(len(group.indexes), 'message')} {group.way} ({group.what} "
                f"{numbers(group.indexes)}) had tensors that require grad, but no autograd envelope: they "
                "arrive as leaves, and no gradient comes back.",
                "Make the call inside dist_autograd.context(). Where no gradient is wanted, detach the "
                "tensors before they are sent, or compute them under torch.no_grad().",
            )
        yield from _dead_ends(evidence)
        for inside, groups in self._parameters.items():
            where = "" if inside else ", outside of any autograd context"
            only = "" if inside else " inside dist_autograd.context()"
            for group in groups.gathered(evidence):
                yield finding_of(
                    group,
                    "detached-parameter",
                    "warning",
                    f"{counted(len(group.indexes), 'request')} {group.way} ({group.what} "
                    f"{numbers(group.indexes)}) carried an nn.Parameter{where}: it is pickled as a leaf of "
                    "its own, so that no gradient returns.",
                    f"Send a plain tensor that depends on it (parameter * 1){only}, or an RRef to it. Where "
                    "only its values are wanted, send parameter.detach().",
                )

    def _wanted_back(self, evidence: CaptureEvidence, bare: MessageGroups) -> Collection[int]:
        """Indexes of the messages without an envelope for which somebody may have wanted a gradient."""
        session = evidence.session
        provenance, columns = session.provenance, session.messages
        if not self._bare_rows:
            return ()
        fetches = {event.row: event.rref for event in provenance.events() if event.what == What.FETCHED}
        read: set[tuple[int, Id]] = set()
        if any(columns.partner[row] in fetches for row in self._bare_rows):
            for (job, _), parameters in Optimizers(session, ()).parameters.items():
                read.update((job, parameter) for parameter in parameters)
        with_contexts = {context.job for context in session.contexts}
        wanted: set[int] = set()
        plain = self._plain_of(session)
        for group in bare.finish(evidence):
            rows = [int(session.order[index]) for index in group.indexes]
            rows = [row for row in rows if (group.job, fetches.get(columns.partner[row], NO_ID)) not in read]
            if group.job in with_contexts or not self._handed_back(evidence, group, rows, plain):
                wanted.update(session.indexes(rows))
        return wanted

    def _handed_back(
        self,
        evidence: CaptureEvidence,
        group: MessageGroup,
        rows: Collection[int],
        plain: Mapping[tuple[int, str, str, Sizes], Sequence[int]],
    ) -> bool:
        """Whether for all tensors of some messages alike one of the same shape went the other way afterwards,
        in what is not the request for such a message. It may be the answer to one: what is computed from a
        leaf that requires grad does so too, unless somebody takes care of gradients there.
        """
        columns, index, first = evidence.session.messages, evidence.session.index, group.indexes[0]
        return all(
            any(
                index[one] > first
                and not (columns.from_client[one] and columns.partner[one] in self._bare_rows)
                for one in plain.get((group.job, group.receiver, group.sender, sizes), ())
            )
            for sizes in {sizes for row in rows for sizes in self._bare_rows[row]}
        )

    def _plain_of(self, session: Session) -> Mapping[tuple[int, str, str, Sizes], Sequence[int]]:
        """`_plain` by job, sender and receiver."""
        found: dict[tuple[int, str, str, Sizes], list[int]] = defaultdict(list)
        for (_, sizes), rows in self._plain.items():
            one = rows[0]
            found[session.job(one), session.source(one), session.destination(one), sizes] += rows
        return found


def _dead_ends(evidence: CaptureEvidence) -> Iterable[Finding]:
    """Edges whose receiver sends nothing on in a context in which no pass ran: with one, the lack of a
    gradient is an error of its own."""
    session = evidence.session
    contexts: dict[int, int] = {}
    onward: dict[tuple[int, int], set[str]] = defaultdict(set)
    for context in session.contexts:
        if any(edge.backward for edge in context.edges):
            continue
        for edge in context.edges:
            contexts[edge.forward] = context.context_id
            onward[context.job, context.context_id].add(edge.sender)
    for group in _one_way(session).finish(evidence):
        dead = [
            index
            for index in group.indexes
            if index in contexts and group.receiver not in onward[group.job, contexts[index]]
        ]
        if dead:
            names = several(unique(packed(contexts[index]) for index in dead))
            yield finding_of(
                replace(group, indexes=tuple(dead)),
                "lost-edge",
                "warning",
                f"{group.receiver} got tensors that require grad from {group.sender} ({group.what} "
                f"{numbers(dead)}) and sends none in context {names}: no backward pass can bring their "
                "gradient.",
                "Return what depends on the tensors, or detach them before they are sent: a backward "
                "pass in this context would wait forever.",
            )


def _of_modules(pickle: PythonPickle) -> frozenset[int]:
    """Indexes of the tensors that are parameters of an nn.Module, which travels as a whole."""
    owned = [
        value
        for node in walk([pickle.root])
        if type(node) is Dict
        for key, value in node.pairs
        if key == "_parameters"
    ]
    return frozenset(index for node in walk(owned) if (index := tensor_index(node)) is not None)


def _bare(kind: MessageKind) -> bool:
    """Whether tensors that require grad travel outside of an autograd envelope."""
    return kind.grads > 0 and not kind.autograd and kind.whole


def _one_way(session: Session) -> MessageGroups:
    """Returns requests with an edge whose answer has none."""
    groups, provenance, partner = MessageGroups(), session.provenance, session.messages.partner
    for row in np.flatnonzero(provenance.of_kinds(_may_be_one_way)).tolist():
        answer = None if partner[row] == NONE else provenance.kind_of(partner[row])
        if answer is not None and answer.whole and not (answer.grads or answer.failed):
            groups.add(row, provenance.kind_of(row).what)
    return groups


def _may_be_one_way(kind: MessageKind) -> bool:
    return kind.autograd and kind.grads > 0 and kind.type in ANSWERED_AT_ONCE

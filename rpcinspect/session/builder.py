"""RPC records → a `Session`: exchanges, autograd contexts, RRefs, workers and sums. Pure.

In: records in any order (an answer may become complete before its request). Out: on `finish`, everything that
holds over the whole run. Stays small: a message leaves a row of columns, an autograd edge or an RRef an
entry.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from rpcinspect.errors import Problem
from rpcinspect.rpc.command import (
    CleanupAutogradContextReq,
    PropagateGradientsReq,
    PythonRemoteCall,
    PythonRRefFetchCall,
    RemoteRet,
    RRefBackwardReq,
    RRefChildAccept,
    RRefForkRequest,
    RRefUserDelete,
    ScriptRemoteCall,
    ScriptRRefFetchCall,
)
from rpcinspect.rpc.envelope import RpcWithAutograd
from rpcinspect.rpc.message import type_name
from rpcinspect.rpc.pickle_facts import PickleFacts
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.types import GloballyUniqueId, unpack_id
from rpcinspect.rpclog.header import LoggedFailure
from rpcinspect.session.model import (
    NONE,
    AutogradContext,
    CallFailure,
    CaptureInfo,
    Edge,
    MessageColumns,
    RRef,
    Session,
    Totals,
)
from rpcinspect.session.names import Roster, Witness
from rpcinspect.wire.records import Pipe

MAX_SUM = (1 << 63) - 1
"""Lengths that were announced may be absurd; sums stay numbers that JSON readers can hold."""


class SessionBuilder:
    """The stage: `feed` every record, then `finish`."""

    def __init__(self) -> None:
        self.columns = MessageColumns()
        self.witness = Witness()
        self._open: dict[tuple[int, int], int] = {}
        """(pipe, message id) → row of the side that has come so far."""
        self._by_type: Counter[int] = Counter()
        self._problems = 0
        self._missing_bytes = 0
        self._contexts = _ContextLog()
        self._rrefs = _RRefLog()

    def feed(self, record: RpcRecord) -> None:
        """Takes a record."""
        tp, rpc = record.tp, record.rpc
        columns, row = self.columns, record.row
        facts = record.facts
        pipe = tp.pipe.number
        kind = rpc.message.type
        columns.time_ns.append(tp.first_ns)
        columns.end_time_ns.append(tp.last_ns)
        columns.capture.append(tp.capture)
        columns.packet.append(tp.packet)
        columns.offset.append(tp.offset)
        columns.pipe.append(pipe)
        columns.id.append(rpc.message.id)
        columns.type.append(kind)
        columns.from_client.append(tp.from_client)
        columns.control.append(facts.control)
        columns.partner.append(NONE)
        self._by_type[kind] += 1
        self._pair(row, pipe, rpc.message.id, tp.from_client)
        self._note_command(record, facts)
        for envelope in rpc.envelopes:
            if isinstance(envelope, RpcWithAutograd):
                self._note_autograd(record, envelope)
        self._problems += len(record.problems)
        if tp.payload_missing is not None:
            self._missing_bytes += sum(tp.payload_missing)
        if tp.tensors:
            self._missing_bytes += sum([tensor.missing_bytes for tensor in tp.tensors])

    def _pair(self, row: int, pipe: int, message_id: int, from_client: bool) -> None:
        key = (pipe, message_id)
        other = self._open.get(key)
        if other is None or bool(self.columns.from_client[other]) == from_client:
            self._open[key] = row  # a repeated id: the later one waits for its answer
            return
        del self._open[key]
        self.columns.partner[row] = other
        self.columns.partner[other] = row

    def _note_command(self, record: RpcRecord, facts: PickleFacts) -> None:
        command, row = record.rpc.command, record.row
        pipe, from_client = record.tp.pipe.number, record.tp.from_client
        if facts.responder is not None and not from_client:
            self.witness.id(pipe, False, facts.responder[0])
            self.witness.name(pipe, False, facts.responder[1])
        if facts.sender is not None and from_client:
            self.witness.name(pipe, True, facts.sender)
        if facts.receiver is not None and from_client:
            self.witness.name(pipe, False, facts.receiver)
        for fork in facts.forks:
            carried = (pipe, not from_client)
            self._rrefs.fork(
                GloballyUniqueId(*fork.rref_id), GloballyUniqueId(*fork.fork_id), carried, fork.owner_id
            )
        if isinstance(command, (PythonRemoteCall, ScriptRemoteCall)):
            self._rrefs.create(command.ret_rref_id, command.ret_fork_id, (pipe, False))
        elif isinstance(command, RemoteRet):
            self._rrefs.create(command.rref_id, command.fork_id, (pipe, False))
        elif isinstance(command, RRefUserDelete):
            self._rrefs.delete(command.rref_id, command.fork_id, (pipe, False))
        elif isinstance(command, RRefForkRequest):
            self._rrefs.create(command.rref_id, command.fork_id, (pipe, False))
        elif isinstance(command, RRefChildAccept):
            pass  # names a fork that its FORK_REQUEST or its pickle has named with its RRef
        elif isinstance(command, (PythonRRefFetchCall, ScriptRRefFetchCall)):
            self.witness.id(pipe, False, command.from_worker_id)
        elif isinstance(command, PropagateGradientsReq):
            metadata = command.autograd_metadata
            self._contexts.backward(metadata.autograd_context_id, metadata.autograd_message_id, row)
        elif isinstance(command, CleanupAutogradContextReq):
            self._contexts.cleanup(command.context_id, row)
        elif isinstance(command, RRefBackwardReq):
            self._contexts.touch(command.autograd_context_id, row)

    def _note_autograd(self, record: RpcRecord, envelope: RpcWithAutograd) -> None:
        metadata = envelope.autograd_metadata
        tensors = sum(1 for meta in record.rpc.tensors if meta.requires_grad and meta.part_of is None)
        self._contexts.forward(
            metadata.autograd_context_id, metadata.autograd_message_id, record.row, tensors
        )
        self.witness.id(record.tp.pipe.number, record.tp.from_client, envelope.from_worker_id)

    def finish(
        self,
        *,
        captures: Sequence[CaptureInfo],
        pipes: Sequence[Pipe],
        roster: Roster,
        problems: Sequence[Problem],
        rpc_bytes: int,
        tensor_bytes: int,
        skipped_bytes: int,
        store_bytes: int,
        by_completion: bool = False,
        failed: Iterable[tuple[int, LoggedFailure]] = (),
    ) -> Session:
        """Everything; the arguments are what the stages below have counted and kept.

        `by_completion`: indexes count messages as they became complete, not as they were sent; `failed`:
        (pipe, call that ended without an answer).
        """
        columns = self.columns
        order = np.arange(len(columns)) if by_completion else columns.order()
        index = np.empty(len(order), dtype=np.int64)
        index[order] = np.arange(len(order))
        self._spread_control()
        by_type = {type_name(kind): count for kind, count in sorted(self._by_type.items())}
        session = Session(
            captures=tuple(captures),
            workers=roster.workers,
            pipes=tuple(pipes),
            clients=roster.clients,
            servers=roster.servers,
            jobs=roster.jobs,
            messages=columns,
            order=order,
            index=index,
            contexts=(),
            rrefs=self._rrefs.finish(roster),
            findings=(),
            totals=Totals(
                messages=len(columns),
                by_type=by_type,
                problems=self._problems + len(problems),
                rpc_bytes=rpc_bytes,
                tensor_bytes=tensor_bytes,
                missing_bytes=min(self._missing_bytes, MAX_SUM),
                skipped_bytes=skipped_bytes,
                store_bytes=store_bytes,
            ),
            problems=tuple(problems),
        )
        session.contexts = self._contexts.finish(session, roster)
        _note_failures(session, failed)
        return session

    def _spread_control(self) -> None:
        """An answer to the agent's own call is the agent's own too."""
        columns = self.columns
        partner = np.asarray(columns.partner)
        control: NDArray[np.int8] = np.frombuffer(columns.control, dtype=np.int8)
        if len(control):
            rows = np.flatnonzero((control != 0) & (partner != NONE))
            control[partner[rows]] = 1  # writes through to the column


def _note_failures(session: Session, failed: Iterable[tuple[int, LoggedFailure]]) -> None:
    """Each belongs to the last request of its pipe with its id that had begun by then; ids are used again."""
    failed = sorted(failed, key=lambda item: item[1].time_ns)
    if not failed:
        return
    columns = session.messages
    sent: dict[tuple[int, int], list[int]] = defaultdict(list)
    wanted = {(pipe, said.id) for pipe, said in failed}
    for row in session.order.tolist():
        key = (columns.pipe[row], columns.id[row])
        if columns.from_client[row] and key in wanted:
            sent[key].append(row)
    lost = []
    for pipe, said in failed:
        rows = [row for row in sent[pipe, said.id] if columns.time_ns[row] <= said.time_ns]
        row = rows[-1] if rows else None
        failure = CallFailure(
            caller=session.clients[pipe],
            callee=session.servers[pipe],
            pipe=pipe,
            type=said.type if row is None else columns.type[row],
            id=said.id,
            time_ns=said.time_ns,
            reason=said.reason,
            text=said.text,
        )
        if row is None:
            lost.append(failure)
        else:
            session.failures.setdefault(row, failure)
    session.lost_calls = tuple(lost)


End: TypeAlias = tuple[int, bool]
"""An end of a pipe: its number, and whether it is the client's."""


class _ContextLog:
    """Rows of every autograd context."""

    def __init__(self) -> None:
        self._edges: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        """context → (autograd message id, row, tensors that require grad) of wrapped messages."""
        self._backward: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self._cleanup: dict[int, list[int]] = defaultdict(list)
        self._touched: dict[int, list[int]] = defaultdict(list)

    def forward(self, context: int, message: int, row: int, tensors: int) -> None:
        self._edges[context].append((message, row, tensors))

    def backward(self, context: int, message: int, row: int) -> None:
        self._backward[context].append((message, row))

    def cleanup(self, context: int, row: int) -> None:
        self._cleanup[context].append(row)

    def touch(self, context: int, row: int) -> None:
        self._touched[context].append(row)

    def finish(self, session: Session, roster: Roster) -> tuple[AutogradContext, ...]:
        """One record per context and job, by id; labels and indexes are the session's."""
        known = {*self._edges, *self._backward, *self._cleanup, *self._touched}
        pipe = session.messages.pipe
        out = []
        for context in sorted(known, key=unpack_id):
            rows = [row for _, row, _ in self._edges.get(context, ())]
            rows += [row for _, row in self._backward.get(context, ())]
            rows += [*self._cleanup.get(context, ()), *self._touched.get(context, ())]
            for job in sorted({roster.jobs[pipe[row]] for row in rows}):
                its = {row for row in rows if roster.jobs[pipe[row]] == job}
                out.append(self._context(context, job, its, session, roster))
        return tuple(sorted(out, key=lambda c: c.job))

    def _context(
        self, context: int, job: int, its: set[int], session: Session, roster: Roster
    ) -> AutogradContext:
        """The context of one job; `its` are the rows of that job."""
        creator = roster.by_id(unpack_id(context)[0], job)
        workers: dict[str, None] = {creator: None}
        backward: dict[int, list[int]] = defaultdict(list)
        for message, row in self._backward.get(context, ()):
            if row in its:
                backward[message].append(row)
        cleanup = [row for row in self._cleanup.get(context, ()) if row in its]
        for row in sorted(its, key=lambda r: session.index[r]):
            workers.setdefault(session.source(row))
            workers.setdefault(session.destination(row))
        # Ids are unique; where one is repeated nevertheless, gradients belong to the first of its messages.
        edge_rows = [edge for edge in self._edges.get(context, ()) if edge[1] in its]
        forward = sorted(edge_rows, key=lambda edge: session.index[edge[1]])
        edges = [
            Edge(
                autograd_message_id=message,
                sender=session.source(row),
                receiver=session.destination(row),
                forward=int(session.index[row]),
                tensors_requiring_grad=tensors,
                backward=session.indexes(backward.pop(message, ())),
            )
            for message, row, tensors in forward
            if tensors  # without one, addSendRpcBackward is not called: there is no edge
        ]
        return AutogradContext(
            context_id=context,
            creator=creator,
            workers=tuple(workers),
            edges=tuple(edges),
            cleanup=session.indexes(cleanup),
            job=job,
        )


class _RRefEvents:
    """What was seen of one RRef of one job."""

    def __init__(self) -> None:
        self.forks: set[GloballyUniqueId] = set()
        self.deleted: set[GloballyUniqueId] = set()
        self.owner_end: End | None = None
        self.owner_id: int | None = None
        self.carried: list[tuple[GloballyUniqueId, End]] = []
        """Forks, and the ends of pipes that received them inside a pickle."""


class _RRefLog:
    """Forks and deletes of every RRef."""

    def __init__(self) -> None:
        self._events: list[tuple[str, GloballyUniqueId, GloballyUniqueId, End, int]] = []
        """(`create`, `fork` or `delete`; RRef; fork; an end of a pipe; owner id or -1)."""

    def create(self, rref: GloballyUniqueId, fork: GloballyUniqueId, owner: End) -> None:
        self._events.append(("create", rref, fork, owner, NONE))

    def fork(self, rref: GloballyUniqueId, fork: GloballyUniqueId, receiver: End, owner_id: int) -> None:
        self._events.append(("fork", rref, fork, receiver, owner_id))

    def delete(self, rref: GloballyUniqueId, fork: GloballyUniqueId, owner: End) -> None:
        self._events.append(("delete", rref, fork, owner, NONE))

    def finish(self, roster: Roster) -> tuple[RRef, ...]:
        """One record per RRef and job, by id."""
        seen: dict[tuple[int, GloballyUniqueId], _RRefEvents] = defaultdict(_RRefEvents)
        for kind, rref, fork, end, owner_id in self._events:
            events = seen[roster.jobs[end[0]], rref]
            events.forks.add(fork)
            if kind == "fork":
                events.carried.append((fork, end))
                events.owner_id = owner_id if events.owner_id is None else events.owner_id
            elif events.owner_end is None:
                events.owner_end = end
            if kind == "delete":
                events.deleted.add(fork)
        keys = sorted(seen, key=lambda key: (key[0], key[1].to_value()))
        return tuple(self._rref(job, rref, seen[job, rref], roster) for job, rref in keys)

    @staticmethod
    def _rref(job: int, rref: GloballyUniqueId, events: _RRefEvents, roster: Roster) -> RRef:
        owner: str | None = None
        if events.owner_end is not None:
            owner = _label(events.owner_end, roster)
        elif events.owner_id is not None:
            owner = roster.by_id(events.owner_id, job)
        # by id, not by the order in which streams were read
        forks = sorted(events.forks, key=GloballyUniqueId.to_value)
        deleted = sorted(events.deleted, key=GloballyUniqueId.to_value)
        # A fork that was sent back to the owner ends there: the owner holds the value itself.
        home = {fork for fork, end in events.carried if owner is not None and _label(end, roster) == owner}
        gone = {*deleted, *home, rref}
        live = tuple(fork for fork in forks if fork not in gone)
        return RRef(
            rref_id=rref, owner=owner, forks=tuple(forks), deleted=tuple(deleted), live_forks=live, job=job
        )


def _label(end: End, roster: Roster) -> str:
    pipe, client = end
    return roster.clients[pipe] if client else roster.servers[pipe]

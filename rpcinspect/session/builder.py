"""RPC records → a `Session`: exchanges, autograd contexts, RRefs, workers and sums. Pure.

In: records in any order (an answer may become complete before its request). Out: on `finish`, everything that
holds over the whole run. Stays small: a message leaves a row of columns, an autograd edge or an RRef an
entry.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from msgspec.structs import asdict, replace
from numpy.typing import NDArray

from rpcinspect.problems import Location, Problem
from rpcinspect.rpc.command import (
    PropagateGradientsReq,
    PythonRRefFetchCall,
    RRefChildAccept,
    ScriptRRefFetchCall,
)
from rpcinspect.rpc.envelope import RpcWithAutograd
from rpcinspect.rpc.message import type_name
from rpcinspect.rpc.pickle_facts import PickleFacts
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.types import is_worker_id, unpack_id
from rpcinspect.session.contexts import read_contexts, receivers
from rpcinspect.session.identity import EndKey, IdentityEvidence
from rpcinspect.session.model import (
    NONE,
    CallFailure,
    CaptureInfo,
    MessageColumns,
    Session,
    Totals,
    WorkerIdentities,
)
from rpcinspect.session.provenance import OF_HOLDERS, Id, Provenance, What
from rpcinspect.session.rrefs import read_rrefs
from rpcinspect.tcp.ranges import CaptureBytes
from rpcinspect.tensorpipe.records import Pipe
from rpcinspect.unexpected import unexpected

if TYPE_CHECKING:
    from rpcinspect.rpclog.header import LoggedFailure

T = TypeVar("T")

ID = 1
"""The payload with the id of a message."""
MAX_SUM = (1 << 63) - 1
"""Lengths that were announced may be absurd; sums stay numbers that JSON readers can hold."""


class SessionBuilder:
    """The stage: `feed` every record, then `finish`."""

    def __init__(self, source: CaptureBytes | None = None) -> None:
        """`source`: where the bytes of tensors are read, to find equal tensors."""
        self.columns = MessageColumns()
        self.evidence = IdentityEvidence()
        self._ids: set[tuple[int, bool, int]] = set()
        """What envelopes and gradients have told to the evidence."""
        self._open: dict[tuple[int, int], int] = {}
        """(pipe, message id) → row of the side that has come so far."""
        self._by_type: Counter[int] = Counter()
        self._problems = 0
        self._missing_bytes = 0
        self.provenance = Provenance(source)

    def feed(self, records: Sequence[RpcRecord]) -> None:
        """Takes records, whose rows follow those that were fed before."""
        if not records:
            return
        first, columns = len(self.columns), _columns(records)
        self.columns.extend(columns)
        self._pair(first, columns)
        for record in records:
            for tensor in record.tp.tensors:
                if tensor.extent is None or tensor.extent.missing:
                    self._missing_bytes += tensor.missing_bytes
        self._note(records)

    def _pair(self, first: int, columns: Sequence[Sequence[int]]) -> None:
        """Finds the partners of rows from `first` on, and counts types."""
        waiting, partner, from_client = self._open, self.columns.partner, self.columns.from_client
        pipes, ids, types, ways = columns[5:9]
        self._by_type.update(types)
        for row, (key, way) in enumerate(zip(zip(pipes, ids, strict=True), ways, strict=True), first):
            other = waiting.get(key)
            if other is None or from_client[other] == way:
                waiting[key] = row  # a repeated id: the later one waits for its answer
            else:
                del waiting[key]
                partner[row] = other
                partner[other] = row

    def _note(self, records: Sequence[RpcRecord]) -> None:
        """Notes what messages show of workers, contexts and RRefs; of a pattern, without decoding them."""
        self.provenance.feed(records)
        for record in records:
            pattern = record.pattern
            if pattern is None:
                try:
                    self._note_whole(record)
                except Exception as error:
                    record.give_up(error, "session")
            elif record.ids:
                if pattern.sender_id is not None:
                    self._note_id((record.tp.pipe.number, record.tp.from_client, pattern.sender_id))
                elif len(record.ids) == 2:
                    self._note_gradient(record, record.ids[1])

    def _note_whole(self, record: RpcRecord) -> None:
        self._note_command(record, record.facts)
        for envelope in record.rpc.envelopes:
            if isinstance(envelope, RpcWithAutograd):
                self._note_id((record.tp.pipe.number, record.tp.from_client, envelope.from_worker_id))
        if record.tp.payload_missing is not None:
            self._missing_bytes += sum(record.tp.payload_missing)

    def count_problems(self, records: Sequence[RpcRecord]) -> None:
        """Counts the problems of records after views have shown them: showing a message may find one."""
        for record in records:
            self._problems += len(record.problems)

    def _note_command(self, record: RpcRecord, facts: PickleFacts) -> None:
        command = record.rpc.command
        pipe, from_client = record.tp.pipe.number, record.tp.from_client
        if facts.responder is not None and not from_client:
            self.evidence.id(pipe, False, facts.responder[0])
            self.evidence.name(pipe, False, facts.responder[1])
        if facts.sender is not None and from_client:
            self.evidence.name(pipe, True, facts.sender)
        if facts.receiver is not None and from_client:
            self.evidence.name(pipe, False, facts.receiver)
        if isinstance(command, (PythonRRefFetchCall, ScriptRRefFetchCall)):
            self.evidence.id(pipe, False, command.from_worker_id)
        elif isinstance(command, RRefChildAccept):
            # whoever forks an RRef gives the fork its id, and is told by the new user
            self.evidence.id(pipe, False, command.fork_id.created_on)
        elif isinstance(command, PropagateGradientsReq):
            self._note_gradient(record, command.autograd_metadata.autograd_message_id)

    def _note_gradient(self, record: RpcRecord, autograd_message: int) -> None:
        """Notes the receiver of a gradient: it sent the forward message, and gave this id to its edge."""
        creator = unpack_id(autograd_message)[0]
        if is_worker_id(creator):
            self._note_id((record.tp.pipe.number, not record.tp.from_client, creator))

    def _note_id(self, said: tuple[int, bool, int]) -> None:
        """Notes the worker id of an end, once."""
        if said not in self._ids:
            self._ids.add(said)
            self.evidence.id(*said)

    def join_ends(self, pipes: Sequence[Pipe]) -> None:
        """Adds to the evidence what ends that nothing names have received, as far as what they send shows
        it: gradients the forward message, requests about a fork the message that brought it. Call it when all
        records were fed."""
        nameless = {
            (pipe.number, client)
            for pipe in pipes
            for client in (True, False)
            if not self.evidence.is_known(pipe, client)
        }
        if not nameless:
            return
        for end, receiver in receivers(self.provenance, self.columns, nameless):
            self.evidence.receivers[end].add(receiver)
        pipe_of, from_client = self.columns.pipe, self.columns.from_client
        events = list(self.provenance.events())
        brought: dict[Id, set[EndKey]] = defaultdict(set)
        for event in events:
            if event.what is What.BROUGHT:
                brought[event.fork].add((pipe_of[event.row], not from_client[event.row]))
        for event in events:
            end = pipe_of[event.row], bool(from_client[event.row])
            if event.what in OF_HOLDERS and end in nameless:
                self.evidence.receivers[end] |= brought.get(event.fork, set())

    def finish(
        self,
        *,
        captures: Sequence[CaptureInfo],
        pipes: Sequence[Pipe],
        identities: WorkerIdentities,
        problems: Sequence[Problem],
        sums: tuple[int, int, int, int],
        by_completion: bool = False,
        failed: Iterable[tuple[int, LoggedFailure]] = (),
    ) -> Session:
        """Returns the session; the arguments are what the stages below have counted and collected.

        `sums`: bytes of RPC, of tensors, of other protocols and of the store;
        `by_completion`: indexes count messages as they became complete, not as they were sent; `failed`:
        (pipe, call that ended without an answer).
        """
        columns = self.columns
        rpc_bytes, tensor_bytes, skipped_bytes, store_bytes = sums
        order = np.arange(len(columns)) if by_completion else columns.order()
        index = np.empty(len(order), dtype=np.int64)
        index[order] = np.arange(len(order))
        self._spread_control()
        by_type = {type_name(kind): count for kind, count in sorted(self._by_type.items())}
        session = Session(
            captures=tuple(captures),
            **asdict(identities),
            pipes=tuple(pipes),
            messages=columns,
            order=order,
            index=index,
            contexts=(),
            rrefs=(),
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
            provenance=self.provenance,
        )
        unread: list[Problem] = []

        def told(read: Callable[[Session], tuple[T, ...]]) -> tuple[T, ...]:
            try:
                return read(session)
            except Exception as error:
                unread.append(unexpected(error, "session", Location()))
                return ()

        rrefs, contexts = told(read_rrefs), told(read_contexts)
        failures, lost = _failures(session, failed)
        return replace(
            session,
            contexts=contexts,
            rrefs=rrefs,
            failures=failures,
            lost_calls=lost,
        ).with_problems(unread)

    def _spread_control(self) -> None:
        """An answer to the agent's own call is the agent's own too."""
        columns = self.columns
        partner = np.asarray(columns.partner)
        control: NDArray[np.int8] = np.frombuffer(columns.control, dtype=np.int8)
        if len(control):
            rows = np.flatnonzero((control != 0) & (partner != NONE))
            control[partner[rows]] = 1  # writes through to the column


def _columns(records: Sequence[RpcRecord]) -> list[list[int]]:
    """What messages leave in the session's columns; those of a pattern are not decoded for that."""
    messages = [record.tp for record in records]
    ids = b"".join(
        [record.tp.payloads[ID] if record.pattern is not None else _id(record) for record in records]
    )
    return [
        [tp.first_ns for tp in messages],
        [tp.last_ns for tp in messages],
        [tp.capture for tp in messages],
        [tp.packet for tp in messages],
        [tp.offset for tp in messages],
        [tp.pipe.number for tp in messages],
        np.frombuffer(ids, "<i8").tolist(),
        [(record.like.message if record.pattern is None else record.pattern).type for record in records],
        [tp.from_client for tp in messages],
        [record.facts.control for record in records],
        [NONE] * len(records),
    ]


def _id(record: RpcRecord) -> bytes:
    """The id of a message that no pattern fits, in eight bytes."""
    return record.rpc.message.id.to_bytes(8, "little", signed=True)


def _failures(
    session: Session, failed: Iterable[tuple[int, LoggedFailure]]
) -> tuple[dict[int, CallFailure], tuple[CallFailure, ...]]:
    """Returns calls that ended without an answer, by the row of the request, and those without a request.
    Each belongs to the last request of its pipe with its id that had begun by then; ids are used again."""
    found: dict[int, CallFailure] = {}
    lost: list[CallFailure] = []
    failed = sorted(failed, key=lambda item: item[1].time_ns)
    if not failed:
        return found, ()
    columns = session.messages
    sent: dict[tuple[int, int], list[int]] = defaultdict(list)
    wanted = {(pipe, said.id) for pipe, said in failed}
    for row in columns.order().tolist():
        key = (columns.pipe[row], columns.id[row])
        if columns.from_client[row] and key in wanted:
            sent[key].append(row)
    for pipe, said in failed:
        rows = sent[pipe, said.id]
        before = bisect_right(rows, said.time_ns, key=columns.time_ns.__getitem__)
        row = rows[before - 1] if before else None
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
            found.setdefault(row, failure)
    return found, tuple(lost)

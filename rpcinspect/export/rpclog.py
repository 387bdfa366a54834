"""A session, or some of its messages → a log that decodes to the same messages.

In: a session, its records with their indexes, a reader of their tensors' bytes, and what the capture lost.
Out: the bytes of a log: workers, messages in the order of time, calls that ended without an answer, ends of
connections, losses, ends of processes. Pipes become
ways between two workers, and packets are gone; bytes that were not captured are missing again.

A message whose payloads are not those of torch's agent has no place in a log; how many there are is told.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import IO, Any, Literal, cast

from msgspec.structs import replace

from rpcinspect.capture.source import WINDOW
from rpcinspect.checks.wire_facts import ConnectionEnds, WireFacts
from rpcinspect.equality.elements import ReadExtent, tensors_of
from rpcinspect.errors import DecodeError
from rpcinspect.export.pcap.pipes import Numbered
from rpcinspect.rpc.message import are_torchs
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpclog.header import (
    MAX_NAME,
    LoggedEnd,
    LoggedFailure,
    LoggedLoss,
    LoggedMessage,
    LoggedStorage,
    LoggedWorker,
    Reason,
)
from rpcinspect.rpclog.write import (
    FIRST_LINE,
    end_line,
    failure_line,
    loss_line,
    message_line,
    process_line,
    span_line,
    worker_line,
)
from rpcinspect.session.model import CallFailure, Session, Worker
from rpcinspect.tcp.ranges import Extent
from rpcinspect.tensorpipe.records import Placement, TpMessage, TpTensor


def write_log(
    output: IO[bytes],
    session: Session,
    kept: Sequence[Numbered],
    read: ReadExtent,
    wire: WireFacts,
    most: int | None = None,
) -> int:
    """Writes these messages in this order; returns how many of them a log can't hold. Of storages longer than
    `most` the hashes of their tensors are kept, not the bytes."""
    output.write(FIRST_LINE)
    first = [c.first_time_ns for c in session.captures if c.first_time_ns is not None]
    last = [c.last_time_ns for c in session.captures if c.last_time_ns is not None]
    if first and last:
        output.write(span_line(min(first), max(last)))
    for worker in session.workers:
        output.write(worker_line(_worker_of(worker)))
    ways = _Ways(session)
    left_out = 0
    for message in kept:
        tp = message.record.tp
        if not are_torchs(tp.payloads):
            left_out += 1
            continue
        if most is not None:
            tp = _with_hashes(message.record, read, most)
        said = ways.message(tp, message.record.rpc.message.type, message.record.rpc.message.id)
        output.write(message_line(said))
        body = False
        for data in _body(tp, read):
            output.write(data)
            body = True
        if body:
            output.write(b"\n")
    for line in (*ways.failures(kept), *ways.ends(wire), *ways.losses(wire)):
        output.write(line)
    for worker in session.workers:
        if worker.ended is not None and worker.name is not None:
            output.write(process_line(worker.ended.logged(worker.name[:MAX_NAME], worker.id, worker.job)))
    return left_out


def _with_hashes(record: RpcRecord, read: ReadExtent, most: int) -> TpMessage:
    """Returns the message without the bytes of long storages, with a hash of each tensor in them; a storage
    whose tensors can't be hashed stays."""
    tp, metas = record.tp, record.rpc.tensors
    tensors, hashes = list(tp.tensors), dict(enumerate(tp.hashes))
    its = tensors_of(record, read)
    within: dict[int | None, list[int]] = defaultdict(list)
    for place, meta in enumerate(metas):
        within[meta.storage].append(place)
    for number, tensor in enumerate(tensors):
        extent = tensor.extent
        if tensor.descriptor.length <= most or extent is None or extent.missing or not within[number]:
            continue
        try:  # one may be listed thousands of times
            found = {meta: its.sha256(meta) for meta in {metas[place] for place in within[number]}}
        except DecodeError:
            continue
        hashes |= {place: found[metas[place]] for place in within[number]}
        tensors[number] = TpTensor(tensor.descriptor, Placement.MISSING, None)
    told = tuple([hashes.get(place) for place in range(len(metas))])
    return replace(tp, tensors=tensors, hashes=told if any(told) else ())


def _body(tp: TpMessage, read: ReadExtent) -> Iterator[bytes]:
    """Payload, table, and what was captured of the storages; never more at once than a window."""
    for payload in tp.payloads[2:]:
        if payload:
            yield payload
    for tensor in tp.tensors:
        for capture, offset, length in tensor.extent.pieces if tensor.extent is not None else ():
            for at in range(0, length, WINDOW):
                part = min(WINDOW, length - at)
                yield read(Extent(part, ((capture, offset + at, part),)))


class _Ways:
    """Which pipe is which way between two workers."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._number: list[int] = []
        taken: Counter[tuple[int, str, str]] = Counter()
        for pipe in session.pipes:
            key = (session.jobs[pipe.number], *self._labels(pipe.number))
            self._number.append(taken[key])
            taken[key] += 1

    def message(self, tp: TpMessage, kind: int, message_id: int) -> LoggedMessage:
        lost = tp.payload_missing or (0, 0, 0, 0)
        return LoggedMessage(
            **self._way(tp.pipe.number, request=tp.from_client),
            time_ns=tp.first_ns,
            end_ns=tp.last_ns,
            type=kind,
            id=message_id,
            request=tp.from_client,
            payload=len(tp.payloads[2]),
            table=len(tp.payloads[3]),
            payload_missing=lost[2],
            table_missing=lost[3],
            storages=tuple([_storage(tensor) for tensor in tp.tensors]),
            after_loss=tp.after_loss,
            sha256=tp.hashes,
        )

    def failures(self, kept: Sequence[Numbered]) -> Iterator[bytes]:
        """Of the requests that are kept; of those that were not captured, only where all is kept."""
        session = self._session
        rows = {message.record.row for message in kept}
        failures = [failure for row, failure in sorted(session.failures.items()) if row in rows]
        if len(rows) == session.totals.messages:
            failures += session.lost_calls
        for failure in sorted(failures, key=lambda failure: failure.time_ns):
            yield failure_line(self._failure(failure))

    def _failure(self, failure: CallFailure) -> LoggedFailure:
        return LoggedFailure(
            **self._way(failure.pipe),
            time_ns=failure.time_ns,
            type=failure.type,
            id=failure.id,
            reason=cast("Reason", failure.reason),
            text=failure.text,
        )

    def ends(self, wire: WireFacts) -> Iterator[bytes]:
        known = ConnectionEnds(wire.ends)
        for pipe in self._session.pipes:
            end = known.of(pipe)
            if end is not None:
                by: Literal["src", "dst"] = "src" if end.by_client else "dst"
                way = self._way(pipe.number)
                yield end_line(LoggedEnd(**way, by=by, how=end.how, time_ns=end.time_ns))

    def losses(self, wire: WireFacts) -> Iterator[bytes]:
        for pipe in self._session.pipes:
            for request, flow in ((True, pipe.flow), (False, pipe.flow.reversed)):
                if str(flow) in wire.damaged:
                    yield loss_line(LoggedLoss(**self._way(pipe.number, request=request), request=request))

    def _way(self, pipe: int, *, request: bool = True) -> dict[str, Any]:
        """Returns by what a record names the way of a pipe, in the direction of requests or of answers."""
        src, dst = self._labels(pipe) if request else reversed(self._labels(pipe))
        return {"src": src, "dst": dst, "job": self._session.jobs[pipe], "way": self._number[pipe]}

    def _labels(self, pipe: int) -> tuple[str, str]:
        session = self._session
        return session.clients[pipe][:MAX_NAME], session.servers[pipe][:MAX_NAME]


def _worker_of(worker: Worker) -> LoggedWorker:
    return LoggedWorker(
        name=None if worker.name is None else worker.name[:MAX_NAME],
        id=worker.id,
        group=worker.group,
        job=worker.job,
        addresses=worker.addresses,
        elsewhere=worker.elsewhere,
    )


def _storage(tensor: TpTensor) -> LoggedStorage:
    descriptor, extent = tensor.descriptor, tensor.extent
    whole = ((0, descriptor.length),) if descriptor.length else ()
    return LoggedStorage(
        length=descriptor.length,
        missing=whole if extent is None else _merged(extent.missing),
        placement=tensor.placement,
        source=descriptor.source_device,
        target=descriptor.target_device,
    )


def _merged(ranges: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    merged: list[tuple[int, int]] = []
    for start, stop in ranges:
        if merged and merged[-1][1] == start:
            start = merged.pop()[0]
        merged.append((start, stop))
    return tuple(merged)

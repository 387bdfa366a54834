"""Records of logs → `TpMessage`s, as `tensorpipe/demux.py` makes them of streams.

In: blocks of one log after the other. Out: messages; aside, who sends requests to whom, workers, how their
processes ended, ends, losses and calls that ended without an answer. A log knows no pipes. What stands for
one here is a *way*: requests of one worker to another and the answers to them, in one job; a message id is
known by it, as by a pipe. `packet` is the number of a record in its log, `offset` where it begins there, and
the ends of a way's flow are no addresses but names.

A message that sender and receiver have both logged counts once: the n-th of those that are equal in job, way,
direction, type, id and payload is the same in each log, and on each side where records say theirs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import TypeAlias

from msgspec.structs import replace

from rpcinspect.capture.block import LogBlock, LogRecord
from rpcinspect.errors import DecodeError
from rpcinspect.problems import Location, Problem
from rpcinspect.rpc.message import NO_TENSORS
from rpcinspect.rpclog.header import (
    LoggedEnd,
    LoggedFailure,
    LoggedLoss,
    LoggedMessage,
    LoggedProcess,
    LoggedStorage,
    LoggedWorker,
    LogJob,
    read_header,
)
from rpcinspect.tcp.ranges import Extent, ranges_beside
from rpcinspect.tcp.segment import Endpoint, Flow
from rpcinspect.tensorpipe.control import write_descriptor
from rpcinspect.tensorpipe.control_types import ControlLayout, TpDescriptor, TpPayload, TpTensorDescriptor
from rpcinspect.tensorpipe.frame import HEADER_BYTES
from rpcinspect.tensorpipe.records import NO_FLOW, MessageOrigin, Pipe, TpMessage, TpTensor
from rpcinspect.unexpected import unexpected

OTHERS = 1 << 62
"""From here on count jobs whose number another log has given to another one."""


class JobNumbers:
    """Numbers the jobs of several logs. Equal names of jobs are the same job in every log.

    A log that was made of a capture counts the jobs in it, so that the same number may be another job in
    another log. It is the same one unless the two logs contradict each other: an id with two names, a name
    with two ids, or with addresses of which none is the same.
    """

    def __init__(self) -> None:
        self._told: dict[int, _KnownWorkers] = {}
        self._same: dict[int, list[int]] = defaultdict(list)
        """Jobs that logs give this number."""
        self._here: dict[tuple[int, int], int] = {}
        """(capture, number there) → number in the session, if that is another."""
        self._count = 0

    def meet(self, capture: int, workers: Sequence[LoggedWorker]) -> None:
        """Takes the workers that a log names at its start."""
        of_job: dict[int, list[LoggedWorker]] = defaultdict(list)
        for worker in workers:
            if isinstance(worker.job, int):
                of_job[worker.job].append(worker)
        for job, its in of_job.items():
            found = next((one for one in self._same[job] if self._told[one].fits(its)), None)
            if found is None:
                found = job
                if self._same[job]:
                    found = OTHERS + self._count
                    self._count += 1
                self._same[job].append(found)
                self._told[found] = _KnownWorkers()
            self._told[found].add(its)
            if found != job:
                self._here[capture, job] = found

    def of(self, capture: int, job: LogJob) -> LogJob:
        """The number in the session of a job of that log."""
        return self._here.get((capture, job), job) if self._here and isinstance(job, int) else job


class _KnownWorkers:
    """The workers of a job in all logs so far, by group."""

    def __init__(self) -> None:
        self._names: dict[tuple[int, int], str] = {}
        self._ids: dict[tuple[int, str], int] = {}
        self._addresses: dict[tuple[int, str], set[str]] = defaultdict(set)

    def fits(self, workers: Iterable[LoggedWorker]) -> bool:
        for worker in workers:
            if worker.name is None:
                continue
            key = worker.group, worker.name
            if worker.id is not None:
                if self._ids.get(key, worker.id) != worker.id:
                    return False
                if self._names.get((worker.group, worker.id), worker.name) != worker.name:
                    return False
            known = self._addresses.get(key)
            if known and worker.addresses and known.isdisjoint(worker.addresses):
                return False
        return True

    def add(self, workers: Iterable[LoggedWorker]) -> None:
        for worker in workers:
            if worker.name is None:
                continue
            if worker.id is not None:
                self._ids.setdefault((worker.group, worker.name), worker.id)
                self._names.setdefault((worker.group, worker.id), worker.name)
            self._addresses[worker.group, worker.name].update(worker.addresses)


WayKey: TypeAlias = tuple[LogJob, str, str, int]
"""(job, who requests, who answers, number of the way between these two)"""
MAX_SHAPES = 4096
MAX_KEPT = 1 << 17
"""Payloads and storages of all shapes that are kept."""
MAX_PROBLEMS = 1000
"""Records that are reported one by one as left out."""


class LogJoin:
    """The stage: `feed` every block."""

    def __init__(self) -> None:
        self.pipes: list[Pipe] = []
        """What stands for pipes."""
        self.jobs: list[LogJob] = []
        """Of each of them, as its records call it."""
        self.workers: dict[LoggedWorker, None] = {}
        self.processes: dict[LoggedProcess, None] = {}
        """How those of workers ended; what two logs tell alike counts once."""
        self.ends: list[tuple[Pipe, LoggedEnd]] = []
        self.failed: dict[tuple[int, LoggedFailure], None] = {}
        """(pipe, call that ended without an answer); what two logs tell alike counts once."""
        self.lost: set[tuple[int, bool]] = set()
        """(pipe, whether it is the requests) of messages that the writer of a log could not write."""
        self.damaged = False
        """Whether any record of any log may have been lost."""
        self.problems: list[Problem] = []
        self.rpc_bytes = 0
        """What TensorPipe's frames take for the messages, whatever carried them."""
        self.tensor_bytes = 0
        self._ways: dict[WayKey, Pipe] = {}
        self._shapes: dict[tuple[object, ...], tuple[TpDescriptor, bytes]] = {}
        self._kept = 0
        self._seen: defaultdict[bytes, Counter[tuple[int, str | None]]] = defaultdict(Counter)
        self._refused = 0
        self._numbers = JobNumbers()
        self._head: list[LoggedWorker] | None = []
        """Workers of this log that come before all else in it."""
        self._capture = -1

    def feed(self, block: LogBlock) -> list[TpMessage]:
        """Returns the messages of a block that no other log has."""
        self.damaged |= block.damaged
        done: list[TpMessage] = []
        if block.capture != self._capture:
            self._capture, self._head = block.capture, []
        for record in block.records:
            where = Location(capture=block.capture, offset=record.offset)
            try:
                self._take(block.capture, record, done)
            except DecodeError as error:
                self._refuse(Problem(error.layer, str(error), where))
            except Exception as error:
                self._refuse(unexpected(error, "capture", where))
        self._end_head()
        return done

    def _end_head(self) -> None:
        if self._head is not None:
            self._numbers.meet(self._capture, self._head)
            for worker in self._head:
                job = self._numbers.of(self._capture, worker.job)
                self.workers[worker if job == worker.job else replace(worker, job=job)] = None
            self._head = None

    def _take(self, capture: int, record: LogRecord, done: list[TpMessage]) -> None:
        said = read_header(record.header)
        if isinstance(said, LoggedWorker) and self._head is not None:
            self._head.append(said)
            return
        if said is None:
            return
        self._end_head()
        if (job := self._numbers.of(capture, said.job)) != said.job:
            said = replace(said, job=job)
        if isinstance(said, LoggedMessage):
            if self._first(capture, record, said):
                done.append(self._message(capture, record, said))
        elif isinstance(said, LoggedFailure):
            pipe = self._way((said.job, said.src, said.dst, said.way), said.time_ns)
            self.failed[pipe.number, said] = None
        elif isinstance(said, LoggedWorker):
            self.workers[said] = None
        elif isinstance(said, LoggedProcess):
            self.processes[said] = None
        elif isinstance(said, LoggedEnd):
            self.ends.append((self._way((said.job, said.src, said.dst, said.way), said.time_ns), said))
        elif isinstance(said, LoggedLoss):
            way = _way_of(said)
            self.lost.add((self._way(way, None).number, said.request))

    def _refuse(self, problem: Problem) -> None:
        self.damaged = True
        self._refused += 1
        if self._refused <= MAX_PROBLEMS:
            self.problems.append(problem)

    def _first(self, capture: int, record: LogRecord, said: LoggedMessage) -> bool:
        """Returns whether this adds to what the other logs, or the other side, have."""
        digest = blake2b(record.payload, digest_size=16)
        digest.update(record.table)
        digest.update(
            repr((said.job, said.src, said.dst, said.way, said.type, said.id, said.request)).encode()
        )
        counts = self._seen[digest.digest()]
        most = max(counts.values(), default=0)
        teller = (capture, said.side)
        counts[teller] += 1
        return counts[teller] > most

    def _way(self, key: WayKey, time_ns: int | None) -> Pipe:
        pipe = self._ways.get(key)
        if pipe is None:
            job, client, server, _ = key
            number = len(self.pipes)
            # unlike in both directions, also of a worker to itself
            flow = Flow(Endpoint(client, 2 * number), Endpoint(server, 2 * number + 1))
            pipe = Pipe(
                number, flow, client_name=client, server_name=server, transport="", origin=MessageOrigin.LOG
            )
            self._ways[key] = pipe
            self.pipes.append(pipe)
            self.jobs.append(job)
        if time_ns is not None:
            pipe.first_ns = min(pipe.first_ns, time_ns) if pipe.first_ns else time_ns
        return pipe

    def _message(self, capture: int, record: LogRecord, said: LoggedMessage) -> TpMessage:
        descriptor, body = self._shape(said)
        table = record.table
        if not table and not said.table_missing:
            table = NO_TENSORS
        lost = (0, 0, said.payload_missing, said.table_missing)
        length = HEADER_BYTES + len(body) + sum([HEADER_BYTES + p.length for p in descriptor.payloads])
        self.rpc_bytes += length - sum(lost)
        return TpMessage(
            pipe=self._way(_way_of(said), said.time_ns),
            from_client=said.request,
            descriptor=descriptor,
            layout=ControlLayout.V1_9,
            descriptor_body=body,
            payloads=(
                said.type.to_bytes(4, "little", signed=True),
                said.id.to_bytes(8, "little", signed=True),
                record.payload,
                table,
            ),
            payload_missing=lost if any(lost) else None,
            tensors=self._tensors(capture, record.rest, said.storages, descriptor),
            waiting=0,
            first_ns=said.time_ns,
            last_ns=said.end_ns,
            capture=capture,
            packet=record.number,
            first_packet=record.number,
            last_packet=record.number,
            flow=NO_FLOW,
            offset=record.offset,
            length=length,
            after_loss=said.after_loss,
            payloads_ns=(said.time_ns, said.end_ns) if said.storages else None,
            hashes=said.sha256,
        )

    def _shape(self, said: LoggedMessage) -> tuple[TpDescriptor, bytes]:
        """The descriptor that TensorPipe would send before such a message; one object for all equal ones."""
        table = said.table + said.table_missing or len(NO_TENSORS)
        lengths = (4, 8, said.payload + said.payload_missing, table)
        key = (lengths, tuple([(s.length, s.source, s.target) for s in said.storages]))
        shape = self._shapes.get(key)
        if shape is None:
            descriptor = TpDescriptor(
                b"",
                tuple([TpPayload(length) for length in lengths]),
                tuple(
                    [
                        TpTensorDescriptor(length=s.length, source_device=s.source, target_device=s.target)
                        for s in said.storages
                    ]
                ),
            )
            shape = descriptor, write_descriptor(descriptor, ControlLayout.V1_9)
            self._kept += 4 + len(said.storages)
            if len(self._shapes) >= MAX_SHAPES or self._kept > MAX_KEPT:
                self._shapes.clear()
                self._kept = 4 + len(said.storages)
            self._shapes[key] = shape
        return shape

    def _tensors(
        self, capture: int, at: int, storages: tuple[LoggedStorage, ...], descriptor: TpDescriptor
    ) -> list[TpTensor]:
        """Where the bytes of storages lie, one after the other from `at` on."""
        tensors = []
        for storage, announced in zip(storages, descriptor.tensors, strict=True):
            present = storage.present
            extent = None
            if storage.placement is storage.placement.CERTAIN:
                extent = Extent(storage.length, _pieces(capture, at, storage), storage.missing)
            tensors.append(TpTensor(announced, storage.placement, extent))
            at += present
            self.tensor_bytes += present
        return tensors


def _pieces(capture: int, at: int, storage: LoggedStorage) -> tuple[tuple[int, int, int], ...]:
    """(capture, offset, length) of what is there of a storage."""
    pieces = []
    for start, stop in ranges_beside(storage.missing, storage.length):
        pieces.append((capture, at, stop - start))
        at += stop - start
    return tuple(pieces)


def _way_of(said: LoggedMessage | LoggedLoss) -> WayKey:
    client, server = (said.src, said.dst) if said.request else (said.dst, said.src)
    return said.job, client, server, said.way

"""The whole data path: capture files → packets → segments → streams → pipes → RPC records.

    capture/       CaptureReader   bytes of a file      → PacketBlock, or TcpBlock if tshark read the headers
    sources        PacketSource
      tcp/         Segmenter       either               → SegmentBlock
      tcp/         Tcp             SegmentBlock         → streams that grew
      tensorpipe/  Demux           streams              → TpMessage
    or, of a log, whose records are messages already:
    capture/       CaptureReader   bytes of a file      → LogBlock
    sources        LogSource
      rpclog/      LogJoin         LogBlock             → TpMessage
    or, where an index lies beside the captures, which holds what either has told:
    sources        IndexSource     bytes of the index   → TpMessage
    rpc/           RecordDecoder   TpMessage            → RpcRecord
    session/       SessionBuilder  RpcRecord            → Session
    checks/        Findings        RpcRecord, Session   → Finding

Every stage has `feed`, which takes a block of what the one before has made, and `finish`. A `Decoding` is one
pass over the captures; it yields records as their messages become complete and builds the session on the way.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import accumulate, chain
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from rpcinspect.capture import DEFAULT_READING, CaptureInput, CaptureReader, Followed, Live, Reading
from rpcinspect.checks.findings import Findings
from rpcinspect.checks.wire_facts import ConnectionEnd, WireFacts
from rpcinspect.errors import CaptureError, OutputError
from rpcinspect.files.closing import Closing
from rpcinspect.limits import DEFAULT_LIMITS, Limits
from rpcinspect.problems import Location, Problem
from rpcinspect.rpc.record import RecordDecoder, RpcRecord
from rpcinspect.session.builder import SessionBuilder
from rpcinspect.session.model import CaptureInfo, Session, WorkerIdentities
from rpcinspect.session.workers import resolve_workers, unnamed, with_names
from rpcinspect.sources.packets import PacketSource
from rpcinspect.sources.source import MessageSource, ReadWatch, index_beside
from rpcinspect.tcp.clocks import ClockOffset, Vantage
from rpcinspect.tcp.ranges import CaptureBytes
from rpcinspect.tensorpipe.records import TpMessage
from rpcinspect.unexpected import unexpected

if TYPE_CHECKING:
    from rpcinspect.sources.index import IndexedCapture
    from rpcinspect.sources.message_store import MessageStore
    from rpcinspect.workerlog.read import WorkerLog

BLOCK_MESSAGES = 512
BLOCK_BYTES = 1 << 18
"""Of the payloads of messages that are decoded at once: decoded they may take twenty times as much."""
FEW_FACTS = 1024
"""So many facts about workers may be looked through again for each new one."""

Progress: TypeAlias = Callable[[int, int | None], None]


class Options(Struct, frozen=True, kw_only=True):
    """How to decode; nothing here changes what is true."""

    limits: Limits = DEFAULT_LIMITS
    audit: bool = True
    """Judge what pickles would run, for findings; the gate of a replay judges by itself what it sends."""
    reading: Reading = DEFAULT_READING
    by_completion: bool = False
    """Number messages as they become complete, for output that can't wait for the order of time."""
    index: bool = True
    """Use an index that lies beside the captures."""
    names: Mapping[int, str] = MappingProxyType({})
    """Names for workers of which the capture tells the id only."""
    worker_logs: tuple[WorkerLog, ...] = ()
    """Text logs of workers, which tell of the same run."""
    log_zone_s: int | None = None
    """The time zone of their times that name none, east of Greenwich; None: the one that fits best."""
    progress: Progress | None = None
    """Hears how many bytes were read, of how many (None where nobody knows), and of all once that is over."""


class Decoding(Closing):
    """One pass over capture files that are read as one session; use it in a `with` statement."""

    def __init__(self, paths: Sequence[CaptureInput], options: Options | None = None) -> None:
        """Opens every file; raises `CaptureError` for the first that is no capture."""
        self.options = options = options or Options()
        """How the captures are read."""
        self._stack = ExitStack()
        self._stopped = False
        self._ending: list[bool] = []
        self._paths = paths
        self._index_notices: list[str] = []
        self.bytes = CaptureBytes(self._pread, options.reading.unpacking.bytes)
        """Bytes by their place in the captures, for whoever shows or hashes tensors."""
        try:
            self.readers: Sequence[CaptureReader | IndexedCapture]
            self._source = self._indexed() or self._unread()
        except BaseException:
            self._stack.close()
            raise
        self.builder = SessionBuilder(self.bytes)
        self._findings = Findings(self.builder.provenance, self.bytes, audit=options.audit)
        self._decoder = RecordDecoder(options.limits)
        self._session: Session | None = None
        self._wire_facts: WireFacts | None = None
        self._resolved_facts = (-1, -1, -1)
        self._resolved_rows = 0
        self._unexpected: dict[Problem, None] = {}
        """Why workers could not be told apart, which is tried again and again."""
        self._identities = resolve_workers((), (), self.builder.evidence)

    def _indexed(self) -> MessageSource | None:
        """Returns the source that reads an index of these captures; None where there is none to be used."""
        options, place = self.options, index_beside(self._paths)
        native = not options.reading.by_tshark
        if not options.index or options.by_completion or not native or place is None:
            return None
        paths = [path for path in self._paths if isinstance(path, str)]
        if not os.path.isfile(place) or not all(map(os.path.isfile, paths)):
            return None
        from rpcinspect.sources.index import IndexedCapture, IndexSource
        from rpcinspect.sources.index_file import open_index

        index = open_index(place, paths, options.limits)
        if index is None or isinstance(index, str):
            self._index_notices += [index] if index is not None else []
            return None
        self._stack.enter_context(index)
        self.readers = [
            self._stack.enter_context(IndexedCapture(path, number, index))
            for number, path in enumerate(paths)
        ]
        return IndexSource(index, ReadWatch(self._is_stopped, self._tell))

    def _unread(self) -> MessageSource:
        """Returns the source that reads these captures; raises `CaptureError` where they are of both
        kinds."""
        options = self.options
        self.readers = readers = [
            self._stack.enter_context(CaptureReader(path, number, options.reading))
            for number, path in enumerate(self._paths)
        ]
        watch = ReadWatch(self._is_stopped, self._tell)
        logs = [reader.reader == "log" for reader in readers]
        if any(logs) and not all(logs):
            log, packets = (readers[logs.index(kind)].path for kind in (True, False))
            raise CaptureError(f"{log} is a log and {packets} is none: they can't be read as one session")
        if any(logs):
            from rpcinspect.sources.log import LogSource  # a fifth of our own start, which packets need not

            return LogSource(readers, watch)
        patient = not options.by_completion
        return PacketSource(readers, self.bytes, options.limits, options.reading, watch, patient=patient)

    def stop(self) -> None:
        """Ends the reading: of a file before its next block, of an input that is still being written once its
        writer falls silent. What was read is still decoded to its end. May be called by a signal handler.
        """
        self._stopped = True
        self._ending = [reader.end() for reader in self.readers]

    def _is_stopped(self, capture: int) -> bool:
        return self._stopped and not self._ending[capture]

    def identities(self) -> WorkerIdentities:
        """Who is who, as far as it is known by now, or was not many messages ago."""
        pipes, source = len(self._source.pipes), self._source
        state = (pipes, source.facts, self.builder.evidence.facts)
        rows = len(self.builder.columns)
        # Looking through all that is known costs time, so that it is not done for each of many facts.
        if (
            state != self._resolved_facts
            and rows - self._resolved_rows >= max(sum(state) - FEW_FACTS, 0) // 16
        ):
            self._resolved_facts, self._resolved_rows = state, rows
            self._identities = self._resolve_workers()
        return self._identities

    def _resolve_workers(self) -> WorkerIdentities:
        try:
            found = self._source.identities(self.builder.evidence)
            return with_names(found, self.options.names) if self.options.names else found
        except Exception as error:
            self._unexpected[unexpected(error, "session", Location())] = None
            return unnamed(self._source.pipes)

    def records(self) -> Iterator[RpcRecord]:
        """Records in the order in which their messages become complete."""
        return chain.from_iterable(self.blocks())

    def blocks(self) -> Iterator[list[RpcRecord]]:
        """The same, some at a time: what is counted and paired by then holds all of these."""
        decode, build, look = self._decoder.feed, self.builder.feed, self._findings.feed
        cut = _one_by_one if self.options.by_completion else _some
        for messages in self._source.messages():
            for some in cut(messages):
                records = decode(some)
                build(records)
                look(records)
                yield records
                self.builder.count_problems(records)
            self._tell()
        self._session = self._finish()
        if self.options.progress is not None:
            self.options.progress(1, 1)

    def record(self, row: int) -> RpcRecord | None:
        """Returns the record of a row; None where there is none. Instead of `records`: an index gives it
        without the others, else all up to it are read."""
        tp = self._source.message(row)
        if tp is not None:
            return RecordDecoder(self.options.limits).again(row, tp)
        return next((record for record in self.records() if record.row == row), None)

    def _tell(self) -> None:
        """Tells who listens how far the reading is."""
        if self.options.progress is None:
            return
        done, of = self._source.progress
        self.options.progress(done if of is None else min(done, max(of - 1, 0)), of)

    @property
    def unread_link_types(self) -> list[str]:
        """The link types that no packet could be read for, if there are no others."""
        packets = sum(reader.packets for reader in self.readers)
        unread = {what: n for what, n in self._source.unread.items() if what.startswith("link type ")}
        return sorted(unread) if packets and sum(unread.values()) == packets else []

    @property
    def notices(self) -> list[str]:
        """What the reader should know beside the messages: of which captures there is more than was read or
        shown, and which names nobody has."""
        found = [*self._index_notices]
        found += [f"{r.path}: {r.ended_early}" for r in self.readers if r.ended_early is not None]
        if self.bytes.refused:
            found.append(
                f"{self.bytes.refused:,} times the bytes of a tensor were left out: those that repeat bytes "
                "or share a storage hold more together than is read; --unpack-limit sets another limit"
            )
        named = {(worker.id, worker.name) for worker in self.session.workers}
        for one in self.options.names.items():
            if one not in named:
                found.append(f"--worker {one[0]}={one[1]}: no worker is known by the id {one[0]} only")
        return found

    @property
    def session(self) -> Session:
        """The session; only after `records` has come to its end."""
        if self._session is None:
            raise RuntimeError("the session is known once every record was taken")
        return self._session

    @property
    def ends(self) -> Sequence[ConnectionEnd]:
        """How connections ended; only after `records` has come to its end."""
        return self.wire_facts.ends

    @property
    def wire_facts(self) -> WireFacts:
        """What was lost, too; only after `records` has come to its end."""
        if self._wire_facts is None:
            raise RuntimeError("what was lost is known once every record was taken")
        return self._wire_facts

    def _finish(self) -> Session:
        source = self._source
        self.builder.join_ends(source.pipes)
        identities = self._resolve_workers()
        told = source.told()
        session = self.builder.finish(
            captures=[_info(r, told.clocks[r.index], told.vantages[r.index]) for r in self.readers],
            pipes=source.pipes,
            identities=identities,
            problems=[*told.problems, *self._unexpected],
            sums=told.sums,
            by_completion=self.options.by_completion,
            failed=told.failed,
        )
        self._wire_facts = told.wire
        unread: list[Problem] = []
        if self.options.worker_logs:
            from rpcinspect.checks.worker_logs import join_logs

            logs, zone_s = self.options.worker_logs, self.options.log_zone_s
            try:
                joined = join_logs(session, logs, told.wire.ends, zone_s)
                session = replace(session, worker_logs=joined)
            except Exception as error:
                unread.append(unexpected(error, "session", Location()))
        findings = self._findings.finish(session, told.wire)
        return replace(session, findings=findings).with_problems([*unread, *self._findings.problems])

    def bytes_beside(self) -> CaptureBytes:
        """Returns what reads bytes of the captures in another thread, while they are still being decoded: it
        has no window that the decoding moves."""
        return CaptureBytes(self._pread, self.options.reading.unpacking.bytes)

    def write_index(self, store: MessageStore) -> Path:
        """Writes the index of the captures beside the first, and returns its place; only after the last
        message, all of which `store` has. Raises `OutputError` with the reason where there can be none.
        """
        from rpcinspect.sources.index_file import write_index

        place = index_beside(self._paths)
        if place is None or self._stopped:
            raise OutputError("no index is made of what is no file, or was not read to its end")
        readers = [reader for reader in self.readers if isinstance(reader, CaptureReader)]
        if readers:  # else it is there
            write_index(place, readers, self._source.told(), store, self.options.limits)
        return place

    def open_again(self, capture: int) -> CaptureReader:
        """Opens a capture once more, for whoever looks at its packets; close it. Raises `OutputError` for a
        log, which has none, and for what can't be read twice."""
        path, reader = self._paths[capture], self.readers[capture]
        if isinstance(path, (Live, Followed)) or not os.path.isfile(reader.path):
            raise OutputError(f"{reader.path}: its packets can be read only once")
        if reader.reader == "log":
            raise OutputError(f"{reader.path}: a log holds messages without their packets")
        return CaptureReader(path, capture, self.options.reading)

    def _pread(self, capture: int, offset: int, length: int) -> bytes:
        data = self.readers[capture].pread(offset, length)
        if len(data) != length:
            raise CaptureError(f"{self.readers[capture].path}: it has become shorter while it was read")
        return data

    def close(self) -> None:
        """Closes every file."""
        self._stack.close()


def make_index(paths: Sequence[str], options: Options | None = None) -> Path:
    """Reads captures as one session and writes their index, which later passes over them use; returns its
    place. Raises `OutputError` with the reason where there can be none."""
    from rpcinspect.sources.message_store import MessageStore

    options = replace(options or Options(), index=False, by_completion=False)
    with Decoding(paths, options) as decoding, MessageStore(options.limits) as store:
        for messages in decoding._source.messages():
            store.extend(messages)
            decoding._tell()
        return decoding.write_index(store)


def _one_by_one(messages: list[TpMessage]) -> Iterator[list[TpMessage]]:
    """In the order of completion: what is told of a message then is what was known by then."""
    for message in sorted(messages, key=lambda message: message.last_ns):  # they come stream by stream
        yield [message]


def _some(messages: list[TpMessage]) -> Iterator[list[TpMessage]]:
    """Some at a time, so that no more than these is decoded at once."""
    sizes = list(accumulate([message.length for message in messages]))
    first = 0
    while first < len(messages):
        most = bisect_right(sizes, sizes[first] + BLOCK_BYTES)
        stop = min(first + BLOCK_MESSAGES, max(first + 1, most))
        yield messages[first:stop]
        first = stop


def _info(reader: CaptureReader | IndexedCapture, clock: ClockOffset | None, vantage: Vantage) -> CaptureInfo:
    shift = clock.shift_ns if clock is not None else 0
    first, last = reader.first_time_ns, reader.last_time_ns
    return CaptureInfo(
        capture=reader.index,
        path=reader.path,
        format=reader.format,
        compression=reader.compression,
        packets=reader.packets,
        bytes=reader.bytes,
        first_time_ns=None if first is None else first - shift,
        last_time_ns=None if last is None else last - shift,
        reader=reader.reader,
        clock=clock,
        vantage=vantage,
        problem=reader.ended_early,
    )

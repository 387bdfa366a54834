"""The whole data path on one page: capture files → packets → segments → streams → pipes → RPC records.

    capture/   open_capture        bytes of a file      → PacketBlock, or TcpBlock if tshark read the headers
    wire/      Segmenter           either               → SegmentBlock
    wire/      Tcp                 SegmentBlock         → streams that grew
    wire/      Demux               streams              → TpMessage
    rpc/       RecordDecoder       TpMessage            → RpcRecord
    session/   SessionBuilder      RpcRecord            → Session
    trace/     Findings            RpcRecord, Session   → Finding

Every stage has `feed` and `finish`. A `Decoding` is one pass over the captures; it yields records as their
messages become complete and builds the session on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TypeAlias

from rpcinspect.capture import DEFAULT_READING, CaptureReader, Live, Reading, open_capture
from rpcinspect.errors import CaptureError
from rpcinspect.limits import DEFAULT_LIMITS, Limits
from rpcinspect.rpc.record import RecordDecoder, RpcRecord
from rpcinspect.rpc.tensor import storage_lengths
from rpcinspect.session.builder import SessionBuilder
from rpcinspect.session.model import CaptureInfo, Session
from rpcinspect.session.names import Roster, call_roll
from rpcinspect.trace.findings import Findings
from rpcinspect.trace.wire_facts import WireFacts
from rpcinspect.wire.clocks import ClockOffset, ClockSamples
from rpcinspect.wire.demux import Demux
from rpcinspect.wire.ranges import CaptureBytes
from rpcinspect.wire.records import TpMessage
from rpcinspect.wire.segment import SegmentBlock, Segmenter
from rpcinspect.wire.tcp import Connection, Tcp

PATIENCE_NS = 2_000_000_000
"""How long, in capture time, acknowledged bytes that were not captured are waited for. Only captures of more
than one file can still bring them, and those wait until the end."""


Progress: TypeAlias = Callable[[int, int | None], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to decode; nothing here changes what is true."""

    limits: Limits = DEFAULT_LIMITS
    forms: bool = False
    """Record how everything was written, so that it can be encoded again."""
    reading: Reading = DEFAULT_READING
    by_completion: bool = False
    """Number messages as they become complete, for output that can't wait for the order of time."""
    progress: Progress | None = None
    """Hears how many bytes were read, of how many (None where nobody knows), and of all once that is over."""


class Decoding:
    """One pass over capture files that are read as one session; use it in a `with` statement."""

    def __init__(self, paths: Sequence[str | Live], options: Options | None = None) -> None:
        """Opens every file; raises `CaptureError` for the first that is no capture."""
        self._options = options = options or Options()
        self._stack = ExitStack()
        try:
            self.readers: list[CaptureReader] = [
                self._stack.enter_context(open_capture(path, index, options.reading))
                for index, path in enumerate(paths)
            ]
        except BaseException:
            self._stack.close()
            raise
        self.bytes = CaptureBytes(self._pread)
        """Bytes by their place in the captures, for whoever shows or hashes tensors."""
        self.builder = SessionBuilder()
        self._findings = Findings(self.builder.columns, self.bytes)
        self._segmenter = Segmenter()
        patience = PATIENCE_NS if len(paths) == 1 else None
        self._clocks = ClockSamples()
        self._offsets: list[ClockOffset | None] = []
        """Of each capture that was begun, against the first one's clock."""
        self._tcp = Tcp(self.bytes, self._segmenter.flows, patience)
        self._demux = Demux(options.limits, patient=not options.by_completion, read_table=storage_lengths)
        self._decoder = RecordDecoder(options.limits, forms=options.forms)
        self._session: Session | None = None
        self._looked_through: dict[int, int] = {}
        """Bytes of captures that were looked through before they are read."""
        self._stopped = False
        self._ending: list[bool] = []
        self._roster_state = (-1, -1, -1)
        self._roster_rows = 0
        self._roster = call_roll((), (), self.builder.witness)

    def stop(self) -> None:
        """Ends the reading: of a file before its next block, of an input that is still being written once its
        writer falls silent. What was read is still decoded to its end. May be called by a signal handler.
        """
        self._stopped = True
        self._ending = [reader.end() for reader in self.readers]

    def roster(self) -> Roster:
        """Who is who, as far as it is known by now, or was not many messages ago."""
        pipes = self._demux.pipes
        state = (len(pipes), len(self._demux.store_entries), self.builder.witness.facts)
        rows = len(self.builder.columns)
        # Calling the roll costs time for each pipe, so that it must not be done for each of many new pipes.
        if state != self._roster_state and rows - self._roster_rows >= len(pipes) // 16:
            self._roster_state, self._roster_rows = state, rows
            known = [pipe.pipe for pipe in pipes]
            self._roster = call_roll(known, self._demux.store_entries, self.builder.witness)
        return self._roster

    def records(self) -> Iterator[RpcRecord]:
        """Records in the order in which their messages become complete."""
        for reader in self.readers:
            for block in self._segments(reader):
                yield from self._records(self._demux.feed(self._tcp.feed(block)))
                self._tell()
        yield from self._records(self._demux.feed(list(self._tcp.finish())))
        yield from self._records(self._demux.finish())
        self._session = self._finish()
        if self._options.progress is not None:
            self._options.progress(1, 1)

    def _tell(self) -> None:
        """How far the reading is."""
        if self._options.progress is None:
            return
        done, sizes = 0, []
        for reader in self.readers:
            read, size = reader.progress
            done += read + self._looked_through.get(reader.index, 0)
            sizes.append(None if size is None else size * (2 if self._look_before(reader) else 1))
        known = [size for size in sizes if size is not None]
        of = sum(known) if len(known) == len(sizes) else None
        self._options.progress(done if of is None else min(done, max(of - 1, 0)), of)

    def _segments(self, reader: CaptureReader) -> Iterator[SegmentBlock]:
        """The segments of one capture; of several, in the clock of the first."""
        offset = self._clock_offset(reader)
        self._offsets.append(offset)
        shift = offset.shift_ns if offset is not None else 0
        for packets in reader.blocks():
            if self._stopped and not self._ending[reader.index]:
                break
            block = self._segmenter.feed(packets)
            if shift:
                block = replace(block, time_ns=block.time_ns - shift)
            if len(self.readers) > 1:
                self._clocks.note(block, self._segmenter.flows)
            yield block

    def _clock_offset(self, reader: CaptureReader) -> ClockOffset | None:
        """How a capture's clock differs from the first one's: its packets are looked at before."""
        if not self._look_before(reader):
            return None
        segmenter, samples = Segmenter(), ClockSamples()
        with open_capture(reader.path, reader.index, self._options.reading) as again:
            for packets in again.blocks():
                if self._stopped:
                    return None
                samples.note(segmenter.feed(packets), segmenter.flows)
                self._looked_through[reader.index] = again.progress[0]
                self._tell()
        return samples.against(self._clocks, self._offsets)

    @staticmethod
    def _look_before(reader: CaptureReader) -> bool:
        """Whether a capture is looked through before it is read."""
        return reader.index > 0 and reader.twice

    @property
    def unread_link_types(self) -> list[str]:
        """The link types that no packet could be read for, if there are no others."""
        packets = sum(reader.packets for reader in self.readers)
        unread = {what: n for what, n in self._segmenter.other.items() if what.startswith("link type ")}
        return sorted(unread) if packets and sum(unread.values()) == packets else []

    @property
    def session(self) -> Session:
        """The session; only after `records` has come to its end."""
        if self._session is None:
            raise RuntimeError("the session is known once every record was taken")
        return self._session

    @property
    def connections(self) -> Sequence[Connection]:
        """Every TCP connection, for whoever asks how they ended."""
        return self._tcp.connections

    def _records(self, messages: list[TpMessage]) -> Iterator[RpcRecord]:
        decode, feed, look = self._decoder.decode, self.builder.feed, self._findings.feed
        if self._options.by_completion:  # a block gives them stream by stream
            messages = sorted(messages, key=lambda message: message.last_ns)
        for message in messages:
            record = decode(message)
            feed(record)
            look(record)
            yield record

    def _finish(self) -> Session:
        demux = self._demux
        problems = [problem for reader in self.readers for problem in reader.problems]
        problems += demux.problems
        session = self.builder.finish(
            captures=[_info(r, self._offset(r.index)) for r in self.readers],
            pipes=[state.pipe for state in demux.pipes],
            entries=demux.store_entries,
            problems=problems,
            rpc_bytes=sum(state.frame_bytes for state in demux.pipes),
            tensor_bytes=sum(state.tensor_bytes for state in demux.pipes),
            skipped_bytes=demux.skipped_bytes,
            store_bytes=demux.store_bytes,
            by_completion=self._options.by_completion,
        )
        session.findings = self._findings.finish(session, WireFacts.of(self._tcp.connections))
        return session

    def _offset(self, capture: int) -> ClockOffset | None:
        return self._offsets[capture] if capture < len(self._offsets) else None

    def _pread(self, capture: int, offset: int, length: int) -> bytes:
        data = self.readers[capture].pread(offset, length)
        if len(data) != length:
            raise CaptureError(f"{self.readers[capture].path}: it has become shorter while it was read")
        return data

    def close(self) -> None:
        """Closes every file."""
        self._stack.close()

    def __enter__(self) -> Decoding:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _info(reader: CaptureReader, clock: ClockOffset | None) -> CaptureInfo:
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
    )

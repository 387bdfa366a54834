"""Captures of packets → `TpMessage`s, through TCP and pipes.

In: open captures of packets. Out: what any `MessageSource` gives.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from rpcinspect.capture import CaptureReader, LogBlock, Reading
from rpcinspect.capture.block import PacketBlock, SegmentBlock, TcpBlock, as_int64
from rpcinspect.checks.wire_facts import WireFacts
from rpcinspect.limits import Limits
from rpcinspect.problems import Location, Problem
from rpcinspect.rpc.tensor import storage_lengths
from rpcinspect.session.identity import IdentityEvidence
from rpcinspect.session.model import WorkerIdentities
from rpcinspect.session.workers import resolve_workers
from rpcinspect.sources.source import MessageSource, ReadWatch, SourceFacts, read_of
from rpcinspect.store.directory import StoreEntry
from rpcinspect.tcp.clocks import ClockOffset, ClockSamples, Vantage
from rpcinspect.tcp.connections import Tcp
from rpcinspect.tcp.handshake_times import HandshakeTimes
from rpcinspect.tcp.ranges import CaptureBytes
from rpcinspect.tcp.segment import Segmenter
from rpcinspect.tensorpipe.demux import Demux
from rpcinspect.tensorpipe.records import TpMessage
from rpcinspect.unexpected import unexpected

Packets: TypeAlias = PacketBlock | TcpBlock

PATIENCE_NS = 2_000_000_000
"""How long, in capture time, acknowledged bytes that were not captured are waited for. Only captures of more
than one file can still bring them, and those wait until the end."""


class PacketFacts(SourceFacts, kw_only=True):
    """What captures of packets tell beside messages."""

    store_entries: tuple[StoreEntry, ...]

    @property
    def count(self) -> int:
        return len(self.store_entries)

    def identities(self, evidence: IdentityEvidence) -> WorkerIdentities:
        return resolve_workers(self.pipes, self.store_entries, evidence)


class PacketSource(MessageSource):
    """Messages out of captures of packets."""

    def __init__(
        self,
        readers: Sequence[CaptureReader],
        source: CaptureBytes,
        limits: Limits,
        reading: Reading,
        watch: ReadWatch,
        *,
        patient: bool,
    ) -> None:
        self._readers = readers
        self._reading = reading
        self._watch = watch
        self._segmenter = Segmenter()
        self._clocks = ClockSamples()
        self._offsets: list[ClockOffset | None] = []
        """Of each capture that was begun, against the first one's clock."""
        self._goes_on: list[int | None] = []
        """Of each of them the capture that it goes on from."""
        self._handshakes = HandshakeTimes()
        self._problems: list[Problem] = []
        self._looked_through: dict[int, int] = {}
        """Bytes of captures that were looked through before they are read."""
        self._tcp = Tcp(source, self._segmenter.flows, PATIENCE_NS if len(readers) == 1 else None)
        self._demux = Demux(limits, patient=patient, read_table=storage_lengths)
        self.pipes, self.unread = self._demux.registry.opened, self._segmenter.other

    def messages(self) -> Iterator[list[TpMessage]]:
        for reader in self._readers:
            for block in self._segments(reader):
                try:
                    grown = self._tcp.feed(block)
                except Exception as error:
                    self._give_up(error, block.capture, _first_packet(block))
                    continue
                yield self._demux.feed(grown)
        yield self._demux.feed(list(self._tcp.finish()))
        yield self._demux.finish()

    def _give_up(self, error: Exception, capture: int, packet: int | None) -> None:
        """A block is passed over, whose first packet this is."""
        self._problems.append(unexpected(error, "tcp", Location(capture=capture, packet=packet)))

    def _segments(self, reader: CaptureReader) -> Iterator[SegmentBlock]:
        """Returns the segments of one capture; of several, in the clock of the first."""
        offset, before = self._compared(reader)
        self._offsets.append(offset)
        self._goes_on.append(before)
        if before is not None:
            self._clocks.sniffers[reader.index] = self._clocks.sniffers.get(before, before)
        shift = offset.shift_ns if offset is not None else 0
        for packets in reader.blocks():
            if self._watch.stopped(reader.index):
                break
            assert not isinstance(packets, LogBlock)
            try:
                block = self._segmenter.feed(packets)
            except Exception as error:
                self._give_up(error, packets.capture, _first_packet(packets))
                reader.keep(NOTHING, NOTHING, end_of(packets))
                continue
            _keep_payloads(reader, packets, block)
            self._handshakes.note(block, self._segmenter.flows)
            if shift:
                block = replace(block, time_ns=block.time_ns - shift)
            if len(self._readers) > 1:
                self._clocks.note(block, self._segmenter.flows)
            yield block

    def _compared(self, reader: CaptureReader) -> tuple[ClockOffset | None, int | None]:
        """How a capture's clock differs from the first one's, and which capture it goes on from: its packets
        are looked at before."""
        if not _look_before(reader):
            return None, None
        segmenter, samples = Segmenter(), ClockSamples()
        with CaptureReader(reader.input, reader.index, self._reading) as again:
            for block in segments_alone(again, segmenter):
                if self._watch.stopped(reader.index):
                    return None, None
                samples.note(block, segmenter.flows)
                self._looked_through[reader.index] = again.progress[0]
                self._watch.tell()
        offset = samples.against(self._clocks, self._offsets)
        before = samples.goes_on_from(self._clocks, self._offsets) if offset is None else None
        return offset if before is None else self._offsets[before], before

    def _vantage(self, capture: int) -> Vantage:
        goes_on = self._goes_on[capture] if capture < len(self._goes_on) else None
        hosts, host = self._clocks.hosts.get(capture, frozenset()), self._handshakes.host(capture)
        if host is not None and (host in hosts or not hosts):
            hosts = frozenset((host,))
        return Vantage(goes_on=goes_on, hosts=hosts)

    @property
    def facts(self) -> int:
        return len(self._demux.registry.store_entries)

    def identities(self, evidence: IdentityEvidence) -> WorkerIdentities:
        self._demux.registry.note_ends()
        return resolve_workers(self.pipes, self._demux.registry.store_entries, evidence)

    def told(self) -> PacketFacts:
        tcp, given_up, registry = self._tcp, self._demux.given_up, self._demux.registry
        registry.note_ends()
        rpc_bytes = sum(state.frame_bytes for state in registry.pipes)
        tensor_bytes = sum(state.tensor_bytes for state in registry.pipes)
        problems = [problem for reader in self._readers for problem in reader.problems]
        return PacketFacts(
            pipes=tuple(self.pipes),
            wire=WireFacts.of(tcp.connections, given_up, registry.visits, registry.store_addresses),
            problems=(*problems, *self._problems, *tcp.problems, *registry.problems),
            sums=(rpc_bytes, tensor_bytes, registry.skipped_bytes, registry.store_bytes),
            unread=dict(self.unread),
            clocks=(*self._offsets, *[None] * (len(self._readers) - len(self._offsets))),
            vantages=tuple(map(self._vantage, range(len(self._readers)))),
            store_entries=tuple(registry.store_entries),
        )

    @property
    def progress(self) -> tuple[int, int | None]:
        done, of = read_of(self._readers, twice=_look_before)
        return done + sum(self._looked_through.values()), of


def segments_alone(reader: CaptureReader, segmenter: Segmenter) -> Iterator[SegmentBlock]:
    """Yields the segments of a capture of packets whose bytes nobody reads again, in its own clock."""
    for packets in reader.blocks():
        assert not isinstance(packets, LogBlock)
        yield segmenter.feed(packets)
        reader.keep(NOTHING, NOTHING, end_of(packets))


def _keep_payloads(reader: CaptureReader, packets: Packets, block: SegmentBlock) -> None:
    """Streams are made of payloads: nobody reads anything else of these packets again, unless they are parts
    of packets that are not complete.
    """
    end = end_of(packets)
    if block.has_fragments:
        reader.keep(as_int64([block.window_offset]), as_int64([end - block.window_offset]), end)
    else:
        there = block.captured > 0
        reader.keep(block.offset[there], block.captured[there], end)


def end_of(packets: Packets) -> int:
    """Where in the file the last packet of a block ends."""
    if isinstance(packets, TcpBlock):
        return packets.segments.window_offset + len(packets.segments.window)
    return int((packets.offset + packets.caplen).max())


NOTHING = as_int64([])


def _first_packet(block: Packets | SegmentBlock) -> int | None:
    if isinstance(block, PacketBlock):
        return block.first_number
    segments = block.segments if isinstance(block, TcpBlock) else block
    return int(segments.packet[0]) if len(segments) else None


def _look_before(reader: CaptureReader) -> bool:
    """Whether a capture is looked through before it is read."""
    return reader.index > 0 and reader.twice

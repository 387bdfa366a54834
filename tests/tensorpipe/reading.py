"""Capture files → TCP streams, for tests that look at what a whole file gives.

found = read_streams([path, …])
found["10.0.0.1:5000>10.0.0.2:6000"].content        # zeros in the holes
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from rpcinspect.capture import CaptureReader
from rpcinspect.problems import Problem
from rpcinspect.tcp.connections import Tcp
from rpcinspect.tcp.ranges import CaptureBytes, RangeStamp
from rpcinspect.tcp.segment import Segmenter
from rpcinspect.tcp.stream import Connection, Stream

PATIENCE_NS = 2_000_000_000


class OneWay(Struct, frozen=True):
    """One direction of a connection, read whole."""

    content: bytes
    holes: list[tuple[int, int]]
    conflicts: list[tuple[int, int, int]]
    """(offset, length, packet) of copies that differ from the first."""
    acked: int | None
    """How far the other side acknowledged it."""
    cut_bytes: int
    stamp: RangeStamp
    pieces: tuple[tuple[int, int, int], ...]
    """(capture, file offset, length) of its bytes."""


class Reading(Struct, frozen=True):
    """All that a few files gave."""

    connections: list[Connection]
    talks: list[dict[str, OneWay | None]]
    """For each connection its two directions by the text of their flow; None for one without a byte."""
    streams: dict[str, list[OneWay]]
    """By the text of their flow, in the order of connections; directions without a byte are left out."""
    other: dict[str, int]
    problems: list[Problem]
    packets: int

    def __getitem__(self, flow: str) -> OneWay:
        """The only stream with this flow."""
        [stream] = self.streams[flow]
        return stream


def read_streams(paths: Sequence[Path], *, patience_ns: int | None = PATIENCE_NS) -> Reading:
    """Reads files as one session, as `Decoding` does."""
    readers = [CaptureReader(str(path), index) for index, path in enumerate(paths)]
    try:
        source = CaptureBytes(lambda capture, offset, length: readers[capture].pread(offset, length))
        segmenter = Segmenter()
        tcp = Tcp(source, segmenter.flows, patience_ns if len(paths) == 1 else None)
        for reader in readers:
            for block in reader.blocks():
                tcp.feed(segmenter.feed(block))
        list(tcp.finish())
        talks: list[dict[str, OneWay | None]] = []
        streams: dict[str, list[OneWay]] = {}
        for connection in tcp.connections:
            both = [(str(stream.flow), _one_way(stream)) for stream in connection.streams]
            talks.append(dict(both))
            for flow, one in both:
                if one is not None:
                    streams.setdefault(flow, []).append(one)
        return Reading(
            tcp.connections,
            talks,
            streams,
            dict(segmenter.other),
            [problem for reader in readers for problem in reader.problems],
            sum(reader.packets for reader in readers),
        )
    finally:
        for reader in readers:
            reader.close()


def _one_way(stream: Stream) -> OneWay | None:
    if stream.origin is None or stream.end is None or stream.end == stream.origin:
        return None
    extent = stream.extent(stream.origin, stream.end)
    return OneWay(
        content=stream.read(stream.origin, stream.end),
        holes=[(stream.offset(start), stream.offset(end)) for start, end in stream.holes],
        conflicts=[(stream.offset(c.position), c.length, c.packet) for c in stream.conflicts],
        acked=None if stream.acked is None else stream.offset(stream.acked),
        cut_bytes=stream.cut_bytes,
        stamp=stream.stamp(stream.origin, stream.end),
        pieces=extent.pieces,
    )

"""The bytes of a message, one part behind the other: its frames as they lie in the stream, then its storages.

In: a record. Out: parts with their lengths and holes, which are read where they are asked for; which line of
a listing of so many bytes a line is which range. Nothing is made for each line, and a long hole is one line.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from msgspec import Struct

from rpcinspect.fields.phrases import counted, path_label, shorten_middle
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.model import Session
from rpcinspect.tcp.ranges import CaptureBytes, Extent
from rpcinspect.tensorpipe.records import Placement
from rpcinspect.views.message_parts import stream_parts

MAX_PATH = 40
BLOCK_BYTES = 1 << 12
BLOCKS = 256
"""So many blocks of storages are kept."""
UNPLACED = {
    Placement.UNCERTAIN: "captured, but which bytes of the capture they are is not certain",
    Placement.MISSING: "not captured",
}


class ByteRange(Struct, frozen=True):
    """Some bytes of one part of a message."""

    part: int
    start: int
    end: int

    def holds(self, part: int, at: int) -> bool:
        """Returns whether a byte is among them."""
        return part == self.part and self.start <= at < self.end


class MessagePart(Struct, frozen=True):
    """Bytes that follow each other: of a frame, or a storage."""

    name: str
    about: str
    """Where they lie."""
    length: int
    data: bytes = b""
    """Those of a frame."""
    start: int = 0
    """Of a frame's in the stream."""
    storage: int | None = None
    """The number of a storage."""
    extent: Extent | None = None
    """Where a storage lies, if that is certain."""
    lack: str = "not captured"
    """Why bytes are not there."""

    @property
    def holes(self) -> tuple[tuple[int, int], ...]:
        """Returns the ranges whose bytes are not there."""
        if self.extent is not None:
            return self.extent.missing
        have = 0 if self.storage is not None else len(self.data)
        return ((have, self.length),) if have < self.length else ()

    def offset(self, at: int) -> int | None:
        """Returns the place of a byte: of a frame's in the stream, of a storage's in the capture file; None
        where it has none."""
        if self.storage is None:
            return self.start + at
        if self.extent is None:
            return None
        number = bisect_right(self.extent.starts, at) - 1
        if number < 0:
            return None
        into = at - self.extent.starts[number]
        _, offset, length = self.extent.pieces[number]
        return offset + into if into < length else None

    def furthest(self) -> int:
        """Returns the greatest offset that it has, or one beyond."""
        if self.extent is not None:
            return max((offset + length for _, offset, length in self.extent.pieces), default=0)
        return self.start + self.length


class MessageBytes:
    """The parts of a message."""

    def __init__(self, record: RpcRecord, source: CaptureBytes, session: Session | None = None) -> None:
        """`source`: nobody else may be moving its window while it is used here; `session` names the
        captures."""
        self._source = source
        self._session = session
        logged = record.tp.pipe.logged
        self.parts: list[MessagePart] = []
        for part in stream_parts(record):
            end = part.start + part.length
            lack = "not captured"
            if part.missing and len(part.data) + part.missing < part.length:
                lack = f"{part.missing:,} of them not captured, the others not kept"
            told = f"{part.start}..{end} of the {'part' if logged else 'stream'}"
            self.parts.append(MessagePart(part.name, told, part.length, part.data, part.start, lack=lack))
        self.storages = len(self.parts)
        """The place of the first storage among the parts."""
        for number, tensor in enumerate(record.tp.tensors):
            about = UNPLACED.get(tensor.placement) or self._pieces(tensor.extent)
            lack = UNPLACED.get(tensor.placement, "not captured")
            self.parts.append(
                MessagePart(
                    f"storage {number}",
                    about,
                    tensor.descriptor.length,
                    storage=number,
                    extent=tensor.extent,
                    lack=lack,
                )
            )
        self._names = {part.name: place for place, part in reversed(list(enumerate(self.parts)))}
        self._block = lru_cache(BLOCKS)(self._read_block)

    def _pieces(self, extent: Extent | None) -> str:
        if extent is None or not extent.pieces:
            return "empty" if extent is None or not extent.length else "not captured"
        capture, offset, length = extent.pieces[0]
        told = f"{offset}..{offset + length} of {self._capture(capture)}"
        more = len(extent.pieces) - 1
        told += f" and {counted(more, 'more piece')}" if more else ""
        return f"{told}, {counted(extent.missing_bytes, 'byte')} not captured" if extent.missing else told

    def _capture(self, capture: int) -> str:
        if self._session is None:
            return "the capture"
        info = self._session.captures[capture]
        name = shorten_middle(path_label(info.path.rpartition("/")[2]), MAX_PATH)
        return f"{name} ({info.compression}, unpacked)" if info.compression else name

    def of(self, *names: str) -> tuple[ByteRange, ...]:
        """Returns the whole of the first part that has one of these names."""
        for name in names:
            place = self._names.get(name)
            if place is not None:
                return (ByteRange(place, 0, self.parts[place].length),)
        return ()

    def frames(self) -> tuple[ByteRange, ...]:
        """Returns all that lies in the stream."""
        return tuple(ByteRange(n, 0, part.length) for n, part in enumerate(self.parts[: self.storages]))

    def read(self, part: int, start: int, end: int) -> bytes:
        """Returns bytes of a part, zeros where they are not there. Of a storage no more is read than the
        blocks in which they lie."""
        one = self.parts[part]
        if one.storage is None:
            return one.data[start:end].ljust(end - start, b"\0")
        if one.extent is None:
            return bytes(end - start)
        first = start // BLOCK_BYTES
        blocks = [self._block(part, number) for number in range(first, -(-end // BLOCK_BYTES))]
        return b"".join(blocks)[start - first * BLOCK_BYTES : end - first * BLOCK_BYTES]

    def missing(self, part: int, start: int, end: int) -> tuple[tuple[int, int], ...]:
        """Returns which of these bytes are not there, counted from the first of them."""
        one = self.parts[part]
        if one.extent is not None:
            return one.extent.part(start, end).missing if one.extent.missing else ()
        return tuple(
            (max(low, start) - start, min(high, end) - start)
            for low, high in one.holes
            if low < end and start < high
        )

    def _read_block(self, part: int, number: int) -> bytes:
        extent = self.parts[part].extent
        assert extent is not None
        low = number * BLOCK_BYTES
        return extent.part(low, min(low + BLOCK_BYTES, extent.length)).read(self._source)


class ByteSpan(NamedTuple):
    """Lines of a listing that follow each other and are alike."""

    line: int
    """The first one."""
    part: int
    start: int
    end: int
    kind: str
    """`title`, `bytes` or `hole`; the first and the last are one line."""


class ByteListing:
    """Says which bytes of a message stand in which line of the bytes pane."""

    def __init__(self, parts: list[MessagePart], per_line: int) -> None:
        self.per_line = per_line
        self._spans = list(_spans(parts, per_line))
        self._lines = [span.line for span in self._spans]
        self._places = [(span.part, span.start) for span in self._spans]
        last = self._spans[-1] if self._spans else None
        self.count = 0 if last is None else last.line + _lines_of(last, per_line)
        """How many lines there are."""

    def line(self, number: int) -> ByteSpan:
        """Returns what stands in a line: its bytes, or that it is a title, or a hole."""
        span = self._spans[bisect_right(self._lines, number) - 1]
        if span.kind != "bytes":
            return span
        start = span.start + (number - span.line) * self.per_line
        return ByteSpan(number, span.part, start, min(start + self.per_line, span.end), "bytes")

    def line_of(self, part: int, at: int) -> int:
        """Returns the line in which a byte stands."""
        span = self._spans[bisect_right(self._places, (part, at)) - 1]
        return span.line if span.kind != "bytes" else span.line + (at - span.start) // self.per_line


def _lines_of(span: ByteSpan, per_line: int) -> int:
    return -(-(span.end - span.start) // per_line) if span.kind == "bytes" else 1


def _spans(parts: list[MessagePart], per_line: int) -> Iterator[ByteSpan]:
    line = 0
    for number, part in enumerate(parts):
        for start, end, kind in ((0, 0, "title"), *_pieces(part, per_line)):
            span = ByteSpan(line, number, start, end, kind)
            yield span
            line += _lines_of(span, per_line)


def _pieces(part: MessagePart, per_line: int) -> Iterator[tuple[int, int, str]]:
    """Holes that fill lines become one line."""
    at = 0
    for start, end in part.holes:
        low = -(-start // per_line) * per_line
        high = end if end == part.length else end // per_line * per_line
        if low >= high:
            continue
        if at < low:
            yield at, low, "bytes"
        yield low, high, "hole"
        at = high
    if at < part.length:
        yield at, part.length, "bytes"

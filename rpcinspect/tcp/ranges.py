"""Ranges of capture files: where bytes lie, instead of copies of them.

A stream is made of *runs*, which are columns of such ranges; a tensor is an *extent*, which is a few of them.
`CaptureBytes` turns ranges into bytes, through whatever function reads the files: nothing here opens one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, pairwise, repeat
from typing import TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from rpcinspect.capture.block import Int64s, SegmentBlock
from rpcinspect.tcp.rows import gather

MANY = 64
"""Segments that are joined by numpy; fewer are faster one by one."""
NOTHING = np.empty(0, dtype=np.uint64)
NO_COLUMN = np.empty(0, dtype=np.int64)

RangeStamp: TypeAlias = tuple[int, int, int, int, int, int]
"""When and where the bytes of a range were captured: (first ns, last ns, capture and packet of its first
byte, lowest and highest packet of that capture that holds any of them)."""
NO_STAMP: RangeStamp = (0, 0, -1, -1, -1, -1)
"""Of a range of which nothing was captured."""


class CaptureBytes:
    """Reads bytes of a capture by file offset: from the window in hand, else through `pread`."""

    __slots__ = ("_again", "_capture", "_end", "_most", "_pread", "_start", "_window", "refused")

    def __init__(self, pread: Callable[[int, int, int], bytes], most: int | None = None) -> None:
        """`pread(capture, offset, length)` gives bytes of that capture file; `most`: see `affords`."""
        self._pread = pread
        self._most = most
        self._again = 0
        self.refused = 0
        """How often more was asked for."""
        self._capture = -1
        self._window = b""
        self._start = self._end = 0

    def show(self, block: SegmentBlock) -> None:
        """Makes the window of this block the one in hand."""
        self._capture = block.capture
        self._window = block.window
        self._start = block.window_offset
        self._end = block.window_offset + len(block.window)

    def read(self, capture: int, offset: int, length: int) -> bytes:
        """Exactly `length` bytes, all of which the capture stage has reported to be there."""
        if capture == self._capture and self._start <= offset and offset + length <= self._end:
            at = offset - self._start
            return self._window[at : at + length]
        return self._pread(capture, offset, length)

    def affords(self, size: int) -> bool:
        """Returns whether `size` more bytes are within the budget for bytes that are read, or expanded, more
        than once. A stride of 0 or a shared storage makes a tensor of a terabyte out of four bytes."""
        self._again += size
        if self._most is None or self._again <= self._most:
            return True
        self.refused += 1
        return False

    def numbers(self, capture: int, offsets: Int64s) -> NDArray[np.uint64]:
        """The little-endian 64-bit numbers at these offsets; none where one is not in the window in hand."""
        if not len(offsets) or capture != self._capture:
            return NOTHING
        if offsets.min() < self._start or offsets.max() + 8 > self._end:
            return NOTHING
        found: NDArray[np.uint64] = gather(self._window, offsets - self._start, "<u8")[:, 0]
        return found

    def gather(self, capture: int, offsets: list[int], lengths: list[int]) -> bytes:
        """The bytes of several ranges of one capture, joined; offsets ascend."""
        if len(offsets) == 1:
            return self.read(capture, offsets[0], lengths[0])
        base = self._start
        if capture == self._capture and base <= offsets[0] and offsets[-1] + lengths[-1] <= self._end:
            window = self._window
            return b"".join([window[o - base : o - base + n] for o, n in zip(offsets, lengths, strict=True)])
        first, last = offsets[0], offsets[-1] + lengths[-1]
        if last - first <= 2 * sum(lengths) + 4096:  # close together: one read
            data = memoryview(self._pread(capture, first, last - first))  # whose slices are no copies
            return b"".join([data[o - first : o - first + n] for o, n in zip(offsets, lengths, strict=True)])
        return b"".join([self.read(capture, o, n) for o, n in zip(offsets, lengths, strict=True)])

    def gather_many(self, capture: int, offsets: Int64s, lengths: Int64s) -> bytes:
        """The same of many ranges, all of one length at once: the small segments of a training loop have a
        handful of lengths."""
        order = np.argsort(lengths, kind="stable")
        ascending = lengths[order]
        edges = [0, *(np.flatnonzero(ascending[1:] != ascending[:-1]) + 1).tolist(), len(order)]
        base, last = self._start, int(offsets[-1] + lengths[-1])
        in_hand = capture == self._capture and base <= offsets[0] and last <= self._end
        if not in_hand or len(edges) > len(order) // 8:
            return self.gather(capture, offsets.tolist(), lengths.tolist())
        ends = np.cumsum(lengths)
        joined: NDArray[np.uint8] = np.empty(int(ends[-1]), dtype=np.uint8)
        sources, targets = (offsets - base)[order], (ends - lengths)[order]
        for low, high in pairwise(edges):
            size = int(ascending[low])
            if not size:  # a packet of which nothing behind its headers was captured
                continue
            _items(joined, size)[targets[low:high]] = _items(self._window, size)[sources[low:high]]
        return joined.tobytes()


def _items(data: bytes | NDArray[np.uint8], size: int) -> NDArray[np.void]:
    """Every range of that size as one element, by where it begins."""
    items: NDArray[np.void] = np.ndarray((len(data) - size + 1,), f"V{size}", data, strides=(1,))
    return items


class SegmentRun(Struct, eq=False, gc=False):
    """Segments that follow each other without a gap in the stream, all from one block; or a missing range.

    `starts` (positions), `offsets` (in the file), `packets` and `times` are parallel columns; a segment ends
    where the next begins. A missing range has no columns.
    """

    start: int
    end: int
    capture: int = -1
    """-1 of a missing range."""
    starts: Int64s = NO_COLUMN
    offsets: Int64s = NO_COLUMN
    packets: Int64s = NO_COLUMN
    times: Int64s = NO_COLUMN
    _ascending: bool | None = None
    _lists: tuple[list[int], list[int], list[int], list[int], bool] | None = None

    @property
    def missing(self) -> bool:
        """Whether this range was not captured."""
        return self.capture < 0

    def slice(self, start: int, end: int) -> SegmentRun:
        """The part of this run that lies in [start, end), which must be inside it, and not empty."""
        if start == self.start and end == self.end:
            return self
        if self.missing:
            return SegmentRun(start, end)
        low = int(np.searchsorted(self.starts, start, "right")) - 1
        high = int(np.searchsorted(self.starts, end, "left"))
        starts = self.starts[low:high].copy()
        offsets = self.offsets[low:high].copy()
        offsets[0] += start - int(starts[0])
        starts[0] = start
        packets, times = self.packets[low:high].copy(), self.times[low:high].copy()
        return SegmentRun(start, end, self.capture, starts, offsets, packets, times)

    def forget_lists(self) -> None:
        """Frees what `lists` keeps."""
        self._lists = None

    @property
    def ascending(self) -> bool:
        """Whether times ascend."""
        if self._ascending is None:
            self._ascending = bool(np.all(self.times[1:] >= self.times[:-1]))
        return self._ascending

    def lists(self) -> tuple[list[int], list[int], list[int], list[int], bool]:
        """The columns as Python lists (numpy scalars cost more to look up), and whether times ascend."""
        if self._lists is None:
            self._lists = (
                self.starts.tolist(),
                self.offsets.tolist(),
                self.packets.tolist(),
                self.times.tolist(),
                self.ascending,
            )
        return self._lists

    def segments(self, start: int, end: int) -> tuple[list[int], list[int]]:
        """Places in the file, and lengths, of the parts of [start, end), all captured."""
        starts, offsets, _, _, _ = self.lists()
        low = bisect_right(starts, start) - 1
        high = bisect_left(starts, end, low)
        skip = start - starts[low]
        if high - low == 1:
            return [offsets[low] + skip], [end - start]
        edges = starts[low:high]
        lengths = [b - a for a, b in zip(edges, [*edges[1:], end], strict=True)]
        lengths[0] -= skip
        places = offsets[low:high]
        places[0] += skip
        return places, lengths

    def read(self, start: int, end: int, source: CaptureBytes) -> bytes:
        """The bytes [start, end), all captured."""
        low = int(self.starts.searchsorted(start, "right")) - 1
        high = int(self.starts.searchsorted(end))
        if high - low < MANY:
            return source.gather(self.capture, *self.segments(start, end))
        offsets = self.offsets[low:high].copy()
        offsets[0] += start - self.starts[low]
        edges = np.append(self.starts[low:high], end)
        edges[0] = start
        return source.gather_many(self.capture, offsets, edges[1:] - edges[:-1])

    def stamp(self, start: int, end: int) -> RangeStamp:
        """The stamp of [start, end), all captured."""
        starts, _, packets, times, ascending = self.lists()
        low = bisect_right(starts, start) - 1
        high = low if end <= start + 1 else bisect_left(starts, end, low) - 1
        packet, last_packet = packets[low], packets[high]
        if ascending:
            return times[low], times[high], self.capture, packet, packet, last_packet
        span = times[low : high + 1]
        return min(span), max(span), self.capture, packet, packet, last_packet

    def stamps(self, edges: list[int]) -> Iterable[RangeStamp]:
        """`stamp` of each range from one edge to the next."""
        starts, packets, times = self.starts, self.packets, self.times
        if not self.ascending:
            return [self.stamp(start, end) for start, end in pairwise(edges)]
        places = np.array(edges, dtype=np.int64)
        low = starts.searchsorted(places[:-1], "right") - 1
        high = starts.searchsorted(places[1:]) - 1
        first, last = times[low].tolist(), times[high].tolist()
        packet, last_packet = packets[low].tolist(), packets[high].tolist()
        return zip(first, last, repeat(self.capture), packet, packet, last_packet, strict=False)


def ranges_beside(missing: Iterable[tuple[int, int]], length: int) -> Iterator[tuple[int, int]]:
    """Yields the ranges [from, to) of so many bytes that are there, beside those that are missing."""
    at = 0
    for start, stop in (*missing, (length, length)):
        if at < start:
            yield at, start
        at = stop


class Extent(Struct, gc=False, eq=False):
    """Place of a stream's range in the capture files, and which bytes of the range were not captured."""

    length: int
    pieces: tuple[tuple[int, int, int], ...]
    """(capture, file offset, length) in stream order; missing bytes have no piece."""
    missing: tuple[tuple[int, int], ...] = ()
    """Ranges [from, to) that were not captured, counted from the start of this extent."""
    _missing_bytes: int = -1
    _starts: list[int] | None = None
    """What was found out before: a storage of many pieces may have many tensors."""

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, Extent) and self.length == other.length and self.pieces == other.pieces
        return same and isinstance(other, Extent) and self.missing == other.missing

    @property
    def missing_bytes(self) -> int:
        """How many bytes were not captured."""
        if not self.missing:
            return 0
        if self._missing_bytes < 0:
            self._missing_bytes = sum(b - a for a, b in self.missing)
        return self._missing_bytes

    @property
    def starts(self) -> list[int]:
        """Where each piece begins, counted from the start of this extent."""
        if self._starts is None and not self.missing:
            self._starts = list(accumulate([0, *[piece[2] for piece in self.pieces]]))[:-1]
        elif self._starts is None:
            self._starts = starts = []
            at, holes = 0, iter(self.missing)
            hole = next(holes, None)
            for _, _, length in self.pieces:
                while hole is not None and hole[0] <= at:
                    at = max(at, hole[1])
                    hole = next(holes, None)
                starts.append(at)
                at += length
        return self._starts

    def part(self, start: int, end: int) -> Extent:
        """The bytes [start, end) of it as an extent of their own."""
        if start == 0 and end == self.length:
            return self
        starts = self.starts
        pieces = []
        for number in range(max(0, bisect_right(starts, start) - 1), bisect_left(starts, end)):
            capture, offset, length = self.pieces[number]
            at = starts[number]
            low, high = max(at, start), min(at + length, end)
            if low < high:
                pieces.append((capture, offset + low - at, high - low))
        missing = []
        number = max(0, bisect_right(self.missing, (start, start)) - 1)
        while number < len(self.missing) and self.missing[number][0] < end:
            low, high = max(self.missing[number][0], start), min(self.missing[number][1], end)
            if low < high:
                missing.append((low - start, high - start))
            number += 1
        return Extent(end - start, tuple(pieces), tuple(missing))

    def read(self, source: CaptureBytes) -> bytes:
        """Returns the bytes, zeros where they were not captured."""
        if not self.missing:
            if len(self.pieces) == 1:
                return source.read(*self.pieces[0])
            return b"".join([source.read(*piece) for piece in self.pieces])
        out = bytearray(self.length)
        for at, piece in zip(self.starts, self.pieces, strict=True):
            out[at : at + piece[2]] = source.read(*piece)
        return bytes(out)

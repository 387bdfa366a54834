"""Which messages carry NaN or infinities in their tensors, as far as their first bytes tell.

In: records as they become complete. Out: the rows of messages with such numbers, of those that could not be
looked at, and the places of longer tensors, whose rest is read for who asks for it. Numbers are told by their
bits: nothing is converted to another float type.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np
from msgspec import Struct

from rpcinspect.equality.floats import FLOATS
from rpcinspect.errors import RpcInspectError
from rpcinspect.rpc.message import MessageType, is_request
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.tensor import TensorMeta
from rpcinspect.rpc.tensor_values import logical_bytes, repeated_range
from rpcinspect.tcp.ranges import CaptureBytes, Extent

FIRST_BYTES = 1 << 12
"""Of each tensor, read while messages come; one that is no longer is short."""
CHUNK = 1 << 20
MAX_LONGER = 50_000
"""Longer tensors whose rest may be read afterwards."""
MAX_GATHERED = 1 << 26
"""Bytes that are read of one message, at most, for tensors whose elements do not lie one behind the other."""
MAX_WAITING = 256
"""Short tensors that are looked at together."""
MAX_KNOWN = 1024
"""Tensors of tables that are remembered."""
WORDS = {
    name: np.dtype(f"<u{layout.bits // 8}")
    for name, layout in FLOATS.items()
    if layout.fnuz or layout.first_nan is not None
}
"""Types that can hold NaN → the bits of one float."""


class NonfiniteCount(Struct, frozen=True):
    """What a tensor holds."""

    nan: int
    infinite: int
    elements: int


class LongerTensor(Struct, frozen=True):
    """A tensor of which only the first bytes were read."""

    row: int
    kind: int
    tensor: int
    dtype: str
    extent: Extent


class NonfiniteSearch:
    """`feed` every message; then ask what was found."""

    def __init__(self, source: CaptureBytes) -> None:
        self._source = source
        self.found: dict[int, tuple[int, NonfiniteCount]] = {}
        """Row → the first such tensor, what it holds."""
        self.longer: list[LongerTensor] = []
        self.masks: list[int] = []
        """Rows of requests with infinities among the arguments, which are not told of."""
        self.unread: dict[int, bool] = {}
        """Row of a message with tensors that were not looked at → whether bytes of them were not captured."""
        self._finite: set[tuple[int | None, str]] = set()
        """Storages of the message at hand, read as a whole for tensors that lie scattered in them, and types
        of which they hold finite elements only."""
        self._gathered_bytes = 0
        """Of the message at hand."""
        self._ranges: dict[tuple[int, int], tuple[TensorMeta, tuple[int, int, int] | None]] = {}
        """(id() of a tensor in the tables of many messages, length of its storage) → the tensor, so that no
        other object has its id, and `repeated_range`."""
        self.untold = False
        """There were more longer tensors than are kept, or read."""
        self._waiting: list[tuple[int, int, int, str, bytes, int]] = []
        """(row, kind, tensor, type, bytes, times) of short tensors, which are looked at together."""

    def feed(self, record: RpcRecord, kind: int) -> None:
        """Looks at the tensors of a message; `kind`: the type of its command."""
        descriptors = record.tp.tensors
        if not descriptors:
            return
        whole = -1
        self._finite.clear()
        self._gathered_bytes = 0
        for meta in record.like.tensors:
            whole += meta.part_of is None
            if meta.dtype not in WORDS or 0 in meta.sizes:
                continue
            if meta.storage is None or meta.storage >= len(descriptors):
                continue
            extent = descriptors[meta.storage].extent
            if extent is None or extent.missing or not extent.pieces:
                self.unread[record.row] = True
                continue
            found = self._look(record, kind, meta, whole, extent)
            if found is not None:
                self.settle()  # those before it come first
                self._note(record.row, kind, whole, found)
            if len(self._waiting) >= MAX_WAITING:
                self.settle()
            if record.row in self.found:
                break

    def settle(self) -> None:
        """Looks at the short tensors: at all of a type at once, and one by one where that finds something."""
        waiting, self._waiting = self._waiting, []
        by_type: dict[str, list[bytes]] = defaultdict(list)
        for _, _, _, dtype, data, _ in waiting:
            by_type[dtype].append(data)
        if any(count_nonfinite(b"".join(its), dtype, 1) for dtype, its in by_type.items()):
            for row, kind, tensor, dtype, data, times in waiting:
                self._note(row, kind, tensor, count_nonfinite(data, dtype, times))

    def _note(self, row: int, kind: int, tensor: int, found: NonfiniteCount | None) -> None:
        """Keeps what a tensor of a message holds."""
        if found is None or row in self.found:
            return
        if _counts(found, kind):
            self.found[row] = tensor, found
        elif not self.masks or self.masks[-1] != row:
            self.masks.append(row)

    def _look(
        self, record: RpcRecord, kind: int, meta: TensorMeta, tensor: int, extent: Extent
    ) -> NonfiniteCount | None:
        """Returns what a tensor holds; None where all is finite, as far as it is read now, or waits."""
        key = id(meta), extent.length
        known = self._ranges.get(key)
        if known is None:
            if len(self._ranges) >= MAX_KNOWN:
                self._ranges.clear()
            known = self._ranges[key] = meta, repeated_range(meta, extent.length)
        its = known[1]
        if its is None:
            return self._gathered(record.row, meta, extent)
        start, end, times = its
        part = extent if end - start == extent.length else extent.part(start, end)
        if part.length <= FIRST_BYTES:
            self._waiting.append((record.row, kind, tensor, meta.dtype, part.read(self._source), times))
            return None
        if not count_nonfinite(part.part(0, FIRST_BYTES).read(self._source), meta.dtype, 1):
            self._note_longer(LongerTensor(record.row, kind, tensor, meta.dtype, part))
            return None
        return self._all_of(part, meta.dtype, times)

    def _note_longer(self, one: LongerTensor) -> None:
        if len(self.longer) < MAX_LONGER:
            self.longer.append(one)
        else:
            self.untold = True

    def _gathered(self, row: int, meta: TensorMeta, extent: Extent) -> NonfiniteCount | None:
        read = (meta.storage, meta.dtype)
        if read in self._finite:
            return None
        self._gathered_bytes += extent.length
        if self._gathered_bytes > MAX_GATHERED:
            self.unread.setdefault(row, False)
            return None
        data = extent.read(self._source)
        if count_nonfinite(data, meta.dtype, 1) is None:
            self._finite.add(read)
            return None
        try:
            return count_nonfinite(logical_bytes(meta, data, max_bytes=MAX_GATHERED), meta.dtype, 1)
        except RpcInspectError:
            self.unread.setdefault(row, False)
            return None

    def _all_of(self, part: Extent, dtype: str, times: int = 1) -> NonfiniteCount | None:
        """Returns what all of a longer tensor holds."""
        nan = infinite = elements = 0
        for start in range(0, part.length, CHUNK):
            data = part.part(start, min(start + CHUNK, part.length)).read(self._source)
            found = count_nonfinite(data, dtype, times)
            if found is not None:
                nan, infinite = nan + found.nan, infinite + found.infinite
            elements += count_elements(len(data), dtype) * times
        return NonfiniteCount(nan, infinite, elements) if nan or infinite else None

    def look_behind(self, longer: Iterable[LongerTensor], left: int) -> int:
        """Reads the rest of a message's longer tensors; `left`: how many bytes may be read. Returns how many
        then may."""
        for one in longer:
            if one.extent.length > left:
                self.untold = True
                return left
            left -= one.extent.length
            self._note(one.row, one.kind, one.tensor, self._all_of(one.extent, one.dtype))
        return left


def count_nonfinite(data: bytes, dtype: str, times: int) -> NonfiniteCount | None:
    """Returns what elements hold, each of them so many times; None if all are finite."""
    layout, words = FLOATS[dtype], WORDS[dtype]
    codes = np.frombuffer(data, words, len(data) // words.itemsize)
    if layout.all_finite(codes):
        return None
    nan, infinite = layout.is_nan(codes), layout.is_infinite(codes)
    if dtype.startswith("complex"):
        pairs = len(codes) // 2
        nan, infinite = (np.any(flags[: 2 * pairs].reshape(-1, 2), axis=1) for flags in (nan, infinite))
    count = int(np.count_nonzero(nan))
    also = int(np.count_nonzero(infinite & ~nan))
    return NonfiniteCount(count * times, also * times, count_elements(len(data), dtype) * times)


def count_elements(length: int, dtype: str) -> int:
    """Returns how many elements lie in so many bytes."""
    return length // (WORDS[dtype].itemsize * (1 + dtype.startswith("complex")))


def _counts(found: NonfiniteCount, kind: int) -> bool:
    """Returns whether such numbers are told of in a message of this type."""
    return bool(found.nan) or kind == MessageType.BACKWARD_AUTOGRAD_REQ or not is_request(kind)

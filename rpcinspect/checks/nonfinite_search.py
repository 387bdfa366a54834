"""Which messages carry NaN or infinities in their tensors, as far as their first bytes tell.

In: records as they become complete. Out: the rows of messages with such numbers, of those that could not be
looked at, and the places of longer tensors, whose rest is read for who asks for it. Of the messages of a
pattern short tensors are put aside and looked at together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TypeAlias

from msgspec import Struct

from rpcinspect.checks.nonfinite_count import (
    LAYOUTS,
    NOT_READ,
    NonfiniteCount,
    count_elements,
    count_nonfinite,
    word_bytes,
)
from rpcinspect.errors import RpcInspectError
from rpcinspect.rpc.message import MessageType, is_request
from rpcinspect.rpc.patterns import Pattern
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
"""Patterns, and tensors of tables, that are remembered."""


class _Short(Struct, frozen=True):
    """A tensor whose elements are a short range of its storage, in all messages of a pattern."""

    storage: int
    start: int
    size: int
    tensor: int
    dtype: str
    times: int


_Waiting: TypeAlias = tuple[int, int, _Short, bytes]
"""(row, kind, tensor, its bytes)."""


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
        self._plans: dict[Pattern, list[_Short]] = {}
        """What is read of the messages of a pattern."""
        self._alone: set[Pattern] = set()
        """Patterns whose messages are looked at one by one."""
        self._waiting: list[_Waiting] = []
        """Short tensors that were not looked at yet."""

    def feed(self, record: RpcRecord, kind: int) -> None:
        """Looks at the tensors of a message; `kind`: the type of its command. Short ones are put aside, to be
        looked at with those of others: most messages have nothing else."""
        tensors = record.tp.tensors
        if not tensors:
            return
        plan = self._plans.get(record.pattern) if record.pattern is not None else None
        if plan is None:
            plan = self._learn(record)
        found = None if plan is None else self._read(record, kind, plan)
        if found is None:
            self.settle()
            self._feed_one(record, kind)
            return
        self._waiting += found
        if len(self._waiting) >= MAX_WAITING:
            self.settle()

    def _read(self, record: RpcRecord, kind: int, plan: list[_Short]) -> list[_Waiting] | None:
        """Reads the short tensors of a message; None where one is not there in one piece."""
        read, tensors, found = self._source.read, record.tp.tensors, []
        for one in plan:
            extent = tensors[one.storage].extent
            if extent is None or extent.missing or len(extent.pieces) != 1:
                return None
            capture, offset, _ = extent.pieces[0]
            found.append((record.row, kind, one, read(capture, offset + one.start, one.size)))
        return found

    def _learn(self, record: RpcRecord) -> list[_Short] | None:
        """Finds out what is read of each message of a record's pattern; None where each message is looked at
        by itself."""
        pattern = record.pattern
        if pattern is None or pattern in self._alone:
            return None
        if len(self._plans) + len(self._alone) >= MAX_KNOWN:
            self._plans.clear()
            self._alone.clear()
        plan = _plan(record)
        if plan is None:
            self._alone.add(pattern)
        else:
            self._plans[pattern] = plan
        return plan

    def settle(self) -> None:
        """Looks at the tensors that were put aside: at all of a type at once, and one by one where that finds
        something."""
        by_type: dict[str, list[bytes]] = defaultdict(list)
        for _, _, one, data in self._waiting:
            by_type[one.dtype].append(data)
        if any(count_nonfinite(b"".join(its), dtype, 1) for dtype, its in by_type.items()):
            for row, kind, one, data in self._waiting:
                if row not in self.found:
                    self._note(row, kind, one.tensor, count_nonfinite(data, one.dtype, one.times))
        self._waiting.clear()

    def _feed_one(self, record: RpcRecord, kind: int) -> None:
        """Looks at all tensors of a message."""
        descriptors = record.tp.tensors
        whole = -1
        self._finite.clear()
        self._gathered_bytes = 0
        for meta in record.like.tensors:
            whole += meta.part_of is None
            if meta.storage is None or meta.storage >= len(descriptors) or 0 in meta.sizes:
                continue
            if meta.dtype not in LAYOUTS:
                if meta.dtype in NOT_READ:
                    self.unread.setdefault(record.row, False)
                continue
            extent = descriptors[meta.storage].extent
            if extent is None or extent.missing or not extent.pieces:
                self.unread[record.row] = True
                continue
            self._note(record.row, kind, whole, self._look(record, kind, meta, whole, extent))
            if record.row in self.found:
                break

    def _note(self, row: int, kind: int, tensor: int, found: NonfiniteCount | None) -> None:
        """Keeps what a tensor of a message holds."""
        if found is None:
            return
        if _counts(found, kind):
            self.found.setdefault(row, (tensor, found))
        elif not self.masks or self.masks[-1] != row:
            self.masks.append(row)

    def _look(
        self, record: RpcRecord, kind: int, meta: TensorMeta, tensor: int, extent: Extent
    ) -> NonfiniteCount | None:
        """Returns what a tensor holds; None where all is finite, as far as it is read now."""
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
            return count_nonfinite(part.read(self._source), meta.dtype, times)
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


def _plan(record: RpcRecord) -> list[_Short] | None:
    """Returns what is read of each message of a record's pattern; None where that is not the same short
    ranges of all."""
    plan, whole = list[_Short](), -1
    for meta in record.like.tensors:
        whole += meta.part_of is None
        if meta.storage is None or 0 in meta.sizes:
            continue
        if meta.dtype not in LAYOUTS:
            if meta.dtype in NOT_READ:
                return None
            continue
        its = repeated_range(meta, record.tp.tensors[meta.storage].descriptor.length)
        if its is None or its[1] - its[0] > FIRST_BYTES or (its[1] - its[0]) % word_bytes(meta.dtype):
            return None
        start, end, times = its
        plan.append(_Short(meta.storage, start, end - start, whole, meta.dtype, times))
    return plan


def _counts(found: NonfiniteCount, kind: int) -> bool:
    """Returns whether such numbers are told of in a message of this type."""
    return bool(found.nan) or kind == MessageType.BACKWARD_AUTOGRAD_REQ or not is_request(kind)

"""Where the bytes of a message's tensors are, and their logical elements block by block.

In: the tensors of a record and a reader of extents. Out: for each tensor, blocks of elements as raw bits, in
row-major order and of equal length for tensors of equal shape, and which of them have bytes that were not
captured. What lies in one piece is read block by block, everything else storage by storage.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from rpcinspect.errors import DecodeError, LimitExceeded
from rpcinspect.rpc.dtypes import DTYPES
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.tensor import TensorMeta
from rpcinspect.rpc.tensor_values import (
    MAX_LOGICAL_BYTES,
    is_contiguous,
    logical_bytes,
    logical_nbytes,
    sha256,
)
from rpcinspect.tcp.ranges import Extent
from rpcinspect.tensorpipe.records import TpTensor

ReadExtent: TypeAlias = Callable[[Extent], bytes]
"""Bytes of an extent, zeros where they were not captured: `Run.read`."""

BLOCK_ELEMENTS = 1 << 19
WHOLE_BYTES = 1 << 22
"""Storages of at most this are compared whole first: if all bytes are equal, no element has to be found."""


class Storage(Struct, frozen=True):
    """The bytes of one storage: in a capture, or in memory."""

    extent: Extent | None
    """None: nothing is known of them, see `why`."""
    read: ReadExtent
    why: str = "missing"
    target_device: str | None = None
    """Where it is going."""

    @property
    def nbytes(self) -> int:
        """Returns the length of the storage; 0 where it is unknown."""
        return 0 if self.extent is None else self.extent.length


class ElementBlock(Struct, frozen=True):
    """Some elements of a tensor."""

    start: int
    """Of the first one, row-major."""
    codes: npt.NDArray[Any]
    """Raw bits, shape (elements, parts): two parts for complex numbers and pairs of float4, else one."""
    unknown: npt.NDArray[np.bool_] | None
    """Which elements have bytes that were not captured; None: none of them."""


class Tensors:
    """Tensors of one message with their bytes."""

    __slots__ = ("_hashes", "_whole", "metas", "storages")

    def __init__(
        self,
        metas: Sequence[TensorMeta],
        storages: Sequence[Storage],
        hashes: Sequence[str | None] = (),
    ) -> None:
        """`storages` by the numbers that the metas have; `hashes` of the metas, of those that were kept in
        place of bytes."""
        self.metas = metas
        self._hashes = {meta: its for meta, its in zip(metas, hashes, strict=False) if its is not None}
        self.storages = storages
        self._whole: tuple[int, bytes] | None = None

    def storage(self, meta: TensorMeta) -> Storage | None:
        """The storage of a tensor; None for sparse layouts, and where the table names one that is not
        there."""
        index = meta.storage
        return self.storages[index] if index is not None and index < len(self.storages) else None

    def whole(self, meta: TensorMeta) -> bytes | None:
        """Returns all bytes of a tensor's storage; the last one asked for is cached. None where none are
        known."""
        storage, index = self.storage(meta), meta.storage
        if storage is None or storage.extent is None or index is None:
            return None
        if self._whole is None or self._whole[0] != index:
            self._whole = (index, storage.read(storage.extent))
        return self._whole[1]

    def kept_hash(self, meta: TensorMeta) -> str | None:
        """Returns the sha256 of the elements that was kept in place of their bytes; None without one, and
        where the bytes are there."""
        if not self._hashes:
            return None
        storage = self.storage(meta)
        if storage is not None and storage.extent is not None and not storage.extent.missing:
            return None
        return self._hashes.get(meta)

    def sha256(self, meta: TensorMeta) -> str | None:
        """Returns the sha256 of the elements of a strided tensor, as kept or of their bytes; None where
        neither is there."""
        kept, storage = self.kept_hash(meta), self.storage(meta)
        if kept is not None or storage is None or storage.extent is None or storage.extent.missing:
            return kept
        return sha256(meta, self.whole(meta) or b"")

    def blocks(self, meta: TensorMeta) -> Iterator[ElementBlock]:
        """Yields the elements in blocks. Raises `DecodeError` if the table and the storage contradict each
        other.

        Only for strided tensors of which some bytes are known.
        """
        storage = self.storage(meta)
        assert storage is not None
        assert storage.extent is not None
        if logical_nbytes(meta) > max(storage.nbytes, MAX_LOGICAL_BYTES):
            raise LimitExceeded("tensor", "max_bytes", MAX_LOGICAL_BYTES, logical_nbytes(meta))
        plain = is_contiguous(meta) and not (meta.conj or meta.neg)
        if plain and DTYPES[meta.dtype].values_per_byte > 1:  # to be cut between bytes, not between rows
            meta = replace(meta, sizes=(math.prod(meta.sizes),), strides=(1,))
        for start, sizes, at in _pieces(meta.sizes):
            offset = meta.storage_offset + sum(i * s for i, s in zip(at, meta.strides, strict=True))
            part = replace(meta, sizes=sizes, storage_offset=offset)
            if plain:
                yield self._plain(part, storage.extent, storage.read, start)
            else:
                raw = logical_bytes(part, self.whole(meta) or b"")
                yield ElementBlock(start, codes_of(part, raw), _unknown(part, storage.extent))

    def _plain(self, part: TensorMeta, extent: Extent, read: ReadExtent, start: int) -> ElementBlock:
        """Yields contiguous elements in blocks; sub-byte ones start at a whole byte."""
        dtype = DTYPES[part.dtype]
        per_byte, numel = dtype.values_per_byte, math.prod(part.sizes)
        if part.storage_offset % per_byte:
            raise DecodeError("tensor", f"a tensor of {part.dtype} that starts inside of a byte")
        low = part.storage_offset * dtype.item_bytes // per_byte
        high = low + -(-numel // per_byte) * dtype.item_bytes
        if high > extent.length:
            raise DecodeError("tensor", f"byte {high:,} is asked of a storage of {extent.length:,}")
        piece = extent.part(low, high)
        return ElementBlock(start, codes_of(part, read(piece)), _unknown(part, extent))


NO_TENSORS = Tensors((), ())


def tensors_of(record: RpcRecord, read: ReadExtent) -> Tensors:
    """The tensors of a record."""
    if not (record.tp.tensors or record.like.tensors):
        return NO_TENSORS
    storages = [storage_of(tensor, read) for tensor in record.tp.tensors]
    return Tensors(record.rpc.tensors, storages, record.tp.hashes)


def storage_of(tensor: TpTensor, read: ReadExtent) -> Storage:
    """The storage that a TensorPipe tensor carries."""
    target = tensor.descriptor.target_device
    return Storage(tensor.extent, read, tensor.placement.value, None if target is None else str(target))


def same_bytes(a: Storage, b: Storage) -> bool:
    """Whether all bytes of two storages were captured and are equal; False also where that was not looked
    at."""
    one, other = a.extent, b.extent
    if one is None or other is None or one.missing or other.missing:
        return False
    return one.length == other.length <= WHOLE_BYTES and a.read(one) == b.read(other)


def codes_of(meta: TensorMeta, raw: bytes) -> npt.NDArray[Any]:
    """Logical bytes → raw bits of each element, shape (elements, parts)."""
    dtype = DTYPES[meta.dtype]
    numel = math.prod(meta.sizes)
    if dtype.values_per_byte > 1:
        bits = 8 // dtype.values_per_byte
        shifts = np.arange(0, 8, bits, dtype=np.uint8)
        split = np.frombuffer(raw, np.uint8)[:, None] >> shifts & np.uint8((1 << bits) - 1)
        elements: npt.NDArray[np.uint8] = split.reshape(-1)[:numel, None]
        return elements
    if meta.dtype == "float4_e2m1fn_x2":
        pairs = np.frombuffer(raw, np.uint8)[:, None]
        return np.concatenate([pairs & np.uint8(15), pairs >> np.uint8(4)], axis=1)
    parts = 2 if dtype.kind == "complex" else 1
    return np.frombuffer(raw, f"<u{dtype.item_bytes // parts}").reshape(-1, parts)


def _pieces(sizes: tuple[int, ...]) -> Iterator[tuple[int, tuple[int, ...], tuple[int, ...]]]:
    """(number of the first element, sizes, index of the first element) of boxes in row-major order.

    They depend on the sizes alone, so that two tensors of one shape come in the same blocks.
    """
    numel = math.prod(sizes)
    if numel <= BLOCK_ELEMENTS:
        if numel:
            yield 0, sizes, (0,) * len(sizes)
        return
    inner = numel // sizes[0]
    if inner >= BLOCK_ELEMENTS:
        for row in range(sizes[0]):
            for start, box, at in _pieces(sizes[1:]):
                yield row * inner + start, (1, *box), (row, *at)
        return
    rows = BLOCK_ELEMENTS // inner
    for row in range(0, sizes[0], rows):
        yield row * inner, (min(rows, sizes[0] - row), *sizes[1:]), (row,) + (0,) * (len(sizes) - 1)


def _unknown(part: TensorMeta, extent: Extent) -> npt.NDArray[np.bool_] | None:
    """Which elements of a block have a byte in a hole of their storage."""
    if not extent.missing:
        return None
    dtype = DTYPES[part.dtype]
    at = np.array([part.storage_offset], np.int64)
    for size, stride in zip(part.sizes, part.strides, strict=True):
        at = np.add.outer(at, np.arange(size, dtype=np.int64) * stride)
    low = at.reshape(-1) // dtype.values_per_byte * dtype.item_bytes
    starts = np.array([start for start, _ in extent.missing], np.int64)
    ends = np.array([end for _, end in extent.missing], np.int64)
    before = np.searchsorted(starts, low + dtype.item_bytes, "left") - 1  # the last hole that starts in time
    flags = (before >= 0) & (ends[np.maximum(before, 0)] > low)
    return flags if flags.any() else None

"""Checks that torch can rebuild the tensors of a message: what it can't rebuild ends the receiving process.

In: a tensor table and the storages that come with it. Out: nothing, or `ReplayError` with what is wrong.
torch's agent reads the table in a callback of TensorPipe that catches nothing, so any error there ends the
live worker: with 2.13 each rule below was seen to matter. Damaged payloads need no such check: torch answers
them with an exception. Indices of a sparse tensor are checked too: torch trusts them and writes wherever they
point.

Mirrors the checks behind `torch/csrc/jit/serialization/unpickler.cpp` (readTensor, rebuildSparseTensor) and
`aten/src/ATen/native/Resize.h`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

from msgspec import Struct

from rpcinspect.errors import DecodeError, ReplayError
from rpcinspect.replayer.planning.operators import DEVICE
from rpcinspect.rpc.cache import BoundedCache
from rpcinspect.rpc.dtypes import DTYPES
from rpcinspect.rpc.tensor import Quantizer, TensorMeta, read_tensor_table, to_tensor_table

CACHE_BYTES = 1 << 20
INT64_MAX = (1 << 63) - 1
MAX_ELEMENTS = 1 << 47
"""Of a tensor with strides, which may repeat one element. Operators add and multiply sizes, and allocate by
the result: it must not come out small."""
MAX_PLACES = (1 << 31) - 1
"""Of elements in a sparse tensor: the product of two that are not coalesced ends the process beyond 2^32."""
MAX_SHARED = 8
"""Times that the indices of sparse tensors may be looked at, each once for a tensor."""


class Sparse(Struct, frozen=True):
    """The indices of a sparse tensor, and the size of each dimension that they point into."""

    sizes: tuple[int, ...]
    indices: tuple[TensorMeta, ...]
    """COO: a matrix with a row for each dimension; CSR: where rows end, and the columns."""


class Needs(Struct, frozen=True):
    """What a table asks of the storages beside it."""

    lengths: tuple[tuple[int, int], ...]
    """(index of the storage, bytes that it must have at least)"""
    sparse: tuple[Sparse, ...]
    repeating: int | None = None
    """A tensor that requires grad and has elements in more than one place."""


class TensorChecker:
    """Checks messages; remembers tables that repeat."""

    def __init__(self) -> None:
        self._known: BoundedCache[bytes, Needs] = BoundedCache(CACHE_BYTES)

    def check(self, table: bytes, storages: Sequence[bytes], *, tracked: bool = False) -> None:
        """Raises `ReplayError` unless torch can rebuild every tensor from these storages.

        `tracked`: they come in an autograd envelope, so that none of them is a leaf, which an optimizer would
        take: the fused ones of torch write as many elements as a tensor says to have.
        """
        needs = self._known.get(table)
        if needs is None:
            try:
                needs = read_needs(table)
            except DecodeError as error:
                raise ReplayError(f"its tensor table: {error}") from error
            self._known.put(table, needs, len(table))
        for index, length in needs.lengths:
            if index >= len(storages):
                raise ReplayError(f"storage {index} needs {length:,} bytes and is not there")
            if len(storages[index]) < length:
                raise ReplayError(f"storage {index} needs {length:,} bytes and has {len(storages[index]):,}")
        parts = [part for one in needs.sparse for part in one.indices]
        read = sum([math.prod(part.sizes) * DTYPES[part.dtype].item_bytes for part in parts])
        if read > MAX_SHARED * sum(map(len, storages)):
            raise ReplayError("the indices of its sparse tensors are those of too many tensors")
        for sparse in needs.sparse:
            _check_indices(sparse, storages)
        if needs.repeating is not None and not tracked:
            text = "requires grad outside of any context, and repeats elements"
            raise ReplayError(f"its tensor table: tensor {needs.repeating} {text}")


def read_needs(table: bytes) -> Needs:
    """What a table asks for. Raises `DecodeError` for one that torch never writes, or can't rebuild."""
    metas = read_tensor_table(table)
    try:
        same = to_tensor_table(metas, table) == table
    except ValueError as error:
        raise DecodeError("tensor", str(error)) from error
    if not same:  # it says something that our reading does not cover
        raise DecodeError("tensor", "it is not written as torch writes tables")
    lengths: dict[int, int] = {}
    sparse, repeating = [], None
    for number, meta in enumerate(metas):
        try:
            if meta.layout != "strided":
                sparse.append(_check_sparse(meta, metas))
            else:
                _check_strided(meta, metas)
        except DecodeError as error:
            raise DecodeError("tensor", f"tensor {number}: {error}") from error
        if meta.requires_grad and meta.layout == "strided" and repeats(meta):
            repeating = number
        if meta.storage is not None:
            lengths[meta.storage] = max(lengths.get(meta.storage, 0), _bytes_needed(meta))
    indices = {part.storage for one in sparse for part in one.indices}
    parts = {part for meta in metas for _, part in meta.parts if metas[part].storage in indices}
    others = {meta.storage for number, meta in enumerate(metas) if number not in parts}
    values = {metas[part].storage for meta in metas for name, part in meta.parts if name == "values"}
    if indices & (others | values):
        raise DecodeError("tensor", "the indices of a sparse tensor are part of another tensor")
    wholes = [meta for meta in metas if meta.part_of is None]
    if sparse and any(meta.layout == "strided" and meta.storage_offset for meta in wholes):
        # torch 2.13 adds a sparse tensor to a dense one with its offset counted twice
        raise DecodeError("tensor", "a part of a storage beside a sparse tensor")
    return Needs(tuple(lengths.items()), tuple(dict.fromkeys(sparse)), repeating)


def _check_strided(meta: TensorMeta, metas: Sequence[TensorMeta]) -> None:
    kind = DTYPES[meta.dtype].kind
    if not DEVICE.fullmatch(meta.device):  # the bytes are loaded on the CPU all the same
        raise DecodeError("tensor", f"the device {meta.device[:20]!a}")
    if meta.requires_grad and kind not in ("float", "complex"):
        raise DecodeError("tensor", f"{meta.dtype} can't require grad")
    if meta.conj and kind != "complex":
        raise DecodeError("tensor", f"{meta.dtype} can't be conjugated")
    if _elements(meta.sizes) > MAX_ELEMENTS or _bytes_needed(meta) > INT64_MAX:
        raise DecodeError("tensor", "more elements than any job has")
    if meta.storage_numel < _reach(meta):
        raise DecodeError("tensor", "more elements than its storage is said to have")
    if meta.quantizer is not None:
        _check_quantizer(meta, meta.quantizer, metas)
    elif kind == "quantized":
        raise DecodeError("tensor", f"{meta.dtype} without a quantizer")


def _check_quantizer(meta: TensorMeta, quantizer: Quantizer, metas: Sequence[TensorMeta]) -> None:
    if DTYPES[meta.dtype].kind != "quantized":
        raise DecodeError("tensor", f"{meta.dtype} can't be quantized")
    per_channel = quantizer.axis is not None
    if quantizer.scheme not in (_PER_CHANNEL if per_channel else _PER_TENSOR):
        raise DecodeError("tensor", f"the quantization scheme {quantizer.scheme[:40]!a}")
    if quantizer.axis is None:
        return
    if not 0 <= quantizer.axis < len(meta.sizes):
        raise DecodeError("tensor", f"axis {quantizer.axis} of {len(meta.sizes)}")
    for name, part in meta.parts:
        if metas[part].sizes != (meta.sizes[quantizer.axis],):
            raise DecodeError("tensor", f"the {name} are not one per channel")


def _check_sparse(meta: TensorMeta, metas: Sequence[TensorMeta]) -> Sparse:
    parts = {name: metas[part] for name, part in meta.parts}
    values = parts.pop("values")
    if meta.requires_grad and DTYPES[values.dtype].kind not in ("float", "complex"):
        raise DecodeError("tensor", f"{values.dtype} can't require grad")
    if _elements(meta.sizes) > INT64_MAX:
        raise DecodeError("tensor", "more elements than can be counted")
    if any(part.conj or part.neg or part.requires_grad for part in parts.values()):
        raise DecodeError("tensor", "indices of a sparse tensor that are not as they are stored")
    if values.quantizer is not None or any(part.quantizer is not None for part in parts.values()):
        raise DecodeError("tensor", "a quantized part of a sparse tensor")
    if meta.layout == "sparse_coo":
        indices = parts["indices"]
        if indices.dtype != "int64" or len(indices.sizes) != 2:
            raise DecodeError("tensor", "the indices of a sparse tensor are no matrix of int64")
        sparse_dims, count = indices.sizes
        if sparse_dims > len(meta.sizes) or values.sizes != (count, *meta.sizes[sparse_dims:]):
            raise DecodeError("tensor", "the indices, values and sizes of a sparse tensor do not fit")
        if _elements(meta.sizes[:sparse_dims]) > MAX_PLACES:
            raise DecodeError("tensor", "a sparse tensor with more places than torch's products count")
        return Sparse(meta.sizes[:sparse_dims], (indices,))
    crow, col = parts["crow_indices"], parts["col_indices"]
    if crow.dtype not in _INDEX_DTYPES or col.dtype != crow.dtype:
        raise DecodeError("tensor", "the indices of a sparse tensor are no int32 or int64")
    fitting = len(meta.sizes) >= 2 and len(col.sizes) == 1 and crow.sizes == (meta.sizes[0] + 1,)
    if not fitting or values.sizes != (*col.sizes, *meta.sizes[2:]):
        raise DecodeError("tensor", "the indices, values and sizes of a sparse tensor do not fit")
    return Sparse(meta.sizes[:2], (crow, col))


def _check_indices(sparse: Sparse, storages: Sequence[bytes]) -> None:
    """Raises `ReplayError` where an index points outside of the tensor, or rows overlap."""
    limits: tuple[int, ...] = sparse.sizes
    pointing: Iterable[list[int]]
    if len(sparse.indices) == 1:
        pointing = (_row(sparse.indices[0], dimension, storages) for dimension in range(len(limits)))
    else:
        ends, columns = (_row(part, 0, storages) for part in sparse.indices)
        if ends[0] != 0 or ends[-1] != len(columns) or any(a > b for a, b in pairwise(ends)):
            raise ReplayError("the rows of a sparse tensor overlap or have gaps")
        pointing, limits = [columns], sparse.sizes[1:]
    if any(row and (min(row) < 0 or max(row) >= size) for row, size in zip(pointing, limits, strict=True)):
        raise ReplayError("a sparse tensor has indices outside of it")


def _row(meta: TensorMeta, number: int, storages: Sequence[bytes]) -> list[int]:
    """Returns one row of a matrix of indices, or a vector of them."""
    assert meta.storage is not None
    item_bytes = DTYPES[meta.dtype].item_bytes
    storage = storages[meta.storage]
    numbers = memoryview(storage)[: len(storage) // item_bytes * item_bytes]
    numbers = numbers.cast("q" if item_bytes == 8 else "i")
    start = meta.storage_offset + (number * meta.strides[0] if len(meta.sizes) == 2 else 0)
    return [numbers[start + place * meta.strides[-1]] for place in range(meta.sizes[-1])]


def repeats(meta: TensorMeta) -> bool:
    """Whether two elements of a tensor may lie in the same place."""
    reach = 1
    for stride, size in sorted(zip(meta.strides, meta.sizes, strict=True)):
        if size > 1 and stride < reach:
            return True
        reach += (size - 1) * stride
    return False


def _elements(sizes: Sequence[int]) -> int:
    """torch counts from the left, and must not come to too many before it comes to a zero."""
    return math.prod([size for size in sizes if size])


def _reach(meta: TensorMeta) -> int:
    """Elements of its storage up to the tensor's last; the start of an empty tensor must be in it, too."""
    if 0 in meta.sizes:
        return meta.storage_offset
    steps = [(size - 1) * stride for size, stride in zip(meta.sizes, meta.strides, strict=True)]
    return meta.storage_offset + sum(steps) + 1


def _bytes_needed(meta: TensorMeta) -> int:
    """Of its storage: what the tensor reaches, or the table announces. torch counts packed elements as if
    each had a byte of its own.
    """
    return max(_reach(meta), meta.storage_numel) * DTYPES[meta.dtype].item_bytes


_INDEX_DTYPES = ("int32", "int64")
_PER_TENSOR = ("per_tensor_affine",)
_PER_CHANNEL = ("per_channel_affine", "per_channel_affine_float_qparams")

"""The bytes of tensors: from a storage as it travelled to the elements that a user of the tensor sees.

In: a `TensorMeta` and the bytes of its storage (whole, little-endian). Out: the logical elements, in
row-major order, little-endian, bit for bit: stride, offset, conj and neg are resolved, nothing is ever
converted through another float type. Quantized tensors give their integers (`int_repr`).

Nothing is allocated on the word of a header: sizes, strides and offset are checked against the storage first,
and what is repeated by a stride of 0 is bounded by `max_bytes`. What does not fit raises
`DecodeError("tensor", …)`.

Elements that share a byte: quint4x2 and quint2x4 are packed over the whole tensor, the first element in the
lowest bits; they are read where they are contiguous (torch makes no others), and their logical bytes are the
packed ones. float4_e2m1fn_x2, bits*, int1 to int7 and uint1 to uint7 have one byte an element, which is
passed on as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from rpcinspect.errors import DecodeError, LimitExceeded
from rpcinspect.rpc.dtypes import DTYPES, SMALL_FLOATS, DType, element_value
from rpcinspect.rpc.tensor import TensorMeta

StorageBytes: TypeAlias = bytes | bytearray | memoryview

MAX_LOGICAL_BYTES = 1 << 30
"""Of one tensor that is larger than its storage; honest ones are expanded gradients."""

CHUNK_BYTES = 1 << 22
"""Elements are gathered in blocks of about this size, so memory stays bounded while a tensor is hashed."""


def logical_bytes(meta: TensorMeta, storage: StorageBytes, *, max_bytes: int = MAX_LOGICAL_BYTES) -> bytes:
    """Every logical element, see the module's text.

    Raises DecodeError if sizes, strides or offset reach outside of the storage or the tensor is sparse (its
    parts have the bytes), LimitExceeded if the tensor is larger than its storage and than `max_bytes`.
    """
    return b"".join(_chunks(meta, storage, max_bytes))


def sha256(meta: TensorMeta, storage: StorageBytes, *, max_bytes: int = MAX_LOGICAL_BYTES) -> str:
    """Hex digest of `logical_bytes`, in bounded memory. Raises as that does."""
    from hashlib import sha256 as hasher  # a part of the start, which a table need not wait for

    digest = hasher()
    for chunk in _chunks(meta, storage, max_bytes):
        digest.update(chunk)
    return digest.hexdigest()


def logical_nbytes(meta: TensorMeta) -> int:
    """How long `logical_bytes` will be."""
    dtype = DTYPES[meta.dtype]
    numel = math.prod(meta.sizes)
    return -(-numel // dtype.values_per_byte) * dtype.item_bytes


def is_contiguous(meta: TensorMeta) -> bool:
    """Whether the elements lie one behind the other in row-major order; sizes of 1 may have any stride."""
    expected = 1
    for size, stride in zip(reversed(meta.sizes), reversed(meta.strides), strict=True):
        if size != 1:
            if stride != expected and 0 not in meta.sizes:
                return False
            expected *= size
    return True


def first_values(meta: TensorMeta, storage: StorageBytes, n: int) -> list[object]:
    """The first `n` elements, in row-major order, as bool, int, float (exact) or complex; for people and
    tests.

    Quantized elements are their integers, those of float4_e2m1fn_x2 the pair in their byte. Raises as
    `logical_bytes` does.
    """
    dtype = DTYPES[meta.dtype]
    count = min(n, math.prod(meta.sizes))
    wanted = -(-count // dtype.values_per_byte) * dtype.item_bytes
    raw = bytearray()
    for chunk in _chunks(meta, storage, max(len(storage), logical_nbytes(meta))):
        raw += memoryview(chunk)[: wanted - len(raw)]
        if len(raw) == wanted:
            break
    if dtype.values_per_byte > 1:
        bits = 8 // dtype.values_per_byte
        values = (byte >> shift & (1 << bits) - 1 for byte in raw for shift in range(0, 8, bits))
        return list(islice(values, count))
    size = dtype.item_bytes
    return [element_value(dtype, bytes(raw[at : at + size])) for at in range(0, wanted, size)]


def plain_range(meta: TensorMeta, storage_nbytes: int) -> tuple[int, int] | None:
    """Returns the range [start, end) of the storage that holds the logical bytes as they are; None where no
    single range does."""
    if meta.layout != "strided" or meta.conj or meta.neg or not is_contiguous(meta):
        return None
    dtype = DTYPES[meta.dtype]
    if dtype.values_per_byte != 1:
        return None
    start = meta.storage_offset * dtype.item_bytes
    end = start + logical_nbytes(meta)
    return (start, end) if end <= storage_nbytes else None


def repeated_range(meta: TensorMeta, storage_nbytes: int) -> tuple[int, int, int] | None:
    """(start, end, times): the logical bytes are this range of the storage so many times over. That is once
    for most tensors, and more often for those that `expand` has made, such as the gradient of a sum.
    """
    if meta.layout != "strided" or min((*meta.sizes, *meta.strides, meta.storage_offset)) < 0:
        return None
    times, repeated = 1, 0
    for size, stride in zip(meta.sizes, meta.strides, strict=True):
        if stride and size != 1:
            break
        times *= size
        repeated += 1
    row = meta
    if repeated:
        row = replace(meta, sizes=meta.sizes[repeated:], strides=meta.strides[repeated:])
    found = plain_range(row, storage_nbytes)
    if found is None or (times > 1 and times * (found[1] - found[0]) > CHUNK_BYTES):
        return None
    return (*found, times)


def element_runs(meta: TensorMeta, start: int, count: int) -> Iterator[tuple[int, int]]:
    """Yields where some elements of a tensor lie that lies within its storage, by their numbers in row-major
    order: which element of the storage it is, and how many lie behind each other from there on."""
    begin = length = 0
    for number in range(start, min(start + count, math.prod(meta.sizes))):
        at, rest = meta.storage_offset, number
        for size, stride in zip(reversed(meta.sizes), reversed(meta.strides), strict=True):
            rest, index = divmod(rest, size)
            at += index * stride
        if at != begin + length and length:
            yield begin, length
            length = 0
        begin = begin if length else at
        length += 1
    if length:
        yield begin, length


def run_of(meta: TensorMeta, begin: int, length: int) -> tuple[TensorMeta, int, int, int]:
    """Returns elements of a tensor that lie behind each other as a tensor of their own, with the range of the
    storage that is all that this needs, and how many of its first elements are others of the same byte."""
    dtype = DTYPES[meta.dtype]
    before = begin % dtype.values_per_byte
    low = begin // dtype.values_per_byte
    high = -(-(begin + length) // dtype.values_per_byte)
    run = replace(meta, sizes=(before + length,), strides=(1,), storage_offset=0)
    return run, low * dtype.item_bytes, high * dtype.item_bytes, before


def storage_range(meta: TensorMeta) -> tuple[int, int]:
    """Returns the range of its storage in which a strided tensor lies, from its first byte to its last; what
    lies in it need not all be the tensor's."""
    if meta.layout != "strided" or 0 in meta.sizes:
        return 0, 0
    dtype = DTYPES[meta.dtype]
    last = meta.storage_offset + sum(
        (size - 1) * stride for size, stride in zip(meta.sizes, meta.strides, strict=True)
    )
    low = meta.storage_offset // dtype.values_per_byte * dtype.item_bytes
    return low, (last // dtype.values_per_byte + 1) * dtype.item_bytes


def _chunks(meta: TensorMeta, storage: StorageBytes, max_bytes: int) -> Iterator[StorageBytes]:
    """The logical bytes in order, in blocks: one, if nothing has to be gathered."""
    dtype = DTYPES[meta.dtype]
    check_within(meta, len(storage))
    nbytes = logical_nbytes(meta)
    if not nbytes:
        return
    if nbytes > max(len(storage), max_bytes):
        raise LimitExceeded("tensor", "max_bytes", max_bytes, nbytes)
    if is_contiguous(meta) and not (meta.conj or meta.neg):
        start = meta.storage_offset * dtype.item_bytes // dtype.values_per_byte
        yield memoryview(storage)[start : start + nbytes]
        return
    unit = _unit(dtype)
    per_item = dtype.item_bytes // unit
    flat = np.frombuffer(storage, _UNSIGNED[unit], count=len(storage) // unit)
    sizes, strides = _collapse(meta.sizes, meta.strides)
    if per_item > 1:
        sizes, strides = (*sizes, per_item), (*(s * per_item for s in strides), 1)
    flat = flat[meta.storage_offset * per_item :]
    view = np.lib.stride_tricks.as_strided(flat, sizes, tuple(s * unit for s in strides), writeable=False)
    for block in _blocks(view):
        yield _resolve(np.ascontiguousarray(block), meta, dtype).tobytes()


def _blocks(view: npt.NDArray[np.unsignedinteger]) -> Iterator[npt.NDArray[np.unsignedinteger]]:
    """A view in pieces of at most about CHUNK_BYTES, in row-major order. As deep as the view has
    dimensions."""
    if view.nbytes <= CHUNK_BYTES or view.ndim == 0:
        yield view
        return
    row_bytes = view.nbytes // view.shape[0]
    if row_bytes > CHUNK_BYTES:
        for row in view:
            yield from _blocks(row)
        return
    rows = max(1, CHUNK_BYTES // row_bytes)
    for start in range(0, view.shape[0], rows):
        yield view[start : start + rows]


def _resolve(
    array: npt.NDArray[np.unsignedinteger], meta: TensorMeta, dtype: DType
) -> npt.NDArray[np.unsignedinteger]:
    """Apply conj and neg to units: flip signs of floats, negate integers. `array` is ours to change."""
    if not (meta.conj or meta.neg):
        return array
    if not array.flags.writeable:
        array = array.copy()
    bits = array.dtype.itemsize * 8
    sign = array.dtype.type(1 << (bits - 1))
    if meta.conj:
        array.reshape(-1)[1::2] ^= sign
    if meta.neg:
        if dtype.kind in ("float", "complex"):
            fnuz = dtype.name in SMALL_FLOATS and SMALL_FLOATS[dtype.name].fnuz
            # what minus zero would be is their NaN, and zero has no sign
            array ^= np.where(array & ~sign, sign, array.dtype.type(0)) if fnuz else sign
        else:
            array = (~array) + array.dtype.type(1)
    return array


def check_within(meta: TensorMeta, storage_nbytes: int) -> None:
    """Raises `DecodeError` unless a tensor is one, and lies within its storage: all that the functions above
    rely on.
    """
    dtype = DTYPES[meta.dtype]
    if meta.layout != "strided":
        raise DecodeError("tensor", f"a {meta.layout} tensor has no bytes of its own, its parts have")
    if meta.conj and dtype.kind != "complex":
        raise DecodeError("tensor", f"conj is set on a tensor of {meta.dtype}")
    if meta.neg and (dtype.kind not in ("float", "complex", "int", "uint") or dtype.name in _UNSIGNED_FLOATS):
        raise DecodeError("tensor", f"neg is set on a tensor of {meta.dtype}")
    if (
        len(meta.sizes) != len(meta.strides)
        or min((*meta.sizes, *meta.strides, meta.storage_offset), default=0) < 0
    ):
        raise DecodeError("tensor", "sizes, strides or offset are impossible for a tensor")
    if 0 in meta.sizes:
        return
    if dtype.values_per_byte > 1 and (not is_contiguous(meta) or meta.storage_offset % dtype.values_per_byte):
        raise DecodeError("tensor", f"a tensor of {meta.dtype} that is not contiguous")
    steps = ((size - 1) * stride for size, stride in zip(meta.sizes, meta.strides, strict=True))
    last = meta.storage_offset + sum(steps)
    room = storage_nbytes // dtype.item_bytes * dtype.values_per_byte
    if last >= room:
        raise DecodeError("tensor", f"element {last} is asked of a storage of {room} elements")


def _collapse(sizes: tuple[int, ...], strides: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns sizes and strides of the same elements with as few dimensions as possible, since numpy bounds
    their number."""
    out: list[tuple[int, int]] = []
    for size, stride in zip(sizes, strides, strict=True):
        if size == 1:
            continue
        if out and out[-1][1] == size * stride:
            out[-1] = (out[-1][0] * size, stride)
        else:
            out.append((size, stride))
    return tuple(size for size, _ in out), tuple(stride for _, stride in out)


def _unit(dtype: DType) -> int:
    """Returns the bytes of a signed number: an element, or half of a complex one."""
    return dtype.item_bytes // 2 if dtype.kind == "complex" else dtype.item_bytes


_UNSIGNED: dict[int, npt.DTypeLike] = {1: "<u1", 2: "<u2", 4: "<u4", 8: "<u8"}
_UNSIGNED_FLOATS = frozenset({"float8_e8m0fnu", "float4_e2m1fn_x2"})
"""No sign bit, or two of them in a byte; torch can't negate these either."""

"""The bytes of tensors as noise of the same kind: dtype, zeros, infinities, NaNs and magnitudes stay.

In: the bytes of a storage and the tensors that use it. Out: as many bytes. The noise follows from the key
and the whole content, so that equal storages get equal noise, and one other element makes all of it other:
a value of its own has no stand-in that could be counted. Bytes that no tensor shows become zeros.

A float keeps its class (zero, infinity, NaN, subnormal, normal) and gets the exponent of some element of the
storage; sign and mantissa are noise. Integers are noise of as many bits as the largest
has, booleans are noise. What is all zeros stays so.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import shake_256
from math import prod
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from rpcinspect.export.redaction.pseudonyms import Pseudonyms
from rpcinspect.rpc.dtypes import DTYPES, SMALL_FLOATS, SmallFloat
from rpcinspect.rpc.tensor import TensorMeta
from rpcinspect.rpc.tensor_values import is_contiguous, logical_nbytes

Bits = npt.NDArray[np.unsignedinteger]
Number = TypeVar("Number", bound=np.unsignedinteger)
SAMPLE = 1 << 16
"""Elements of a block that its exponents are taken from: few enough for a cache of the processor."""
BLOCK = 1 << 24
"""Bytes that are dealt with at once."""


def redact_storage(data: bytes, metas: Sequence[TensorMeta], words: Pseudonyms, index: int) -> bytes:
    """Storage `index` of a message with these tensors."""
    its = [meta for meta in metas if meta.storage == index]
    shown = data
    if its and not _covered(len(data), its):
        shown = bytes(np.where(_mask(len(data), its), np.frombuffer(data, np.uint8), np.uint8(0)))
    if shown.count(0) == len(shown):
        return shown
    key = words.digest(b"storage", shown)
    names = {meta.dtype for meta in its}
    indices = _sparse_sizes(metas, its)
    if indices is not None and len(its) == 1:
        made = _indices(its[0], len(data), indices, key)
        if made is not None:
            return made
    dtype = next(iter(names)) if len(names) == 1 else ""
    unsigned = any(_is_scales(metas, meta) for meta in its)
    pieces = []
    for at in range(0, len(shown), BLOCK):
        pieces.append(_noise(shown[at : at + BLOCK], dtype, key + at.to_bytes(8, "little"), unsigned))
    return b"".join(pieces)


def _noise(data: bytes, dtype: str, key: bytes, unsigned: bool) -> bytes:
    layout = FLOATS.get(dtype)
    if layout is not None and len(data) % np.dtype(layout.type).itemsize == 0:
        return _floats(np.frombuffer(data, layout.type), layout, key, unsigned)
    random = _random(key + b"bytes", len(data), np.uint8)
    row = DTYPES.get(dtype)
    if row is not None and row.kind == "bool":
        random = random & np.uint8(1)
    elif row is not None and row.kind in INTEGERS and len(data) % row.item_bytes == 0:
        bits = np.frombuffer(data, TYPES[row.item_bytes])
        return _integers(bits, random.view(bits.dtype), dtype)
    return random.tobytes()


def _random(key: bytes, count: int, kind: type[Number]) -> npt.NDArray[Number]:
    """So many numbers that only this key gives."""
    return np.frombuffer(shake_256(key).digest(count * np.dtype(kind).itemsize), kind)


def _integers(bits: Bits, noise: Bits, dtype: str) -> bytes:
    """As many bits as the largest has; negative where it is noise, if any of them is."""
    size = bits.dtype.itemsize
    signed = dtype in SIGNED
    top = bits.dtype.type(1 << 8 * size - 1)
    if signed:
        negative = (bits & top) != 0
        magnitude = np.where(negative, ~bits, bits)
    else:
        negative, magnitude = np.zeros(len(bits), bool), bits
    width = max(1, int(magnitude.max()).bit_length())
    made = noise & bits.dtype.type((1 << width) - 1)
    if negative.any():
        made = np.where((noise & top) != 0, ~made, made)
    return bytes(made.astype(bits.dtype).tobytes())


class _Float(Struct, frozen=True):
    """Where sign, exponent and mantissa of a float are."""

    type: type[np.unsignedinteger]
    exponent: int
    mantissa: int
    small: SmallFloat | None = None
    """What is NaN, where the highest exponent is not that of infinities and NaNs."""


FLOATS = {
    "float16": _Float(np.uint16, 5, 10),
    "bfloat16": _Float(np.uint16, 8, 7),
    "float32": _Float(np.uint32, 8, 23),
    "float64": _Float(np.uint64, 11, 52),
    "complex32": _Float(np.uint16, 5, 10),
    "complex64": _Float(np.uint32, 8, 23),
    "complex128": _Float(np.uint64, 11, 52),
    "float8_e5m2": _Float(np.uint8, 5, 2),
    **{
        name: _Float(np.uint8, small.exponent_bits, small.mantissa_bits, small)
        for name, small in SMALL_FLOATS.items()
    },
}
TYPES: dict[int, type[np.unsignedinteger]] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
INTEGERS = ("int", "uint", "quantized")
SIGNED = frozenset({"int8", "int16", "int32", "int64", "qint8", "qint32"})


def _floats(bits: Bits, layout: _Float, key: bytes, unsigned: bool) -> bytes:
    kind = bits.dtype.type
    sign = kind(1 << layout.exponent + layout.mantissa)
    mantissas = kind((1 << layout.mantissa) - 1)
    exponents = kind(((1 << layout.exponent) - 1) << layout.mantissa)
    noise = _random(key + b"float", len(bits), kind)
    exponent, mantissa = bits & exponents, bits & mantissas
    magnitude = bits & ~sign
    small = layout.small
    infinities = small is None
    if small is None:
        special = exponent == exponents
    elif small.nan_code is None:  # minus zero's code
        special = bits == sign
    else:
        special = magnitude == kind(small.nan_code)
    zero = (magnitude == 0) & ~special
    subnormal = (exponent == 0) & ~zero & ~special
    normal = ~(special | zero | subnormal)
    new = noise & mantissas
    # a subnormal or a NaN without a mantissa would be something else
    needs = (subnormal | (special & (mantissa != 0) & infinities)) & (new == 0)
    new = np.where(needs, kind(1), new)
    if infinities:
        new = np.where(special & (mantissa == 0), kind(0), new)
    dealt = exponent.copy()
    dealt[normal] = _drawn(exponent[normal], key)
    made = dealt | new
    if small is not None and small.nan_code is not None:
        made = np.where(normal & ((made & ~sign) == kind(small.nan_code)), made ^ kind(1), made)
    signs = (bits if unsigned else noise) & sign
    made = (made & ~sign) | signs
    keep = zero | (special & (mantissa == 0) if infinities else special)
    return np.where(keep, bits, made).astype(kind).tobytes()


def _drawn(values: Bits, key: bytes) -> Bits:
    """As many, each from a place of its own choice: a shuffle that is fast, and exact only for many."""
    count = min(len(values), SAMPLE)
    noise = _random(key + b"sample", count, np.uint32)
    sample: Bits = values[(noise.astype(np.uint64) * np.uint64(len(values))) >> np.uint64(32)]
    if count < SAMPLE:
        return sample
    drawn: Bits = sample[_random(key + b"order", len(values), np.uint16)]
    return drawn


def _covered(length: int, metas: Sequence[TensorMeta]) -> bool:
    """Whether some tensor shows the whole storage, which is the usual case."""
    return any(
        meta.storage_offset == 0 and is_contiguous(meta) and logical_nbytes(meta) >= length for meta in metas
    )


def _mask(length: int, metas: Sequence[TensorMeta]) -> npt.NDArray[np.bool_]:
    """Which bytes a tensor shows; all of them where that can't be said."""
    mask = np.zeros(length, dtype=np.bool_)
    for meta in metas:
        dtype = DTYPES[meta.dtype]
        places = _places(meta, length // dtype.item_bytes)
        if places is None or dtype.values_per_byte > 1:
            return np.ones(length, dtype=np.bool_)
        elements = mask[: length // dtype.item_bytes * dtype.item_bytes].reshape(-1, dtype.item_bytes)
        elements[places] = True
    return mask


def _places(meta: TensorMeta, count: int) -> npt.NDArray[np.int64] | None:
    """The elements of a storage that a tensor shows; None where it reaches outside or is too large."""
    steps = [(size, step) for size, step in zip(meta.sizes, meta.strides, strict=True) if step]
    if 0 in meta.sizes:
        return np.empty(0, np.int64)
    last = meta.storage_offset + sum((size - 1) * step for size, step in steps)
    if prod([size for size, _ in steps]) > 4 * max(count, 1) or last >= count:
        return None
    places = np.array([meta.storage_offset], np.int64)
    for size, step in steps:
        places = (places[:, None] + np.arange(size, dtype=np.int64) * step).reshape(-1)
    return places


def _sparse_sizes(metas: Sequence[TensorMeta], its: Sequence[TensorMeta]) -> tuple[int, ...] | None:
    """The sizes of the sparse tensor that these are the indices of."""
    for meta in its:
        if meta.part_of is not None:
            whole = metas[meta.part_of]
            names = {metas[number]: name for name, number in whole.parts}
            if whole.layout == "sparse_coo" and names.get(meta) == "indices":
                return whole.sizes
    return None


def _is_scales(metas: Sequence[TensorMeta], meta: TensorMeta) -> bool:
    if meta.part_of is None:
        return False
    return any(name == "scales" and metas[number] == meta for name, number in metas[meta.part_of].parts)


def _indices(meta: TensorMeta, length: int, sizes: tuple[int, ...], key: bytes) -> bytes | None:
    """Other indices of a sparse tensor, in order and each once; None where that can't be done."""
    if meta.dtype != "int64" or len(meta.sizes) != 2 or not 0 < meta.sizes[0] <= len(sizes):
        return None
    dims, count = meta.sizes
    room = prod(sizes[:dims])
    places = _places(meta, length // 8)
    if places is None or not count or room < 1 or room >= 1 << 62:
        return None
    noise = _random(key + b"index", count, np.uint64)
    if count <= room // 4:
        flat = np.unique(noise % np.uint64(room))
        extra = 0
        while len(flat) < count:
            extra += 1
            more = _random(key + b"index" + bytes([extra % 256]), count, np.uint64)
            flat = np.unique(np.concatenate([flat, more % np.uint64(room)]))
        flat = np.sort(flat[_order(len(flat), key)[:count]])
    elif count <= room and room <= 1 << 24:
        flat = np.sort(_order(room, key)[:count]).astype(np.uint64)
    else:
        flat = np.sort(noise % np.uint64(room))
    out = np.zeros(length // 8, np.int64)
    rows = np.array(np.unravel_index(flat.astype(np.int64), sizes[:dims]), np.int64)
    out[places] = rows.reshape(-1)
    return out.tobytes() + bytes(length % 8)


def _order(count: int, key: bytes) -> npt.NDArray[np.int64]:
    return np.argsort(_random(key + b"order", count, np.uint64), kind="stable")

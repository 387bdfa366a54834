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

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from rpcinspect.redaction.pseudonyms import Pseudonyms
from rpcinspect.rpc.dtypes import DTYPES
from rpcinspect.rpc.tensor import TensorMeta

Bits = npt.NDArray[np.unsignedinteger]
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
    if layout is not None and len(data) % layout.item_bytes == 0:
        return _floats(np.frombuffer(data, layout.type), layout, key, unsigned)
    kind = DTYPES[dtype].kind if dtype in DTYPES else ""
    size = DTYPES[dtype].item_bytes if dtype in DTYPES else 1
    random = shake_256(key + b"bytes").digest(len(data))
    if kind == "bool":
        return bytes(np.frombuffer(random, np.uint8) & np.uint8(1))
    if kind in ("int", "uint", "quantized") and size in TYPES and len(data) % size == 0:
        return _integers(np.frombuffer(data, TYPES[size]), random, dtype)
    return random


def _integers(bits: Bits, random: bytes, dtype: str) -> bytes:
    """As many bits as the largest has; negative where it is noise, if any of them is."""
    size = bits.dtype.itemsize
    signed = dtype in SIGNED
    noise = np.frombuffer(random, bits.dtype)
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
    infinities: bool = True
    """The highest exponent is of infinities and NaNs; else only `nan` is."""
    nan: int | None = None
    """The one code of NaN, sign off; None with `infinities`; for fnuz it is that of minus zero."""
    fnuz: bool = False

    @property
    def item_bytes(self) -> int:
        return int(np.dtype(self.type).itemsize)


FLOATS = {
    "float16": _Float(np.uint16, 5, 10),
    "bfloat16": _Float(np.uint16, 8, 7),
    "float32": _Float(np.uint32, 8, 23),
    "float64": _Float(np.uint64, 11, 52),
    "complex32": _Float(np.uint16, 5, 10),
    "complex64": _Float(np.uint32, 8, 23),
    "complex128": _Float(np.uint64, 11, 52),
    "float8_e5m2": _Float(np.uint8, 5, 2),
    "float8_e4m3fn": _Float(np.uint8, 4, 3, infinities=False, nan=0x7F),
    "float8_e4m3fnuz": _Float(np.uint8, 4, 3, infinities=False, fnuz=True),
    "float8_e5m2fnuz": _Float(np.uint8, 5, 2, infinities=False, fnuz=True),
}
TYPES: dict[int, type[np.unsignedinteger]] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
SIGNED = frozenset({"int8", "int16", "int32", "int64", "qint8", "qint32"})


def _floats(bits: Bits, layout: _Float, key: bytes, unsigned: bool) -> bytes:
    kind = bits.dtype.type
    sign = kind(1 << layout.exponent + layout.mantissa)
    mantissas = kind((1 << layout.mantissa) - 1)
    exponents = kind(((1 << layout.exponent) - 1) << layout.mantissa)
    noise = np.frombuffer(shake_256(key + b"float").digest(bits.nbytes), kind)
    exponent, mantissa = bits & exponents, bits & mantissas
    magnitude = bits & ~sign
    if layout.infinities:
        special = exponent == exponents
    elif layout.fnuz:
        special = bits == sign
    else:
        special = magnitude == kind(layout.nan or 0)
    zero = (magnitude == 0) & ~special
    subnormal = (exponent == 0) & ~zero & ~special
    normal = ~(special | zero | subnormal)
    new = noise & mantissas
    # a subnormal or a NaN without a mantissa would be something else
    needs = (subnormal | (special & (mantissa != 0) & layout.infinities)) & (new == 0)
    new = np.where(needs, kind(1), new)
    if layout.infinities:
        new = np.where(special & (mantissa == 0), kind(0), new)
    dealt = exponent.copy()
    dealt[normal] = _drawn(exponent[normal], key)
    made = dealt | new
    if layout.nan is not None:
        made = np.where(normal & ((made & ~sign) == kind(layout.nan)), made ^ kind(1), made)
    signs = (bits if unsigned else noise) & sign
    made = (made & ~sign) | signs
    keep = zero | (special if not layout.infinities else (special & (mantissa == 0)))
    return np.where(keep, bits, made).astype(kind).tobytes()


def _drawn(values: Bits, key: bytes) -> Bits:
    """As many, each from a place of its own choice: a shuffle that is fast, and exact only for many."""
    count = min(len(values), SAMPLE)
    noise = np.frombuffer(shake_256(key + b"sample").digest(4 * count), np.uint32)
    sample: Bits = values[(noise.astype(np.uint64) * np.uint64(len(values))) >> np.uint64(32)]
    if count < SAMPLE:
        return sample
    drawn: Bits = sample[np.frombuffer(shake_256(key + b"order").digest(2 * len(values)), np.uint16)]
    return drawn


def _covered(length: int, metas: Sequence[TensorMeta]) -> bool:
    """Whether some tensor shows the whole storage, which is the usual case."""
    return any(
        meta.storage_offset == 0
        and prod(meta.sizes) * DTYPES[meta.dtype].item_bytes >= length * DTYPES[meta.dtype].values_per_byte
        and meta.strides == _contiguous(meta.sizes)
        for meta in metas
    )


def _contiguous(sizes: tuple[int, ...]) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for size in reversed(sizes):
        strides.insert(0, step)
        step *= max(size, 1)
    return tuple(strides)


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
    noise = np.frombuffer(shake_256(key + b"index").digest(8 * count), np.uint64)
    if count <= room // 4:
        flat = np.unique(noise % np.uint64(room))
        extra = 0
        while len(flat) < count:
            extra += 1
            more = np.frombuffer(
                shake_256(key + b"index" + bytes([extra % 256])).digest(8 * count), np.uint64
            )
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
    noise = np.frombuffer(shake_256(key + b"order").digest(8 * count), np.uint64)
    return np.argsort(noise, kind="stable")

"""Logical elements block by block: the same as read whole, with their holes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from rpcinspect.equality import elements
from rpcinspect.equality.elements import Storage, Tensors, codes_of
from rpcinspect.errors import DecodeError
from rpcinspect.rpc.tensor import TensorMeta
from rpcinspect.rpc.tensor_values import logical_bytes
from rpcinspect.tcp.ranges import Extent
from tests.equality.builders import in_memory

DATA = bytes(range(200)) * 3


def holed(data: bytes, *missing: tuple[int, int]) -> Storage:
    """A storage of which some ranges were not captured."""
    pieces, at = [], 0
    for start, end in (*missing, (len(data), len(data))):
        if start > at:
            pieces.append((0, at, start - at))
        at = end
    extent = Extent(len(data), tuple(pieces), missing)

    def read(part: Extent) -> bytes:
        out, position, holes = bytearray(part.length), 0, list(part.missing)
        for _, offset, length in part.pieces:
            while holes and holes[0][0] == position:
                position = holes.pop(0)[1]
            out[position : position + length] = data[offset : offset + length]
            position += length
        return bytes(out)

    return Storage(extent, read)


@st.composite
def strided(draw: st.DrawFn) -> TensorMeta:
    """A tensor that lies within those bytes."""
    dtype = draw(st.sampled_from(["uint8", "int16", "float32", "complex64"]))
    item = {"uint8": 1, "int16": 2, "float32": 4, "complex64": 8}[dtype]
    sizes = tuple(draw(st.lists(st.integers(0, 4), max_size=3)))
    strides = tuple(draw(st.integers(0, 3)) for _ in sizes)
    conj = dtype == "complex64" and draw(st.booleans())
    meta = TensorMeta(dtype=dtype, sizes=sizes, strides=strides, storage=0, conj=conj)
    if draw(st.booleans()):
        meta = structs.replace(meta, strides=tuple(math.prod(sizes[i + 1 :]) for i in range(len(sizes))))
    last = sum((size - 1) * stride for size, stride in zip(sizes, meta.strides, strict=True))
    return structs.replace(meta, storage_offset=draw(st.integers(0, len(DATA) // item - 1 - max(last, 0))))


@given(meta=strided(), block=st.integers(1, 9))
def test_blocks_are_the_logical_bytes(meta: TensorMeta, block: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(elements, "BLOCK_ELEMENTS", block)
        blocks = list(Tensors((meta,), (in_memory(DATA),)).blocks(meta))
    assert b"".join(one.codes.tobytes() for one in blocks) == logical_bytes(meta, DATA)
    starts = [0, *np.cumsum([len(one.codes) for one in blocks]).tolist()]
    assert [one.start for one in blocks] == starts[:-1]
    assert starts[-1] == math.prod(meta.sizes)
    assert all(one.unknown is None for one in blocks)


@given(
    meta=strided(),
    block=st.integers(1, 9),
    cuts=st.lists(st.integers(0, 600), min_size=2, max_size=6, unique=True).map(sorted),
)
def test_elements_in_holes_are_unknown(meta: TensorMeta, block: int, cuts: list[int]) -> None:
    missing = tuple(zip(cuts[::2], cuts[1::2], strict=False))
    lost = {at for start, end in missing for at in range(start, end)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(elements, "BLOCK_ELEMENTS", block)
        blocks = list(Tensors((meta,), (holed(DATA, *missing),)).blocks(meta))
    found = [
        flag
        for one in blocks
        for flag in ([False] * len(one.codes) if one.unknown is None else one.unknown.tolist())
    ]
    item = codes_of(structs.replace(meta, sizes=()), bytes(8)[: _item(meta)]).nbytes
    expected = []
    for index in np.ndindex(*meta.sizes):
        at = meta.storage_offset + sum(i * s for i, s in zip(index, meta.strides, strict=True))
        expected.append(not lost.isdisjoint(range(at * item, (at + 1) * item)))
    assert found == expected


def _item(meta: TensorMeta) -> int:
    return {"uint8": 1, "int16": 2, "float32": 4, "complex64": 8}[meta.dtype]


@given(start=st.integers(0, 600), end=st.integers(0, 600))
def test_a_part_of_an_extent(start: int, end: int) -> None:
    start, end = sorted((start, end))
    storage = holed(DATA, (10, 20), (100, 101), (590, 600))
    assert storage.extent is not None
    part = storage.extent.part(start, end)
    assert storage.read(part) == storage.read(storage.extent)[start:end]
    assert sum(length for _, _, length in part.pieces) + part.missing_bytes == end - start


@pytest.mark.parametrize(
    ("dtype", "raw", "numel", "expected"),
    [
        ("quint4x2", "21 43", 3, [[1], [2], [3]]),
        ("quint2x4", "e4", 4, [[0], [1], [2], [3]]),
        ("float4_e2m1fn_x2", "21 43", 2, [[1, 2], [3, 4]]),
        ("complex32", "0102 0304", 1, [[0x201, 0x403]]),
        ("int16", "0102 ffff", 2, [[0x201], [0xFFFF]]),
    ],
)
def test_codes(dtype: str, raw: str, numel: int, expected: list[list[int]]) -> None:
    meta = TensorMeta(dtype=dtype, sizes=(numel,), strides=(1,))
    assert codes_of(meta, bytes.fromhex(raw)).tolist() == expected


@pytest.mark.parametrize("rows", [3, 5])
def test_elements_that_share_bytes_are_cut_between_bytes(monkeypatch: Any, rows: int) -> None:
    monkeypatch.setattr(elements, "BLOCK_ELEMENTS", 4)
    meta = TensorMeta(dtype="quint4x2", sizes=(rows, 5), strides=(5, 1), storage=0)
    blocks = list(Tensors((meta,), (in_memory(DATA),)).blocks(meta))
    found = np.concatenate([block.codes for block in blocks]).reshape(-1)
    assert found.tolist() == [DATA[i // 2] >> 4 * (i % 2) & 15 for i in range(rows * 5)]


@pytest.mark.parametrize(
    "meta",
    [
        TensorMeta(dtype="float32", sizes=(151,), strides=(1,), storage=0),
        TensorMeta(dtype="float32", sizes=(2,), strides=(150,), storage=0),
        TensorMeta(dtype="float32", sizes=(1 << 40,), strides=(0,), storage=0),
        TensorMeta(dtype="quint4x2", sizes=(3,), strides=(1,), storage_offset=1, storage=0),
    ],
)
def test_a_table_that_does_not_fit_its_storage(meta: TensorMeta) -> None:
    with pytest.raises(DecodeError):
        list(Tensors((meta,), (in_memory(DATA),)).blocks(meta))

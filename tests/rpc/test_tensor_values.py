from __future__ import annotations

import hashlib
import itertools
import math
import re
import struct
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from rpcinspect.errors import DecodeError, LimitExceeded
from rpcinspect.rpc.dtypes import DTYPES
from rpcinspect.rpc.tensor import TensorMeta, read_tensor_table
from rpcinspect.rpc.tensor_values import (
    CHUNK_BYTES,
    first_values,
    is_contiguous,
    logical_bytes,
    logical_nbytes,
    repeated_range,
    sha256,
)
from tests.rpc.torch_tables import import_torch, raw_bytes, torch_table


def meta(dtype: str, sizes: tuple[int, ...], strides: tuple[int, ...], **more: Any) -> TensorMeta:
    return TensorMeta(dtype=dtype, sizes=sizes, strides=strides, storage=0, **more)


EIGHT = bytes(range(8))


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (meta("uint8", (8,), (1,)), "00 01 02 03 04 05 06 07"),
        (meta("uint8", (2, 4), (4, 1)), "00 01 02 03 04 05 06 07"),
        (meta("uint8", (4, 2), (1, 4)), "00 04 01 05 02 06 03 07"),
        (meta("uint8", (3,), (2,), storage_offset=1), "01 03 05"),
        (meta("uint8", (2, 2), (0, 0), storage_offset=7), "07 07 07 07"),
        (meta("uint8", (), (), storage_offset=3), "03"),
        (meta("uint8", (2, 0, 3), (0, 3, 1), storage_offset=99), ""),
        (meta("uint8", (1, 2), (1000, 3)), "00 03"),
        (meta("int16", (2,), (2,)), "00 01 04 05"),
        (meta("int8", (4,), (1,), neg=True), "00 ff fe fd"),
        (meta("int16", (1,), (1,), neg=True, storage_offset=1), "fe fc"),
        (meta("float32", (2,), (1,), neg=True), "00 01 02 83 04 05 06 87"),
        (meta("complex32", (2,), (1,), conj=True), "00 01 02 83 04 05 06 87"),
        (meta("complex32", (2,), (1,), neg=True), "00 81 02 83 04 85 06 87"),
        (meta("complex32", (2,), (1,), conj=True, neg=True), "00 81 02 03 04 85 06 07"),
        (meta("complex64", (), (), conj=True), "00 01 02 03 04 05 06 87"),
        (meta("float8_e4m3fn", (3,), (1,), neg=True), "80 81 82"),
        (meta("float8_e4m3fnuz", (3,), (1,), neg=True), "00 81 82"),
        (meta("quint4x2", (3, 3), (3, 1)), "00 01 02 03 04"),
        (meta("quint2x4", (4, 2), (2, 1), storage_offset=4), "01 02"),
        (meta("float4_e2m1fn_x2", (2,), (4,)), "00 04"),
    ],
)
def test_logical_bytes(tensor: TensorMeta, expected: str) -> None:
    raw = bytes.fromhex(expected)
    assert logical_bytes(tensor, EIGHT) == raw
    assert logical_bytes(tensor, memoryview(bytearray(EIGHT))) == raw
    assert logical_nbytes(tensor) == len(raw)
    assert sha256(tensor, EIGHT) == hashlib.sha256(raw).hexdigest()


@pytest.mark.parametrize(
    "tensor",
    [
        meta("uint8", (9,), (1,)),
        meta("uint8", (8,), (1,), storage_offset=1),
        meta("uint8", (2,), (8,)),
        meta("uint8", (), (), storage_offset=8),
        meta("int64", (2,), (1,)),
        meta("uint8", (1 << 62, 1 << 62), (1 << 62, 1)),
        meta("uint8", (2,), (-1,), storage_offset=4),
        meta("uint8", (2, 2), (1,)),
        meta("float32", (2,), (1,), conj=True),
        meta("bool", (2,), (1,), neg=True),
        meta("quint8", (2,), (1,), neg=True),
        meta("float8_e8m0fnu", (2,), (1,), neg=True),
        meta("quint4x2", (2, 3), (1, 2)),
        meta("quint4x2", (17,), (1,)),
        meta("quint4x2", (2,), (1,), storage_offset=1),
        TensorMeta(dtype="float32", sizes=(2,), strides=(), layout="sparse_coo"),
    ],
)
def test_what_has_no_bytes(tensor: TensorMeta) -> None:
    for read in (logical_bytes, sha256, lambda m, s: first_values(m, s, 3)):
        with pytest.raises(DecodeError) as caught:
            read(tensor, EIGHT)
        assert caught.value.layer == "tensor"


def test_expanded_tensors_are_bounded() -> None:
    started = time.process_time()
    for sizes in [(1_000_000_000_000,), (1 << 40, 1 << 40), (2,) * 64]:
        with pytest.raises(LimitExceeded, match="max_bytes"):
            sha256(meta("float32", sizes, (0,) * len(sizes)), b"\0\0\x80\x3f")
    assert time.process_time() - started < 3


def test_hash_in_blocks() -> None:
    row = bytes(range(256)) * 4
    rows = 5 * CHUNK_BYTES // len(row) + 3
    expected = hashlib.sha256(row * rows).hexdigest()
    assert sha256(meta("float32", (rows, 256), (0, 1)), row) == expected
    # the outer dimension alone is one block too large
    assert (
        sha256(meta("float32", (2, rows, 256), (0, 0, 1)), row) == hashlib.sha256(row * rows * 2).hexdigest()
    )
    assert logical_bytes(meta("float32", (rows, 256), (0, 1)), row) == row * rows


def test_large_storages_are_no_expansion() -> None:
    storage = bytes(1 << 16)
    assert logical_bytes(meta("uint8", (256, 256), (1, 256)), storage, max_bytes=10) == storage
    assert logical_bytes(meta("uint8", (1 << 16,), (1,)), storage, max_bytes=10) == storage


@pytest.mark.parametrize(
    ("sizes", "strides", "expected"),
    [
        ((2, 3), (3, 1), True),
        ((2, 3), (1, 2), False),
        ((1, 3), (77, 1), True),
        ((), (), True),
        ((2, 0), (5, 5), True),
        ((2,), (0,), False),
    ],
)
def test_is_contiguous(sizes: tuple[int, ...], strides: tuple[int, ...], expected: bool) -> None:
    assert is_contiguous(meta("uint8", sizes, strides)) is expected


def _tensors(torch: Any) -> list[Any]:
    x = torch.randn(4, 5, 6, generator=torch.Generator().manual_seed(1))
    c = torch.tensor([[1 + 2j, -3.5 + 0j], [0j, complex("nan")]])
    tensors = [
        x,
        x.transpose(0, 2),
        x[1:, ::2, 3],
        x[:, 0].expand(3, 4, 6),
        x.sum().expand(2, 3),
        x.permute(1, 2, 0)[2:4],
        torch.zeros(3, 0),
        torch.tensor(3.5),
        torch.tensor([0.0, -0.0, float("nan"), float("inf")])._neg_view(),
        torch.arange(-3, 4, dtype=torch.int16)._neg_view(),
        torch.arange(5, dtype=torch.uint8)._neg_view(),
        torch.tensor([True, False, True])[::2],
    ]
    for dtype in (torch.complex32, torch.complex64, torch.complex128):
        z = c.to(dtype)
        tensors += [z, z.conj(), z.t().conj(), z[:1].conj().expand(3, 2)]
        # torch writes one dtype for each storage, so a view of another dtype must not share it
        tensors.append(z.clone().conj().imag.t())
    codes = torch.arange(256, dtype=torch.uint8)
    for name, row in DTYPES.items():
        if row.kind in ("float", "int", "uint") and row.values_per_byte == 1:
            tensors.append(codes.clone().view(getattr(torch, name)))
            if not re.fullmatch("u?int[1-7]", name):  # torch can't copy these
                tensors.append(codes.reshape(16, 16).clone().view(getattr(torch, name)).t())
    return tensors


@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_every_view_has_the_bytes_that_torch_gives_it() -> None:
    torch = import_torch()
    tensors = _tensors(torch)
    table, storages = torch_table(tensors)
    for tensor, found in zip(tensors, read_tensor_table(table), strict=True):
        assert found.storage is not None
        assert logical_bytes(found, storages[found.storage]) == raw_bytes(tensor), found


@pytest.mark.parametrize(
    "name", ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "bfloat16"]
)
def test_negated_small_floats_have_the_values_that_torch_gives_them(name: str) -> None:
    torch = import_torch()
    item = DTYPES[name].item_bytes
    raw = b"".join(i.to_bytes(item, "little") for i in range(256))
    values = torch.frombuffer(bytearray(raw), dtype=getattr(torch, name)).double()
    found = first_values(meta(name, (256,), (1,), neg=True), raw, 256)
    for value, negated in zip(values.tolist(), found, strict=True):
        assert isinstance(negated, float)
        assert (math.isnan(value) and math.isnan(negated)) or negated == -value


@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_first_values_are_those_of_torch() -> None:
    torch = import_torch()
    tensors = [t for t in _tensors(torch) if t.dtype not in _no_doubles(torch)]
    table, storages = torch_table(tensors)
    for tensor, found in zip(tensors, read_tensor_table(table), strict=True):
        assert found.storage is not None
        values = first_values(found, storages[found.storage], 7)
        plain = tensor.resolve_conj().resolve_neg().contiguous().reshape(-1)[:7]
        if tensor.is_complex():
            plain = plain.to(torch.complex128)
        elif tensor.is_floating_point():
            plain = plain.double()
        assert repr(values) == repr(plain.tolist()), found


def _no_doubles(torch: Any) -> set[Any]:
    """Element types that torch can't convert."""
    return {
        getattr(torch, name)
        for name in DTYPES
        if name[:3] in ("int", "uin", "flo") and DTYPES[name].item_bytes == 1
    } - {
        torch.int8,
        torch.uint8,
        torch.float8_e4m3fn,
        torch.float8_e5m2,
    }


@pytest.mark.filterwarnings("ignore")
def test_quantized_tensors_give_their_integers() -> None:
    torch = import_torch()
    x = torch.arange(10.0).reshape(2, 5)
    scales, zeros = torch.tensor([0.5, 1.0]), torch.tensor([0, 1])
    tensors = [
        torch.quantize_per_tensor(x, 0.5, 3, torch.quint8),
        torch.quantize_per_tensor(x, 0.5, 3, torch.qint32).t(),
        torch.quantize_per_channel(x, scales, zeros, 0, torch.qint8),
        torch.quantize_per_channel(x, scales, zeros.float(), 0, torch.quint4x2),
    ]
    table, storages = torch_table(tensors)
    for tensor, found in zip(tensors, read_tensor_table(table), strict=False):
        assert found.storage is not None
        storage = storages[found.storage]
        assert logical_bytes(found, storage) == raw_bytes(tensor.int_repr())
        if found.dtype != "quint4x2":
            assert first_values(found, storage, 10) == tensor.int_repr().reshape(-1).tolist()
    # elements of four bits: x / scale + zero point, row by row
    packed = read_tensor_table(table)[3]
    assert packed.storage is not None
    assert first_values(packed, storages[packed.storage], 10) == [0, 2, 4, 6, 8, 6, 7, 8, 9, 10]


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (meta("uint8", (2, 4), (4, 1)), (0, 8, 1)),
        (meta("int16", (2,), (1,), storage_offset=2), (4, 8, 1)),
        (meta("int16", (), ()), (0, 2, 1)),
        (meta("int16", (3, 5), (0, 0), storage_offset=1), (2, 4, 15)),
        (meta("int16", (3, 1, 2), (0, 9, 1)), (0, 4, 3)),
        (meta("uint8", (2, 3), (1, 0)), None),
        (meta("uint8", (4, 2), (1, 4)), None),
        (meta("uint8", (2, 9), (0, 1)), None),
        (meta("int8", (3,), (0,), neg=True), None),
        (meta("uint8", (-3,), (0,)), None),
        (meta("uint8", (CHUNK_BYTES + 1,), (0,)), None),
        (meta("float32", (3,), (), layout="sparse_coo"), None),
    ],
)
def test_repeated_ranges(tensor: TensorMeta, expected: tuple[int, int, int] | None) -> None:
    assert repeated_range(tensor, 8) == expected


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=4), st.integers(0, 5))
def test_what_is_repeated_is_what_the_tensor_has(shape: list[tuple[int, int]], offset: int) -> None:
    sizes, strides = tuple([size for size, _ in shape]), tuple([stride for _, stride in shape])
    tensor = meta("int16", sizes, strides, storage_offset=offset)
    storage = bytes(range(120))
    found = repeated_range(tensor, len(storage))
    if found is not None:
        start, end, times = found
        assert storage[start:end] * times == logical_bytes(tensor, storage)


@given(st.data())
def test_any_view_is_read_as_an_index_formula_says_or_refused(data: st.DataObject) -> None:
    storage = data.draw(st.binary(max_size=40))
    dtype = data.draw(st.sampled_from(["uint8", "int16", "float32", "complex64", "complex128", "complex32"]))
    sizes = tuple(data.draw(st.lists(st.integers(0, 4), max_size=4)))
    strides = tuple(data.draw(st.lists(st.integers(0, 5), min_size=len(sizes), max_size=len(sizes))))
    tensor = meta(dtype, sizes, strides, storage_offset=data.draw(st.integers(0, 4)))
    item = DTYPES[dtype].item_bytes
    expected = b""
    fits = True
    for index in itertools.product(*map(range, sizes)):
        at = (tensor.storage_offset + sum(i * s for i, s in zip(index, strides, strict=True))) * item
        fits = fits and at + item <= len(storage)
        expected += storage[at : at + item]
    if not fits:
        with pytest.raises(DecodeError):
            logical_bytes(tensor, storage)
        return
    assert logical_bytes(tensor, storage) == expected
    count = min(5, math.prod(sizes))
    if dtype == "float32":
        values = first_values(tensor, storage, 5)
        assert repr(values) == repr(list(struct.unpack(f"<{count}f", expected[: count * 4])))
    if dtype.startswith("complex"):
        twice = structs.replace(tensor, conj=True, neg=True)
        half = item // 2
        flipped = bytearray(expected)
        for i in range(0, len(expected), item):  # -(conj(a + bi)) = -a + bi
            flipped[i + half - 1] ^= 0x80
        assert logical_bytes(twice, storage) == flipped

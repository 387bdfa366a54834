"""Elements one by one, and what all come to: against torch and numpy, and against all elements at once."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rpcinspect.equality import elements as blocks
from rpcinspect.equality.elements import Tensors
from rpcinspect.errors import DecodeError
from rpcinspect.rpc.dtypes import DTYPES
from rpcinspect.rpc.tensor import TensorMeta
from rpcinspect.rpc.tensor_values import first_values
from rpcinspect.run.elements import bins_of, elements_of, statistics_of
from rpcinspect.run.run import open_run
from tests.equality.builders import in_memory
from tests.equality.test_elements import DATA, holed, strided
from tests.places import recorded

SMALL = [
    *("quint4x2", "quint2x4", "bits1x8", "float8_e4m3fn", "float4_e2m1fn_x2"),
    *("int4", "uint4", "bool", "bfloat16", "qint32"),
]


@given(meta=strided(), start=st.integers(0, 70), count=st.integers(0, 9))
def test_some_elements_are_those_of_all(meta: TensorMeta, start: int, count: int) -> None:
    all_of_them = first_values(meta, DATA, math.prod(meta.sizes))
    found = elements_of(Tensors((meta,), (in_memory(DATA),)), meta, start, count)
    assert repr(found) == repr(all_of_them[start : start + count])


@pytest.mark.parametrize("dtype", SMALL)
def test_elements_that_share_bytes(dtype: str) -> None:
    row = DTYPES[dtype]
    data = bytes(range(0, 240, 5))
    numel = len(data) // row.item_bytes * row.values_per_byte - 3
    meta = TensorMeta(dtype=dtype, sizes=(numel,), strides=(1,), storage=0)
    tensors = Tensors((meta,), (in_memory(data),))
    expected = first_values(meta, data, numel)
    assert repr([elements_of(tensors, meta, at, 1)[0] for at in range(numel)]) == repr(expected)


@given(
    meta=strided(),
    holes=st.lists(st.integers(0, len(DATA)), max_size=6, unique=True).map(sorted),
)
def test_what_was_not_captured_is_none(meta: TensorMeta, holes: list[int]) -> None:
    pairs = list(zip(holes[::2], holes[1::2], strict=False))
    found = elements_of(Tensors((meta,), (holed(DATA, *pairs),)), meta, 0, math.prod(meta.sizes))
    item = DTYPES[meta.dtype].item_bytes
    place = np.arange(len(DATA) // item)[meta.storage_offset :]
    view = np.lib.stride_tricks.as_strided(place, meta.sizes, [8 * s for s in meta.strides])
    gone = {at for low, high in pairs for at in range(low, high)}
    lost = [bool(gone & set(range(at * item, at * item + item))) for at in view.ravel().tolist()]
    assert [value is None for value in found] == lost


@given(meta=strided(), block=st.integers(1, 9))
def test_statistics_do_not_depend_on_blocks(meta: TensorMeta, block: int) -> None:
    tensors = Tensors((meta,), (in_memory(DATA),))
    whole = statistics_of(tensors, meta)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_ELEMENTS", block)
        found = statistics_of(tensors, meta)
        bins = bins_of(tensors, meta, found, 7)
    assert (found.mean is None) == (whole.mean is None)
    if whole.mean is not None:
        assert found.mean == pytest.approx(whole.mean, rel=1e-9, abs=1e-9 * whole.norm)
        assert found.norm == pytest.approx(whole.norm, rel=1e-9)
    for name in ("count", "nan", "infinite", "zero", "minimum", "maximum"):
        assert getattr(found, name) == getattr(whole, name)
    if bins is None:
        assert whole.minimum is None or not math.isfinite(whole.maximum - whole.minimum)
    else:
        assert sum(bins.counts) == whole.count - whole.nan - whole.infinite


@pytest.mark.filterwarnings("ignore:ComplexHalf support")
def test_all_types_come_to_what_torch_says(repo: Path) -> None:
    """Also those that torch has no statistics for, as far as it turns them into floats."""
    seen = set()
    with open_run(str(repo / "captures" / "dtype_zoo.pcap.gz")) as run:
        for index in range(len(run)):
            for tensor in run.message(index).tensors:
                kind = DTYPES[tensor.dtype].kind
                if kind in ("quantized", "bits") or tensor.meta.storage is None:
                    continue
                made = tensor.torch()
                if tensor.dtype == "float4_e2m1fn_x2":
                    continue
                flat = made.to(torch.complex128).abs() if made.is_complex() else made.to(torch.float64)
                flat = flat.reshape(-1)
                told = tensor.statistics()
                finite = flat[flat.isfinite()]
                assert (told.count, told.nan) == (flat.numel(), int(flat.isnan().sum()))
                assert (told.infinite, told.zero) == (int(flat.isinf().sum()), int((flat == 0).sum()))
                if not finite.numel():
                    assert told.minimum is told.norm is None
                    continue
                assert told.minimum == pytest.approx(finite.min().item(), rel=1e-12)
                assert told.maximum == pytest.approx(finite.max().item(), rel=1e-12)
                if abs(told.maximum) < 1e150:
                    assert told.norm == pytest.approx(finite.norm().item(), rel=1e-9)
                seen.add(tensor.dtype)
    assert len(seen) > 15


def test_histograms_are_torchs() -> None:
    checked = 0
    with open_run(str(recorded("reports/job/nan.pcap"))) as run:
        for index in range(len(run)):
            for tensor in run.message(index).tensors:
                if tensor.dtype != "float32" or not tensor.complete:
                    continue
                made = tensor.torch().double().reshape(-1)
                made = made[made.isfinite()]
                found = tensor.histogram(tensor.statistics(), 10)
                if not made.numel():
                    assert found is None
                    continue
                assert found is not None
                counts, edges = torch.histogram(made, len(found.counts))
                if not found.single:
                    assert found.counts == tuple(counts.int().tolist())
                    assert found.edges == pytest.approx(edges.tolist())
                    checked += 1
    assert checked > 10


def test_few_integers_have_a_range_each() -> None:
    data = bytes([1, 3, 3, 0, 1, 1])
    meta = TensorMeta(dtype="uint8", sizes=(6,), strides=(1,), storage=0)
    tensors = Tensors((meta,), (in_memory(data),))
    found = bins_of(tensors, meta, statistics_of(tensors, meta), 12)
    assert found is not None
    assert found.single
    assert (found.edges[:-1], found.counts) == ((0, 1, 2, 3), (1, 3, 0, 2))


def test_elements_outside_of_the_storage() -> None:
    meta = TensorMeta(dtype="float32", sizes=(9,), strides=(1,), storage=0)
    with pytest.raises(DecodeError, match="element 8 is asked"):
        elements_of(Tensors((meta,), (in_memory(bytes(32)),)), meta, 0, 1)


def test_the_elements_of_a_cut_tensor() -> None:
    known = unknown = 0
    with open_run(str(recorded("torch/snap300.pcap"))) as run:
        for index in range(len(run)):
            for tensor in run.message(index).tensors:
                if tensor.complete or tensor.meta.storage is None:
                    continue
                found = tensor.elements(0, 1 << 20)
                unknown += found.count(None)
                known += len(found) - found.count(None)
                with pytest.raises(DecodeError, match="not captured"):
                    tensor.statistics()
    assert known
    assert unknown

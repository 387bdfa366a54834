"""NaN and infinities are counted by their bits as NumPy and torch count them."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rpcinspect.checks.nonfinite_search import FIRST_BYTES, WORDS, NonfiniteSearch, count_nonfinite
from rpcinspect.rpc.command_codec import message_type_of
from rpcinspect.run.run import open_run
from tests.places import recorded


@given(
    st.sampled_from(["float64", "float32", "float16", "complex128", "complex64"]),
    st.lists(st.sampled_from([0.0, -0.0, 1.5, -2.0, float("nan"), float("inf"), float("-inf")]), max_size=40),
)
def test_numbers_are_counted_as_numpy_counts_them(dtype: str, values: list[float]) -> None:
    array = np.asarray(values, dtype)
    found = count_nonfinite(array.tobytes(), dtype, 3)
    nan, infinite = np.isnan(array), np.isinf(array) & ~np.isnan(array)
    if not nan.any() and not infinite.any():
        assert found is None
        return
    assert found is not None
    assert (found.nan, found.infinite) == (3 * np.count_nonzero(nan), 3 * np.count_nonzero(infinite))
    assert found.elements == 3 * len(values)


def test_the_first_bytes_are_whole_elements() -> None:
    assert FIRST_BYTES % 16 == 0


@pytest.mark.filterwarnings("ignore::UserWarning")  # of types that torch finds experimental
@pytest.mark.parametrize("dtype", sorted(name for name in WORDS if not name.startswith("complex")))
def test_every_code_counts_as_torch_has_it(dtype: str) -> None:
    """Of floats of one byte all codes, of others all that begin like them."""
    torch = pytest.importorskip("torch")
    if not hasattr(torch, dtype):
        pytest.skip(f"torch {torch.__version__} has no {dtype}")
    for code in range(256):
        raw = bytes(WORDS[dtype].itemsize - 1) + bytes([code])
        if WORDS[dtype].itemsize == 2:
            raw = bytes([0x80]) + bytes([code])
        value: Any = torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(getattr(torch, dtype)).double()
        found = count_nonfinite(raw, dtype, 1)
        told = (0, 0) if found is None else (found.nan, found.infinite)
        assert told == (int(value.isnan()), int(value.isinf())), raw.hex()


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", ["reports/job/nan.pcap", "dtype_zoo.pcap"])
def test_messages_as_torch_finds_them(name: str) -> None:
    pytest.importorskip("torch")
    with open_run(str(recorded(name))) as run:
        search = NonfiniteSearch(run.bytes)
        for index, record in enumerate(run.messages):
            search.feed(record, message_type_of(record.like.command))
            metas = record.rpc.tensors
            if not metas or any(meta.layout != "strided" or meta.dtype not in WORDS for meta in metas):
                continue
            counts = []
            for number, one in enumerate(tensor.torch() for tensor in run.message(index).tensors):
                nan = one.isnan() if one.is_complex() else one.double().isnan()
                infinite = one.isinf() if one.is_complex() else one.double().isinf()
                if (nan | infinite).any():
                    counts.append((number, int(nan.sum()), int((infinite & ~nan).sum())))
            search.settle()
            found = search.found.get(record.row)
            if found is not None:
                tensor, its = found
                assert (tensor, its.nan, its.infinite) == counts[0]
            else:
                assert not counts or record.row in search.masks


def test_the_tensors_of_one_message_wait_in_bounded_memory() -> None:
    """A table may name the same few bytes as often as it likes."""
    with open_run(str(recorded("param_detach.pcap"))) as run:
        record = next(one for one in run.messages if one.rpc.tensors and one.rpc.tensors[0].dtype in WORDS)
        many = replace(
            record, _rpc=replace(record.rpc, tensors=record.rpc.tensors[:1] * 50_000), pattern=None
        )
        search = NonfiniteSearch(run.bytes)
        tracemalloc.start()
        try:
            search.feed(many, message_type_of(many.like.command))
            assert tracemalloc.get_traced_memory()[1] < 1 << 20
        finally:
            tracemalloc.stop()

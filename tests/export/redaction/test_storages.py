"""Bytes of tensors: of the same kind, and with nothing of what they were."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcinspect.export.redaction import storages
from rpcinspect.export.redaction.pseudonyms import Pseudonyms
from rpcinspect.export.redaction.storages import FLOATS, redact_storage
from rpcinspect.rpc.dtypes import DTYPES, element_value
from rpcinspect.rpc.tensor import TensorMeta

WORDS = Pseudonyms(b"key")


def meta(dtype: str, *sizes: int, storage: int = 0, **fields: object) -> TensorMeta:
    strides = tuple(prod([max(size, 1) for size in sizes[dim + 1 :]]) for dim in range(len(sizes)))
    known = {"dtype": dtype, "sizes": sizes, "strides": strides, "storage": storage}
    return TensorMeta(**(known | fields))  # type: ignore[arg-type]


def made(array: np.ndarray, dtype: str | None = None) -> np.ndarray:
    one = meta(dtype or array.dtype.name, array.size)
    return np.frombuffer(redact_storage(array.tobytes(), [one], WORDS, 0), array.dtype)


def test_zeros_infinities_and_nans_stay_where_they_are() -> None:
    for name in ("float16", "float32", "float64"):
        x = np.array(
            [0.0, -0.0, np.inf, -np.inf, np.nan, 1.5, -2.5, 3e-5, 1e3, 1e-45 if name == "float32" else 0.1]
        )
        x = x.astype(name)
        y = made(x)
        assert (np.isnan(y) == np.isnan(x)).all()
        assert (np.isinf(y) == np.isinf(x)).all()
        assert ((y == 0) == (x == 0)).all()
        assert y[:4].tobytes() == x[:4].tobytes()
        assert not set(y[5:9].tolist()) & set(x[5:9].tolist())


def test_magnitudes_are_those_of_the_whole() -> None:
    x = np.random.default_rng(1).normal(scale=1e-3, size=10_000).astype(np.float32)
    y = made(x)
    assert 0.9 < np.abs(y).mean() / np.abs(x).mean() < 1.1
    assert abs(np.corrcoef(x, y)[0, 1]) < 0.05
    assert abs(np.corrcoef(np.abs(x), np.abs(y))[0, 1]) < 0.05
    assert 0.45 < (y < 0).mean() < 0.55


@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_every_dtype(dtype: str) -> None:
    size = DTYPES[dtype].item_bytes
    data = bytes(range(256)) * size
    one = meta(dtype, len(data) // size)
    out = redact_storage(data, [one], WORDS, 0)
    assert len(out) == len(data)
    assert out != data
    assert redact_storage(data, [one], WORDS, 0) == out
    assert redact_storage(bytes(64 * size), [meta(dtype, 64)], WORDS, 0) == bytes(64 * size)
    if DTYPES[dtype].kind == "float" and dtype in FLOATS:
        for at in range(0, len(data), size):
            old, new = (element_value(DTYPES[dtype], part[at : at + size]) for part in (data, out))
            assert isinstance(old, float)
            assert isinstance(new, float)
            assert (old != old) == (new != new)
            assert (old == 0) == (new == 0)
            assert np.isinf(old) == np.isinf(new)


def test_integers_are_as_wide_as_the_widest() -> None:
    x = np.array([5, 1000, 0, 77, 3], np.int64)
    y = made(x)
    assert y.min() >= 0
    assert y.max() < 1024
    assert (y != x).any()
    y = made(np.array([-5, 1000, 0, 77, 3] * 20, np.int32))
    assert y.min() < 0
    assert y.max() < 1024
    assert set(made(np.array([1, 0, 1, 1, 0] * 10, np.uint8), "bool").tolist()) == {0, 1}


def test_letters_in_numbers_are_no_cipher() -> None:
    """The same letter comes out as another one each time, so that nothing can be counted."""
    for dtype in ("uint8", "int64", "float32"):
        x = np.array(list(b"eeeeeeeeeeeeeeee hello eeeeeeeeeeeeeeee"), dtype=dtype)
        assert len(set(made(x)[:16].tolist())) > 10


def test_equal_storages_are_equal_and_one_other_element_makes_all_other() -> None:
    x = np.arange(1000, dtype=np.float32)
    again = x.copy()
    assert (made(x) == made(again)).all()
    again[500] += 1
    assert (made(x) == made(again)).mean() < 0.01


def test_bytes_that_no_tensor_shows_are_gone() -> None:
    x = np.arange(1, 9, dtype=np.float32)
    view = meta("float32", 2, strides=(2,), storage_offset=1)
    data = redact_storage(x.tobytes(), [view], WORDS, 0)
    y = np.frombuffer(data, np.float32)
    assert [n for n in range(8) if y[n]] == [1, 3]
    other = x.copy()
    other[[0, 2, 7]] = 99
    assert redact_storage(other.tobytes(), [view], WORDS, 0) == data
    assert redact_storage(x.tobytes(), [], WORDS, 0) != x.tobytes()


def test_indices_of_sparse_tensors_stay_indices() -> None:
    sizes = (50, 40)
    parts = (("indices", 1), ("values", 2))
    metas = [
        TensorMeta(
            dtype="float32",
            sizes=sizes,
            strides=(),
            layout="sparse_coo",
            parts=parts,
        ),
        meta("int64", 2, 30, storage=0, part_of=0),
        meta("float32", 30, storage=1, part_of=0),
    ]
    rng = np.random.default_rng(0)
    flat = np.sort(rng.choice(2000, 30, replace=False))
    indices = np.array(np.unravel_index(flat, sizes), np.int64)
    out = np.frombuffer(redact_storage(indices.tobytes(), metas, WORDS, 0), np.int64).reshape(2, 30)
    assert (out[0] < 50).all()
    assert (out[1] < 40).all()
    made_flat = out[0] * 40 + out[1]
    assert (np.diff(made_flat) > 0).all()
    assert set(made_flat.tolist()) != set(flat.tolist())


@given(
    st.binary(min_size=1, max_size=64), st.sampled_from(sorted(DTYPES)), st.integers(0, 9), st.integers(0, 9)
)
def test_any_storage_and_any_view(data: bytes, dtype: str, size: int, step: int) -> None:
    one = meta(dtype, size, strides=(step,), storage_offset=step)
    assert len(redact_storage(data, [one], WORDS, 0)) == len(data)


def test_large_storages_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storages, "BLOCK", 64)
    x = np.arange(1, 101, dtype=np.float64)
    y = made(x)
    assert len(y) == 100
    assert (y != 0).all()

"""NaN and infinities are counted by their bits as NumPy counts them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rpcinspect.checks.nonfinite import FIRST_BYTES
from rpcinspect.checks.nonfinite_count import LAYOUTS, count_nonfinite


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


def test_bfloat16() -> None:
    """The upper halves of float32."""
    array = np.asarray([1.0, float("nan"), float("-inf"), 3e38], np.float32)
    found = count_nonfinite((array.view(np.uint32) >> 16).astype(np.uint16).tobytes(), "bfloat16", 1)
    assert found is not None
    assert (found.nan, found.infinite, found.elements) == (1, 1, 4)
    assert set(LAYOUTS) >= {"bfloat16"}
    assert FIRST_BYTES % 16 == 0  # whole elements of every type

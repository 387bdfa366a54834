"""Errors by their size, against plain counting."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rpcinspect.equality.difference import Histogram
from rpcinspect.equality.element_stats import Tally
from rpcinspect.equality.elements import ElementBlock
from rpcinspect.equality.rules import Rules


def counted(*blocks: list[float]) -> Histogram:
    found = Histogram()
    for block in blocks:
        found = found.adding(np.array(block, np.float64))
    return found


def test_a_bin_reaches_from_a_power_of_two_to_the_next() -> None:
    assert counted([1.0, 1.5, 2.0, 3.999, 4.0, 0.25, math.nextafter(0.25, 0)]).bins == (
        (-3, 1),
        (-2, 1),
        (0, 2),
        (1, 2),
        (2, 1),
    )
    assert counted([5e-324, 1.7e308]).bins == ((-1074, 1), (1023, 1))


def test_errors_without_a_size() -> None:
    found = counted([0.0, math.inf, math.nan, math.nan, 8.0])
    assert (found.zero, found.infinite, found.undefined, found.bins) == (1, 1, 2, ((3, 1),))
    assert found.total == 5
    assert counted().total == 0


def test_integers() -> None:
    counts = Histogram()
    counts = counts.adding(np.array([1, 2, 3, 255], np.uint8))
    counts = counts.adding(np.array([1 << 63], np.uint64))
    assert counts.bins == ((0, 1), (1, 2), (7, 1), (63, 1))


@given(st.lists(st.floats(0, exclude_min=True, allow_infinity=False)), st.integers(0, 100))
def test_against_exact_arithmetic(errors: list[float], cut: int) -> None:
    def size(error: float) -> int:
        top, bottom = error.as_integer_ratio()  # bottom is a power of two
        return top.bit_length() - bottom.bit_length()

    found = counted(errors[:cut], errors[cut:])
    assert dict(found.bins) == Counter(map(size, errors))
    assert found.total == len(errors)


def test_a_tally_counts_what_differs_and_nothing_else() -> None:
    one = np.array([1.0, 2.0, 3.0, 0.0, 5.0, math.nan], "<f4").view("<u4")[:, None]
    other = np.array([1.0, 2.5, 3.25, -0.0, math.inf, 1.0], "<f4").view("<u4")[:, None]
    tally = Tally("float32", 6, Rules())
    for low, high in ((0, 3), (3, 6)):
        tally.add(ElementBlock(low, one[low:high], None), ElementBlock(low, other[low:high], None))
    elements = tally.differences("t")[0].elements
    assert elements is not None
    assert elements.histogram == Histogram(bins=((-2, 1), (-1, 1)), zero=1, infinite=1, undefined=1)
    assert elements.histogram.total == elements.differing


def test_plain_bits_have_no_errors() -> None:
    tally = Tally("bool", 1, Rules())
    tally.add(ElementBlock(0, np.array([[0]], "u1"), None), ElementBlock(0, np.array([[1]], "u1"), None))
    elements = tally.differences("t")[0].elements
    assert elements is not None
    assert elements.histogram is None

"""Errors of elements, by their size: how many lie between one power of two and the next.

In: arrays of absolute errors, block by block. Out: a `Histogram`, which has as many numbers as there are
sizes, however many errors there were. Powers of two, since they are exact in every float type; 2^10 is about
10^3.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct


class Histogram(Struct, frozen=True, kw_only=True):
    """Sizes of errors."""

    bins: tuple[tuple[int, int], ...] = ()
    """(n, how many are from 2^n up to, but not, 2^(n+1)); those that occur, ascending."""
    zero: int = 0
    """Elements of other bits and the same value: −0 against 0."""
    infinite: int = 0
    undefined: int = 0
    """Where one of the two is NaN, or both are."""

    @property
    def total(self) -> int:
        """All of them."""
        return sum(count for _, count in self.bins) + self.zero + self.infinite + self.undefined

    def adding(self, errors: npt.NDArray[Any]) -> Histogram:
        """With more errors: floats or unsigned integers, none below 0; integers beyond 2^53 are rounded."""
        values = errors.astype(np.float64, copy=False)
        nan, infinite, zero = np.isnan(values), np.isinf(values), values == 0
        sizes = Counter(dict(self.bins))
        _, exponents = np.frexp(values[~(nan | infinite | zero)])  # of numbers from 0.5 up to 1 it is 0
        for exponent, count in zip(*np.unique(exponents, return_counts=True), strict=True):
            sizes[int(exponent) - 1] += int(count)
        return Histogram(
            bins=tuple(sorted(sizes.items())),
            zero=self.zero + int(np.count_nonzero(zero)),
            infinite=self.infinite + int(np.count_nonzero(infinite)),
            undefined=self.undefined + int(np.count_nonzero(nan)),
        )

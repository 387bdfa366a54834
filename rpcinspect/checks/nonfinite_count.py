"""How many elements of a tensor are NaN or infinite, by their bits.

In: little-endian bytes of elements and their type. Out: the counts, or None where all are finite. Nothing is
converted to another float type.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from rpcinspect.rpc.dtypes import DTYPES


class NonfiniteCount(Struct, frozen=True):
    """What a tensor holds."""

    nan: int
    infinite: int
    elements: int


LAYOUTS: dict[str, tuple[str, int]] = {
    "float64": ("<u8", 0x7FF0_0000_0000_0000),
    "float32": ("<u4", 0x7F80_0000),
    "float16": ("<u2", 0x7C00),
    "bfloat16": ("<u2", 0x7F80),
    "complex128": ("<u8", 0x7FF0_0000_0000_0000),
    "complex64": ("<u4", 0x7F80_0000),
    "complex32": ("<u2", 0x7C00),
}
"""Type → its words, and the bits of an infinity: what is above, without the sign, is NaN."""


_READ = {
    name: (np.dtype(words), int(words[-1]), np.dtype(words).type(infinity))
    for name, (words, infinity) in LAYOUTS.items()
}
"""The same as numpy takes it, which would work it out for each of many small tensors."""

NOT_READ = frozenset(name for name, dtype in DTYPES.items() if dtype.kind == "float") - LAYOUTS.keys()
"""Types that may hold NaN and are not looked at."""


def word_bytes(dtype: str) -> int:
    """Returns the bytes of one float of a type."""
    return _READ[dtype][1]


def count_nonfinite(data: bytes, dtype: str, times: int) -> NonfiniteCount | None:
    """Returns what elements hold; None if all are finite."""
    words, size, infinity = _READ[dtype]
    codes = np.frombuffer(data, words, len(data) // size)
    if not len(codes) or np.maximum.reduce(codes & infinity) < infinity:
        return None
    magnitudes = codes & codes.dtype.type((1 << (8 * codes.dtype.itemsize - 1)) - 1)
    nan, infinite = magnitudes > infinity, magnitudes == infinity
    if dtype.startswith("complex"):
        pairs = len(codes) // 2
        nan, infinite = (flags[: 2 * pairs].reshape(-1, 2).any(axis=1) for flags in (nan, infinite))
    count = int(np.count_nonzero(nan))
    also = int(np.count_nonzero(infinite & ~nan))
    return NonfiniteCount(count * times, also * times, count_elements(len(data), dtype) * times)


def count_elements(length: int, dtype: str) -> int:
    """Returns how many elements lie in so many bytes."""
    return length // (word_bytes(dtype) * (1 + dtype.startswith("complex")))

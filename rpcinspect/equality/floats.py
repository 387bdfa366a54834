"""Floats as bit patterns: which are NaN or zero, how many steps lie between two, and their exact values.

In: numpy arrays of unsigned integers, the raw bits of elements (`codes`). Out: arrays of the same length.
No bit passes through another float type: equality and steps are counted on the codes, and values, which are
for measuring errors only, come from exact conversions to float64.
"""

from __future__ import annotations

from functools import cache, cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from rpcinspect.rpc.dtypes import DTYPES, SMALL_FLOATS, element_value

Codes: TypeAlias = npt.NDArray[Any]
"""Unsigned integers of the width of one float."""
Flags: TypeAlias = npt.NDArray[np.bool_]


class FloatLayout(Struct, frozen=True, dict=True):
    """Where a float type has its sign, infinity and NaN."""

    name: str
    """Of the real type, a key of `DTYPES`; float4 is the half of a byte of float4_e2m1fn_x2."""
    bits: int
    first_nan: int | None
    """The lowest magnitude that is NaN, as are all above it; None: no NaN there."""
    has_infinity: bool = False
    """The magnitude below `first_nan` is infinity."""
    signed: bool = True
    fnuz: bool = False
    """What would be −0 is the one NaN."""

    def magnitude(self, codes: Codes) -> Codes:
        """The bits below the sign."""
        return codes & self._mask if self.signed else codes

    def negative(self, codes: Codes) -> Flags:
        """Whether the sign is set."""
        return np.asarray(codes > self._mask) if self.signed else np.zeros(codes.shape, np.bool_)

    def is_nan(self, codes: Codes) -> Flags:
        """Which codes are NaN, whatever its payload."""
        if self.fnuz:
            return np.asarray(codes == self._mask + 1)
        if self.first_nan is None:
            return np.zeros(codes.shape, np.bool_)
        return np.asarray(self.magnitude(codes) >= self.first_nan)

    def is_infinite(self, codes: Codes) -> Flags:
        """Returns which codes are infinities."""
        if not self.has_infinity or self.first_nan is None:
            return np.zeros(codes.shape, np.bool_)
        return np.asarray(self.magnitude(codes) == self.first_nan - 1)

    def all_finite(self, codes: Codes) -> bool:
        """Returns whether no code is NaN or an infinity, with one look at each."""
        if self.fnuz or self.first_nan is None or not codes.size:
            return not self.is_nan(codes).any()
        return bool(np.maximum.reduce(self.magnitude(codes), axis=None) < self.first_nan - self.has_infinity)

    def steps(self, a: Codes, b: Codes) -> npt.NDArray[np.uint64]:
        """Returns how many representable numbers lie from `a` to `b`; −0 and 0 are one number."""
        wide_a, wide_b = (self.magnitude(codes).astype(np.uint64) for codes in (a, b))
        apart = np.maximum(wide_a, wide_b) - np.minimum(wide_a, wide_b)
        return np.where(self.negative(a) == self.negative(b), apart, wide_a + wide_b)

    def values(self, codes: Codes) -> npt.NDArray[np.float64]:
        """Exact values; NaNs lose their payload."""
        if self.name in _NATIVE:
            with np.errstate(invalid="ignore"):
                return np.ascontiguousarray(codes).view(_NATIVE[self.name]).astype(np.float64)
        if self.name == "bfloat16":
            wide: Codes = codes.astype("<u4") << np.uint32(16)
            with np.errstate(invalid="ignore"):
                return wide.view("<f4").astype(np.float64)
        values: npt.NDArray[np.float64] = _table(self.name)[codes]
        return values

    @cached_property
    def _mask(self) -> np.unsignedinteger[Any]:
        """All bits below the sign, as wide as codes are."""
        word: np.unsignedinteger[Any] = np.dtype(f"<u{max(1, self.bits // 8)}").type((1 << self.bits - 1) - 1)
        return word


@cache
def _table(name: str) -> npt.NDArray[np.float64]:
    """The values of all codes of a type of one byte or less."""
    if name == "float4":
        pairs = [element_value(DTYPES["float4_e2m1fn_x2"], bytes([code])) for code in range(16)]
        return np.array([pair[0] for pair in pairs if isinstance(pair, tuple)])
    dtype = DTYPES[name]
    values = [element_value(dtype, bytes([code])) for code in range(256)]
    return np.array([value for value in values if isinstance(value, float)])


_NATIVE = {"float16": "<f2", "float32": "<f4", "float64": "<f8"}

_HALF = FloatLayout("float16", 16, 0x7C01, has_infinity=True)
_SINGLE = FloatLayout("float32", 32, 0x7F800001, has_infinity=True)
_DOUBLE = FloatLayout("float64", 64, 0x7FF0000000000001, has_infinity=True)

FLOATS: dict[str, FloatLayout] = {
    "float16": _HALF,
    "float32": _SINGLE,
    "float64": _DOUBLE,
    "complex32": _HALF,
    "complex64": _SINGLE,
    "complex128": _DOUBLE,
    "bfloat16": FloatLayout("bfloat16", 16, 0x7F81, has_infinity=True),
    "float8_e5m2": FloatLayout("float8_e5m2", 8, 0x7D, has_infinity=True),
    **{name: FloatLayout(name, 8, small.nan_code, fnuz=small.fnuz) for name, small in SMALL_FLOATS.items()},
    "float8_e8m0fnu": FloatLayout("float8_e8m0fnu", 8, 0xFF, signed=False),
    "float4_e2m1fn_x2": FloatLayout("float4", 4, None),
}
"""By dtype. Complex numbers and float4_e2m1fn_x2 have two floats in an element, lowest bits first."""

"""Elements of two tensors, block by block: how many differ, in what way, how far, and where.

In: blocks of raw bits of elements of one dtype. Out: one `Difference` for all elements that differ and one
for those that can't be compared. Elements differ if their bits do; values are looked at only to say how.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from rpcinspect.equality.difference import Difference, Elements, Histogram, JsonValue, to_json
from rpcinspect.equality.elements import ElementBlock
from rpcinspect.equality.floats import FLOATS, Codes, FloatLayout
from rpcinspect.equality.rules import Rules, Tolerance
from rpcinspect.rpc.dtypes import DTYPES, element_value
from rpcinspect.session.words import counted

KINDS = ("zero-sign", "nan-payload", "ulp", "value")
"""From the least to the most; an element is of one of them, a complex one of the worst of its parts."""
ZERO_SIGN, NAN_PAYLOAD, ULP, VALUE = range(4)


class _Sorted(Struct, frozen=True):
    """Elements that differ: one entry of each array for each."""

    kind: npt.NDArray[np.int8]
    covered: npt.NDArray[np.bool_]
    """By the tolerance."""
    error: npt.NDArray[Any] | None
    """Absolute; NaN where it is not defined."""
    relative: npt.NDArray[np.float64] | None
    steps: npt.NDArray[np.uint64] | None
    """Between finite floats, else 0."""
    zero: tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]] | None = None
    """Of floats: what is 0 in the first only, and in the second only."""


class Tally(Struct):
    """Counts how elements differ, over all blocks of a pair of tensors."""

    dtype: str
    numel: int
    rules: Rules
    differing: int = 0
    beyond: int = 0
    unknown: int = 0
    first: int = -1
    first_beyond: int = -1
    first_unknown: int = -1
    half_known: bool = False
    """Of some element that is unknown, one of the two has all bytes."""
    worst: int | None = None
    max_abs: int | float | None = None
    max_rel: float | None = None
    max_ulp: int | None = None
    zeros: tuple[int, int] = (0, 0)
    """Floats that are 0 in the first only, and in the second only."""
    errors: Histogram | None = None
    """None as long as no error is defined."""
    kinds: list[int] = field(default_factory=lambda: [0] * len(KINDS))
    beyond_kinds: list[int] = field(default_factory=lambda: [0] * len(KINDS))
    samples: dict[int, tuple[Codes, Codes]] = field(default_factory=dict)
    """Codes of elements that are shown, by their number."""

    def add(self, a: ElementBlock, b: ElementBlock) -> None:
        """Counts one block of each tensor; both have the same place and length."""
        differs = (a.codes != b.codes).any(axis=1)
        unknown = _either(a.unknown, b.unknown)
        if unknown is not None:
            self.unknown += int(np.count_nonzero(unknown))
            if self.first_unknown < 0 and unknown.any():
                self.first_unknown = a.start + int(unknown.argmax())
            differs &= ~unknown
            self.half_known |= a.unknown is None or b.unknown is None or bool((a.unknown ^ b.unknown).any())
        where = np.flatnonzero(differs)
        if where.size:
            self._add(a.start, where, a.codes, b.codes)

    def _add(self, start: int, where: npt.NDArray[Any], a: Codes, b: Codes) -> None:
        found = _sort(self.dtype, a[where], b[where], self.rules)
        dropped = [rank for rank, kind in enumerate(KINDS) if self.rules.ignores(kind)]
        if dropped:
            keep = ~np.isin(found.kind, dropped)
            where = where[keep]
            if not where.size:
                return
            found = _sort(self.dtype, a[where], b[where], self.rules)
        beyond = ~found.covered
        self.differing += int(where.size)
        self.beyond += int(np.count_nonzero(beyond))
        for rank in range(len(KINDS)):
            of_kind = found.kind == rank
            self.kinds[rank] += int(np.count_nonzero(of_kind))
            self.beyond_kinds[rank] += int(np.count_nonzero(of_kind & beyond))
        if self.first < 0:
            self.first = self._sample(start, int(where[0]), a, b)
        if self.first_beyond < 0 and beyond.any():
            self.first_beyond = self._sample(start, int(where[int(beyond.argmax())]), a, b)
        self._measure(start, where, found)

    def _sample(self, start: int, at: int, a: Codes, b: Codes) -> int:
        self.samples[start + at] = (a[at].copy(), b[at].copy())
        return start + at

    def _measure(self, start: int, where: npt.NDArray[Any], found: _Sorted) -> None:
        if found.error is not None:
            error = found.error
            self.errors = (self.errors or Histogram()).adding(error)
            usable = ~np.isnan(error) if error.dtype.kind == "f" else np.ones(error.shape, np.bool_)
            if usable.any():
                at = int(np.where(usable, error, error.dtype.type(0)).argmax())
                at = at if usable[at] else int(usable.argmax())
                largest = error[at].item()
                if self.max_abs is None or largest > self.max_abs:
                    self.max_abs, self.worst = largest, start + int(where[at])
        if found.relative is not None and not np.isnan(found.relative).all():
            self.max_rel = max(self.max_rel or 0.0, float(np.nanmax(found.relative)))
        if found.steps is not None and found.steps.any():
            self.max_ulp = max(self.max_ulp or 0, int(found.steps.max()))
        if found.zero is not None:
            a, b = (int(np.count_nonzero(zero)) for zero in found.zero)
            self.zeros = self.zeros[0] + a, self.zeros[1] + b

    def differences(self, path: str) -> list[Difference]:
        """The differences that were counted, under the path of the tensor."""
        out = []
        if self.differing:
            out.append(self._difference(path))
        if self.unknown:
            verb = "has" if self.unknown == 1 else "have"
            text = f"{self.unknown:,} of {counted(self.numel, 'element')} {verb} bytes that were not captured"
            place = f"{path}.elements[{self.first_unknown}]"
            out.append(Difference(code="unknown", path=place, text=text, both=not self.half_known))
        return out

    def _difference(self, path: str) -> Difference:
        ranks = self.beyond_kinds if self.beyond else self.kinds
        worst = max(rank for rank, count in enumerate(ranks) if count)
        at = self.first_beyond if self.beyond else self.first
        a, b = self.samples[at]
        elements = Elements(
            numel=self.numel,
            differing=self.differing,
            beyond=self.beyond,
            kinds=tuple((name, n) for name, n in zip(KINDS, self.kinds, strict=True) if n),
            first=self.first,
            worst=self.worst,
            max_abs=self.max_abs,
            max_rel=self.max_rel,
            max_ulp=self.max_ulp,
            mask=min(self.zeros) > 0 and sum(self.zeros) + self.kinds[ZERO_SIGN] == self.differing,
            histogram=self.errors,
        )
        return Difference(
            code=KINDS[worst],
            path=f"{path}.elements[{at}]",
            a_value=value_of(self.dtype, a),
            b_value=value_of(self.dtype, b),
            a_bits=bits_of(self.dtype, a),
            b_bits=bits_of(self.dtype, b),
            tolerated=not self.beyond,
            elements=elements,
        )


def compare_codes(dtype: str, a: Codes, b: Codes, path: str, rules: Rules) -> list[Difference]:
    """Elements that are here as a whole: raw bits, shape (elements, parts)."""
    tally = Tally(dtype, len(a), rules)
    tally.add(ElementBlock(0, a, None), ElementBlock(0, b, None))
    return tally.differences(path)


def element_of(dtype: str, codes: Codes) -> object:
    """Returns an element as bool, int, float or complex; a pair of float4 as a tuple."""
    row = DTYPES[dtype]
    if row.values_per_byte > 1:
        return int(codes[0])
    if dtype == "float4_e2m1fn_x2":
        return element_value(row, bytes([int(codes[0]) | int(codes[1]) << 4]))
    return element_value(row, codes.tobytes())


def elements_of(dtype: str, codes: Codes) -> list[object]:
    """Returns several, shape (elements, parts)."""
    row = DTYPES[dtype]
    if row.values_per_byte > 1 or dtype == "float4_e2m1fn_x2":
        return [element_of(dtype, code) for code in codes]
    raw, size = codes.tobytes(), row.item_bytes
    return [element_value(row, raw[at : at + size]) for at in range(0, len(raw), size)]


def value_of(dtype: str, codes: Codes) -> JsonValue:
    """Returns an element as JSON; complex numbers and pairs of float4 as lists of two."""
    value = element_of(dtype, codes)
    return [to_json(part) for part in value] if isinstance(value, tuple) else to_json(value)


def bits_of(dtype: str, codes: Codes) -> str:
    """Returns the bits of an element in hex, part by part."""
    digits = 1 if dtype == "float4_e2m1fn_x2" else 2 * codes.dtype.itemsize
    return " ".join(f"0x{int(code):0{digits}x}" for code in codes)


def _sort(dtype: str, a: Codes, b: Codes, rules: Rules) -> _Sorted:
    """What kind of difference each of these elements is; every one of them differs. Shapes: (n, parts)."""
    layout = FLOATS.get(dtype)
    if layout is not None:
        return _sort_floats(layout, a, b, rules.tolerance(dtype), rules.ulp)
    kind = np.full(len(a), VALUE, np.int8)
    covered = np.zeros(len(a), np.bool_)
    row = DTYPES[dtype]
    if row.kind in ("bool", "bits"):
        return _Sorted(kind, covered, None, None, None)
    signed = row.kind == "int" or dtype in ("qint8", "qint32")
    error, smaller = _int_errors(a[:, 0], b[:, 0], signed)
    with np.errstate(divide="ignore"):
        return _Sorted(kind, covered, error, error.astype(np.float64) / smaller, None)


def _int_errors(a: Codes, b: Codes, signed: bool) -> tuple[Codes, npt.NDArray[np.float64]]:
    """Returns the exact distances as unsigned integers, and the smaller of the two sizes."""
    plain_a, plain_b = (x.view(f"<i{x.dtype.itemsize}") if signed else x for x in (a, b))
    error = np.where(plain_a > plain_b, a - b, b - a)
    smaller = np.minimum(np.abs(plain_a.astype(np.float64)), np.abs(plain_b.astype(np.float64)))
    return error, smaller


def _sort_floats(layout: FloatLayout, a: Codes, b: Codes, tolerance: Tolerance | None, ulp: int) -> _Sorted:
    differs = a != b
    nan_a, nan_b = layout.is_nan(a), layout.is_nan(b)
    both_nan, any_nan = nan_a & nan_b, nan_a | nan_b
    zero_a, zero_b = layout.magnitude(a) == 0, layout.magnitude(b) == 0
    zeros = zero_a & zero_b & ~any_nan
    finite = ~(any_nan | layout.is_infinite(a) | layout.is_infinite(b))
    steps = np.where(finite & differs, layout.steps(a, b), np.uint64(0))
    kind = np.full(a.shape, VALUE, np.int8)
    kind[finite & (steps <= ulp)] = ULP
    kind[both_nan] = NAN_PAYLOAD
    kind[zeros] = ZERO_SIGN
    kind[~differs] = ZERO_SIGN
    with np.errstate(all="ignore"):
        value_a, value_b = layout.values(a), layout.values(b)
        smaller = np.minimum(np.abs(value_a), np.abs(value_b))
        error = np.where(differs & ~zeros, np.abs(value_a - value_b), 0.0)
        relative = np.where(error == 0, 0.0, error / smaller)
        if tolerance is None:
            covered = np.zeros(len(a), np.bool_)
        else:
            near = finite & (error <= tolerance.atol + tolerance.rtol * smaller)
            covered = (near | both_nan | zeros | ~differs).all(axis=1)
    one_zero = zero_a.all(axis=1) & ~zero_b.all(axis=1), zero_b.all(axis=1) & ~zero_a.all(axis=1)
    worst = kind.max(axis=1)
    return _Sorted(worst, covered, _largest(error), _largest(relative), steps.max(axis=1), one_zero)


def _largest(errors: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The largest over the parts of each element; NaN only if all are."""
    largest: npt.NDArray[np.float64] = np.fmax.reduce(errors, axis=1)
    return largest


def _either(a: npt.NDArray[np.bool_] | None, b: npt.NDArray[np.bool_] | None) -> npt.NDArray[np.bool_] | None:
    if a is None or b is None:
        return a if b is None else b
    return a | b

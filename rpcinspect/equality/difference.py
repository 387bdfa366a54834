"""What a comparison finds: a code of the contract, where, and the two values as JSON can hold them.

Of elements a `Difference` also says how far they differ, with a `Histogram` of the errors by powers of two,
which are exact in every float type (2^10 is about 10^3). `nature_of` guesses from the differences of two
results that should have been the same what kind of computing gives such ones; it says nothing of why.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import asdict

from rpcinspect.equality.rules import Rules
from rpcinspect.pickles.render import render
from rpcinspect.pickles.tree import Value


class Histogram(Struct, frozen=True, kw_only=True):
    """Counts of absolute errors by their size."""

    bins: tuple[tuple[int, int], ...] = ()
    """(n, how many are from 2^n up to, but not, 2^(n+1)); those that occur, ascending."""
    zero: int = 0
    """Elements of other bits and the same value: −0 against 0."""
    infinite: int = 0
    undefined: int = 0
    """Where one of the two is NaN, or both are."""

    @property
    def total(self) -> int:
        """How many errors were counted."""
        return sum(count for _, count in self.bins) + self.zero + self.infinite + self.undefined

    def adding(self, errors: npt.NDArray[Any]) -> Histogram:
        """Returns the histogram with more errors: floats or unsigned integers, none below 0; integers beyond
        2^53 are rounded."""
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


JsonValue: TypeAlias = Any
"""None, bool, int of 64 bits, finite float, str, or a list or dict of those."""

Verdict: TypeAlias = Literal["identical", "tolerance", "different"]

MAX_TEXT = 400


class Elements(Struct, frozen=True, kw_only=True):
    """How the elements of two tensors differ; numbers are over the elements that differ and no other."""

    numel: int
    """Elements of the tensor."""
    differing: int
    """Elements whose bits differ."""
    beyond: int
    """Of those, the ones that no tolerance covers; all of them where none is set."""
    kinds: tuple[tuple[str, int], ...]
    """How many there are of each of zero-sign, nan-payload, ulp, value; those that occur, in this order."""
    first: int
    """The first whose bits differ."""
    worst: int | None
    """The one with the largest absolute error."""
    max_abs: int | float | None
    """Largest absolute error, of parts of complex numbers; None where it is not defined (NaN, plain bits)."""
    max_rel: float | None
    """Largest |a − b| / min(|a|, |b|)."""
    max_ulp: int | None
    """Largest number of representable steps between two finite floats."""
    mask: bool = False
    """Of floats: every element that differs is 0 in one of the two tensors, or in both with another sign; and
    each of the two has zeros where the other has none."""
    histogram: Histogram | None = None
    """Of the absolute errors; None where they are not defined (plain bits)."""

    def as_json(self) -> dict[str, JsonValue]:
        """Returns the fields for the line of a difference, which has no room for a histogram."""
        out: dict[str, JsonValue] = asdict(self)
        del out["histogram"]
        for name in ("max_abs", "max_rel", "max_ulp"):
            out[name] = to_json(out[name])
        return {**out, "kinds": dict(self.kinds)}


class Difference(Struct, frozen=True, kw_only=True):
    """A difference between two messages."""

    code: str
    path: str
    """`tensors[0].elements[5]`, `args[1].lr`, `envelopes[0].context_id`; numbered as the first message is."""
    a_value: JsonValue = None
    b_value: JsonValue = None
    b_path: str | None = None
    """The place in the second message, if that is another one."""
    a_bits: str | None = None
    """Of elements: their bits in hex, which tell what values can't (NaN payloads)."""
    b_bits: str | None = None
    tolerated: bool = False
    """Within the tolerances of the rules."""
    elements: Elements | None = None
    """Of differences in tensors."""
    text: str | None = None
    """What else there is to say."""
    both: bool = False
    """Of `unknown`: neither message has these bytes, so that nothing is known of any difference."""

    def as_json(self) -> dict[str, JsonValue]:
        """The fields of the contract, then what applies of the others."""
        always, some = ("code", "path", "a_value", "b_value"), asdict(self)
        out = {name: value for name, value in some.items() if name in always or value not in (None, False)}
        if self.elements is not None:
            out["elements"] = self.elements.as_json()
        return out


def verdict(differences: Iterable[Difference], rules: Rules) -> Verdict:
    """`different` if anything counts that no tolerance covers, `tolerance` if something is covered."""
    found: Verdict = "identical"
    for difference in differences:
        if not rules.counts(difference.code) or rules.ignores(difference.code):
            continue
        if not difference.tolerated:
            return "different"
        found = "tolerance"
    return found


def to_json(value: Value) -> JsonValue:
    """A captured value: plain ones as they are, all others as text; nothing that JSON can't hold.

    −0.0 stays −0.0; complex numbers are lists of two; text is shortened.
    """
    kind = type(value)
    if value is None or kind is bool:
        return value
    if kind is int:
        return value if -1 << 63 <= value < 1 << 64 else render(value)
    if kind is float:
        return value if math.isfinite(value) else str(value)
    if kind is complex:
        return [to_json(value.real), to_json(value.imag)]
    if kind is str:
        return plain_text(value)
    return plain_text(render(value, max_chars=MAX_TEXT))


def plain_text(value: str) -> str:
    """Captured text as JSON can hold it: without halves of characters, and not too long."""
    text = value.encode("utf-8", "backslashreplace").decode("utf-8")
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"


Nature: TypeAlias = Literal["rounding", "mask", "other"]
"""`rounding`: what adding in another order does. `mask`: zeros at other places, all else equal, as dropout
with other random numbers does."""

ROUNDED_RELATIVE = 1e-3
ROUNDED_STEPS = 1 << 13
"""Errors up to both come from adding in another order, in most programs: 13 of the bits of a result."""
ROUNDED_NUMBER = 1e-6
"""Tolerance of a single Python float, which mostly was a float32."""


def nature_of(differences: Sequence[Difference]) -> Nature:
    """What kind of computing gives all these differences; `other` if one of them is nothing else."""
    found = {_one(difference) for difference in differences}
    if not found or "other" in found:
        return "other"
    return "mask" if "mask" in found else "rounding"


def _one(difference: Difference) -> Nature:
    if difference.elements is not None:
        return _of_elements(difference.elements)
    a, b = difference.a_value, difference.b_value
    if difference.code in ("value", "ulp", "zero-sign") and type(a) is type(b) is float:
        return "rounding" if abs(a - b) <= ROUNDED_NUMBER * min(abs(a), abs(b)) else "other"
    return "other"


def _of_elements(elements: Elements) -> Nature:
    if elements.mask:
        return "mask"
    if {kind for kind, count in elements.kinds if count} <= {"ulp", "zero-sign"}:
        return "rounding"
    if elements.max_rel is None or elements.max_ulp is None:
        return "other"
    near = elements.max_rel <= ROUNDED_RELATIVE and elements.max_ulp <= ROUNDED_STEPS
    return "rounding" if near else "other"

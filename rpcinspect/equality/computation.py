"""What kind of computing gives such differences: a guess from how results differ, for whoever explains them.

In: the differences of two results that should have been the same. Out: a word. It says nothing of why.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from rpcinspect.equality.difference import Difference, Elements

Nature: TypeAlias = Literal["rounding", "mask", "other"]
"""`rounding`: what adding in another order does. `mask`: zeros at other places, all else equal, as dropout
with other random numbers does."""

ROUNDED_RELATIVE = 1e-3
ROUNDED_STEPS = 1 << 13
"""Errors up to both come from adding in another order, in most programs: 13 of the bits of a result."""
ROUNDED_NUMBER = 1e-6
"""The same of a single Python float, which mostly was a float32."""


def nature_of(differences: Sequence[Difference]) -> Nature:
    """Of all differences of a result; `other` if one of them is nothing else."""
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

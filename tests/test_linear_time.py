"""Twice as much of anything costs little more than twice the time."""

from __future__ import annotations

import pytest

from tests.growing import BOUND, GROWTHS, Growth, costs

pytestmark = pytest.mark.slow

ROUNDS = 6
LARGER = (1, 2, 4)
"""What grows with the square shows more the larger it is; what else the machine does may come at one size,
but hardly at each."""


@pytest.mark.parametrize("growth", GROWTHS, ids=lambda growth: growth.made.__name__)
def test_twice_as_much(growth: Growth) -> None:
    told = []
    for larger in LARGER:
        one, two = costs(growth, growth.size * larger, ROUNDS, enough=BOUND)
        if two <= BOUND * one:
            return
        told.append(f"{one:.3f} s of {growth.size * larger}, {two:.3f} s of twice as many")
    pytest.fail(f"{growth.what}: {'; '.join(told)}")

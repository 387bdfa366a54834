"""Twice as much of anything costs little more than twice the time."""

from __future__ import annotations

import pytest

from tests.growing import BOUND, GROWTHS, Growth, costs

ROUNDS = 12


@pytest.mark.parametrize("growth", GROWTHS, ids=lambda growth: growth.made.__name__)
def test_twice_as_much(growth: Growth) -> None:
    one, two = costs(growth, growth.size, ROUNDS, enough=BOUND)
    assert two <= BOUND * one, f"{growth.what}: {one:.3f} s, {two:.3f} s for twice as many"

"""The outcome's own sums."""

from __future__ import annotations

from msgspec.structs import replace

from rpcinspect.diff.model import Comparison, Explanation
from tests.diff.stories import Story, diff


def compared(result: int) -> Comparison:
    a, b = Story(), Story()
    a.ask("app.f", 1, 1)
    b.ask("app.f", 1, result)
    return diff(a, b)


def test_same() -> None:
    comparison = compared(1)
    assert comparison.same
    assert (comparison.counts, comparison.different, comparison.paired) == ({}, 0, 2)


def test_different() -> None:
    comparison = compared(2)
    assert not comparison.same
    assert not comparison.tolerated
    assert isinstance(comparison.first, Explanation)
    assert (comparison.counts, comparison.different, comparison.paired) == ({"value": 1}, 1, 2)


def test_tolerated() -> None:
    comparison = compared(2)
    one = comparison.found[0]
    within = replace(one, counts=False, difference=replace(one.difference, tolerated=True))
    assert replace(comparison, found=(within,), first=None).tolerated

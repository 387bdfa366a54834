"""Circles of waiting, against what following every way finds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rpcinspect.checks.unanswered import circles

GRAPHS = st.dictionaries(st.integers(0, 9), st.lists(st.integers(0, 9), max_size=4), max_size=10)


def reached(waits: dict[int, list[int]], start: int) -> set[int]:
    found: set[int] = set()
    stack = [start]
    while stack:
        for other in waits.get(stack.pop(), ()):
            if other not in found:
                found.add(other)
                stack.append(other)
    return found


@given(GRAPHS)
def test_who_reaches_whom_and_is_reached(waits: dict[int, list[int]]) -> None:
    part = circles(waits)
    nodes = {*waits, *(other for others in waits.values() for other in others)}
    assert set(part) == nodes
    for a in nodes:
        for b in nodes:
            together = a == b or (b in reached(waits, a) and a in reached(waits, b))
            assert (part[a] == part[b]) == together


def test_longer_than_the_stack() -> None:
    size = 50_000
    chain = {n: [n + 1] for n in range(size)}
    assert len(set(circles(chain).values())) == size + 1
    assert len(set(circles({**chain, size: [0]}).values())) == 1

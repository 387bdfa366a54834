"""Pairs by order: only as far as a thread's own order goes."""

from __future__ import annotations

from msgspec import Struct

from rpcinspect.diff.order import in_place, in_time, overlap


class Span(Struct, frozen=True):
    begin_ns: int
    end_ns: int | None


def row(*begins: int, takes: int = 5) -> list[Span]:
    return [Span(begin, begin + takes) for begin in begins]


def test_the_first_with_the_first() -> None:
    assert in_time(row(0, 10, 20), row(0, 10, 20), []) == [(0, 0), (1, 1), (2, 2)]
    assert in_time(row(20, 0), row(0, 20), []) == [(0, 1), (1, 0)]
    assert in_time(row(0, 10), row(0), []) == [(0, 0)]


def test_a_pair_between_two_calls_parts_them() -> None:
    assert in_time(row(0, 10), row(0, 10), [(1, 0)]) == [(1, 0)]
    assert in_place(row(0, 10), row(0, 10), [(1, 0)], [(0, 1)]) == [(1, 0)]
    assert in_place(row(0, 10), row(0, 10), [], [(0, 1)]) == [(0, 1)]


def test_calls_that_overlap_a_pair_may_be_on_either_side_of_it() -> None:
    assert in_time(row(0, 4), row(0, 10), [(1, 0)]) == [(0, 1), (1, 0)]
    assert in_time(row(0, 10), [Span(0, None), Span(10, 15)], [(1, 0)]) == [(0, 1), (1, 0)]


def test_other_threads_have_no_order() -> None:
    threads = (["x", "y"], ["y", "x"])
    assert in_time(row(0, 10), row(0, 10), [(1, 0)], threads=threads) == [(0, 1), (1, 0)]
    assert in_place(row(0, 10), row(0, 10), [(1, 0)], [(0, 1)], threads) == [(0, 1), (1, 0)]
    same = (["x", "x"], ["y", "y"])
    assert in_time(row(0, 10), row(0, 10), [(1, 0)], threads=same) == [(1, 0)]


def test_a_thread_whose_pairs_have_changed_places_has_no_order() -> None:
    spans = row(0, 10, 20, 30)
    assert in_time(spans, spans, [(1, 0), (2, 1)]) == [(1, 0), (2, 1), (3, 2)]
    assert in_time(spans, spans, [(1, 0), (3, 1), (2, 2)]) == [(0, 3), (1, 0), (2, 2), (3, 1)]


def test_only_equal_keys() -> None:
    assert in_time(row(0, 10), row(0, 10), [], (["f", "g"], ["g", "f"])) == [(0, 1), (1, 0)]


def test_overlap() -> None:
    assert overlap(Span(0, 10), Span(5, 15))
    assert overlap(Span(5, 15), Span(0, 10))
    assert overlap(Span(0, None), Span(50, 60))
    assert not overlap(Span(0, 10), Span(11, 15))

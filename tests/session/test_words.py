"""The words of findings and views."""

from __future__ import annotations

from rpcinspect.session.words import (
    counted,
    duration,
    numbers,
    packed,
    several,
    shorten,
    shorten_middle,
    unique,
)


def test_lists_stay_short() -> None:
    assert several([]) == ""
    assert several(["a", "b", "c", "d"]) == "a, b, c, d"
    assert several(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"
    assert numbers(range(3)) == "#0, #1, #2"
    assert numbers(range(5000)) == "#0, #1, #2 and 4,997 more"


def test_each_name_once_in_order() -> None:
    assert unique(["b", "a", "b"]) == ("b", "a")


def test_counts_times_and_ids() -> None:
    assert [counted(n, "edge") for n in (0, 1, 2000)] == ["no edges", "1 edge", "2,000 edges"]
    assert [duration(n) for n in (17, 1_500, 2_000_000_000)] == ["17 ns", "1.5 µs", "2 s"]
    assert packed(3 << 48 | 12) == "3:12"
    assert (shorten("abcdef", 4), shorten("abcd", 4)) == ("abc…", "abcd")
    assert (shorten_middle("abcdefghijkl", 7), shorten_middle("abcdefg", 7)) == ("ab…ijkl", "abcdefg")
    assert [len(shorten_middle("abcdefghijkl", limit)) for limit in (1, 2, 3, 11)] == [1, 2, 3, 11]

"""Alignment of sequences: what must hold for all, and what a reader would pair."""

from __future__ import annotations

import random
import time

from hypothesis import given
from hypothesis import strategies as st

from rpcinspect.diff.sequences import (
    Level,
    align,
    anywhere,
    ascending,
    between,
    in_order,
    overlapping,
    unpaired,
)

KEYS = st.lists(st.integers(0, 5), max_size=25)


def test_equal_sequences_are_paired_in_order() -> None:
    assert in_order("abcab", "abcab") == [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4)]


def test_one_that_is_missing_is_left_out_wherever_it_is() -> None:
    for at in range(6):
        other = [n for n in range(6) if n != at]
        assert in_order(range(6), other) == [(n, place) for place, n in enumerate(other)]


def test_ends_are_recognised_among_equal_ones() -> None:
    assert in_order("aaaab", "aaaaab") == [(0, 0), (1, 1), (2, 2), (3, 3), (4, 5)]


def test_what_changed_its_place_is_found() -> None:
    assert align(3, 3, [Level("xyz", "zxy")]) == [(0, 1), (1, 2), (2, 0)]


def test_the_next_level_pairs_what_lies_between() -> None:
    levels = [Level("a1b2c", "a3b4c"), Level("kkkkk", "kkkkk")]
    assert align(5, 5, levels) == [(n, n) for n in range(5)]
    # One more before b: it has nothing to be paired with behind it.
    assert align(3, 4, [Level("axb", "ayzb"), Level("kkk", "kkkk")]) == [(0, 0), (1, 1), (2, 3)]


@given(KEYS, KEYS)
def test_pairs_are_of_equal_keys_ascend_and_come_once(a: list[int], b: list[int]) -> None:
    found = in_order(a, b)
    assert all(a[i] == b[j] for i, j in found)
    assert found == ascending(found)
    assert len({i for i, _ in found}) == len({j for _, j in found}) == len(found)


@given(KEYS, KEYS)
def test_no_equal_keys_are_left(a: list[int], b: list[int]) -> None:
    pairs = align(len(a), len(b), [Level(a, b)])
    left_a, left_b = unpaired(len(a), len(b), pairs)
    assert not {a[i] for i in left_a} & {b[j] for j in left_b}


@given(KEYS)
def test_a_sequence_is_itself(a: list[int]) -> None:
    assert in_order(a, a) == anywhere(a, a) == [(n, n) for n in range(len(a))]


@given(st.permutations(list(range(12))))
def test_ascending_is_as_long_as_can_be(order: list[int]) -> None:
    lengths = [1] * len(order)
    for i in range(len(order)):
        for j in range(i):
            if order[j] < order[i]:
                lengths[i] = max(lengths[i], lengths[j] + 1)
    found = ascending(list(enumerate(order)))
    assert len(found) == max(lengths)
    assert [j for _, j in found] == sorted(j for _, j in found)


def test_collections_that_share_most() -> None:
    a = ["abcd", "efgh", "xy"]
    b = ["efg", "bcdx", "zz"]
    assert overlapping(a, b) == [(0, 1), (1, 0)]
    assert overlapping(["abcd"], ["axyz"]) == []
    assert overlapping(["ab"] * 20, ["ab"] * 20) == []  # in too many of them


def test_known_pairs_stay() -> None:
    assert align(2, 2, [Level("xy", "xx")], [(1, 0)]) == [(0, 1), (1, 0)]


def test_gaps() -> None:
    assert between([(1, 1), (3, 4)], [0, 2, 4], [2, 3, 5]) == [([2], [2, 3]), ([4], [5])]


def test_bad_cases_take_no_more_than_near_linear_time() -> None:
    size = 20_000
    dice = random.Random(1)
    shuffled = dice.sample(range(size), size)
    cases = [
        (list(range(size)), list(range(size, 0, -1))),
        (list(range(size)), shuffled),
        ([0] * size, [0] * (size - 1)),
        ([dice.randrange(3) for _ in range(size)], [dice.randrange(3) for _ in range(size)]),
        (list(range(size)), list(range(size, 2 * size))),
    ]
    for a, b in cases:
        begin = time.process_time()
        align(len(a), len(b), [Level(a, b), Level([0] * len(a), [0] * len(b))])
        assert time.process_time() - begin < 2

"""Counts over elements: kinds, errors, first and worst, over any number of blocks."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcinspect.equality.element_stats import Tally, bits_of, value_of
from rpcinspect.equality.elements import ElementBlock
from rpcinspect.equality.rules import Rules

BITS = Rules()


def block(
    start: int, values: list[int], width: str = "<u4", unknown: list[bool] | None = None
) -> ElementBlock:
    flags = None if unknown is None else np.array(unknown)
    return ElementBlock(start, np.array(values, width).reshape(-1, 1), flags)


def f32(*values: float) -> list[int]:
    return np.array(values, "<f4").view("<u4").tolist()  # type: ignore[no-any-return]


def test_the_whole_picture() -> None:
    tally = Tally("float32", 8, BITS)
    one = [*f32(1.0, 0.0, 5.0, 1.0), 0x7FC00000, *f32(3.0, math.inf, 2.0)]
    other = [*f32(1.0, -0.0, 5.5, 1.0), 0x7FC00001, *f32(3.0, math.inf, math.nan)]
    other[3] += 2  # two steps
    tally.add(block(0, one[:4]), block(0, other[:4]))
    tally.add(block(4, one[4:]), block(4, other[4:]))
    (found,) = tally.differences("t")
    elements = found.elements
    assert elements is not None
    assert (found.code, found.path, found.tolerated) == ("value", "t.elements[1]", False)
    assert (found.a_value, found.b_value) == (0.0, -0.0)
    assert math.copysign(1, found.b_value) == -1
    assert (found.a_bits, found.b_bits) == ("0x00000000", "0x80000000")
    assert elements.kinds == (("zero-sign", 1), ("nan-payload", 1), ("ulp", 1), ("value", 2))
    assert (elements.differing, elements.beyond, elements.first, elements.worst) == (5, 5, 1, 2)
    assert (elements.max_abs, elements.max_rel) == (0.5, 0.1)
    assert elements.max_ulp == 0x100000  # 5.0 and 5.5 are 2^20 steps apart


def test_a_tolerance_moves_the_first_to_what_it_does_not_cover() -> None:
    tally = Tally("float32", 3, Rules(rtol=0.2))
    tally.add(block(0, f32(1.0, 1.0, 2.0)), block(0, f32(1.0, 1.1, 4.0)))
    (found,) = tally.differences("t")
    assert found.elements is not None
    assert (found.path, found.tolerated) == ("t.elements[2]", False)
    assert (found.elements.first, found.elements.beyond, found.elements.differing) == (1, 1, 2)


def test_infinity_is_not_near_anything() -> None:
    tally = Tally("float32", 2, Rules(rtol=0.5, atol=1e30))
    tally.add(block(0, f32(math.inf, math.inf)), block(0, f32(3.4e38, -math.inf)))
    (found,) = tally.differences("t")
    assert found.elements is not None
    assert (found.code, found.elements.beyond) == ("value", 2)
    assert found.elements.max_abs == math.inf
    assert found.elements.max_ulp is None


def test_ignored_kinds_are_left_out() -> None:
    tally = Tally("float32", 2, Rules(ignore=frozenset({"zero-sign", "nan-payload"})))
    tally.add(block(0, [0, 0x7FC00000]), block(0, [0x80000000, 0x7FC00001]))
    assert tally.differences("t") == []


def test_unknown_elements_are_counted_beside_the_others() -> None:
    tally = Tally("int32", 4, BITS)
    tally.add(block(0, [1, 2, 3, 4]), block(0, [1, 9, 9, 4], unknown=[False, True, False, True]))
    value, unknown = tally.differences("t")
    assert (value.path, value.a_value, value.b_value) == ("t.elements[2]", 3, 9)
    assert (unknown.code, unknown.path) == ("unknown", "t.elements[1]")
    assert unknown.text == "2 of 4 elements have bytes that were not captured"


@pytest.mark.parametrize(
    ("dtype", "width", "a", "b", "distance"),
    [
        ("int64", "<u8", 1 << 63, (1 << 63) - 1, (1 << 64) - 1),
        ("uint64", "<u8", 0, (1 << 64) - 1, (1 << 64) - 1),
        ("int8", "<u1", 0xFF, 1, 2),
        ("quint8", "<u1", 0xFF, 1, 254),
        ("qint8", "<u1", 0xFF, 1, 2),
        ("bool", "<u1", 0, 1, None),
        ("bits16", "<u2", 0, 1, None),
    ],
)
def test_integers_are_subtracted_exactly(
    dtype: str, width: str, a: int, b: int, distance: int | None
) -> None:
    tally = Tally(dtype, 1, Rules(rtol=9.0, atol=9.0))
    tally.add(block(0, [a], width), block(0, [b], width))
    (found,) = tally.differences("t")
    assert found.elements is not None
    assert (found.code, found.elements.max_abs, found.tolerated) == ("value", distance, False)


@pytest.mark.parametrize(
    ("dtype", "codes", "shown", "bits"),
    [
        ("complex64", np.array(f32(1.0, -0.0), "<u4"), [1.0, -0.0], "0x3f800000 0x80000000"),
        ("float4_e2m1fn_x2", np.array([1, 15], np.uint8), [0.5, -6.0], "0x1 0xf"),
        ("quint4x2", np.array([7], np.uint8), 7, "0x07"),
        ("bool", np.array([1], np.uint8), True, "0x01"),
        ("bfloat16", np.array([0x3FC0], "<u2"), 1.5, "0x3fc0"),
    ],
)
def test_one_element_shown(dtype: str, codes: np.ndarray, shown: object, bits: str) -> None:  # type: ignore[type-arg]
    assert value_of(dtype, codes) == shown
    assert bits_of(dtype, codes) == bits


@given(
    st.lists(st.tuples(*[st.integers(0, (1 << 32) - 1)] * 2), min_size=1, max_size=12),
    st.integers(0, 12),
)
def test_blocks_do_not_matter(pairs: list[tuple[int, int]], cut: int) -> None:
    one, other = [a for a, _ in pairs], [b for _, b in pairs]
    cut = min(cut, len(pairs))
    whole, parts = Tally("float32", len(pairs), BITS), Tally("float32", len(pairs), BITS)
    whole.add(block(0, one), block(0, other))
    parts.add(block(0, one[:cut]), block(0, other[:cut]))
    parts.add(block(cut, one[cut:]), block(cut, other[cut:]))
    assert whole.differences("t") == parts.differences("t")
    differing = [i for i, (a, b) in enumerate(pairs) if a != b]
    found = whole.differences("t")
    assert [d.path for d in found] == [f"t.elements[{differing[0]}]"] if differing else found == []

"""Bit patterns of floats: NaN, infinity, zero, distance and value of every code."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcinspect.equality.floats import FLOATS, FloatLayout
from rpcinspect.rpc.dtypes import DTYPES, element_value
from tests.rpc.torch_tables import import_torch

REAL = {name: layout for name, layout in FLOATS.items() if layout.name == name}
WIDTHS = {8: "<u1", 16: "<u2", 32: "<u4", 64: "<u8"}


def value(name: str, code: int) -> float:
    raw = code.to_bytes(DTYPES[name].item_bytes, "little")
    found = element_value(DTYPES[name], raw)
    assert isinstance(found, float)
    return found


@pytest.mark.parametrize("name", [name for name, layout in REAL.items() if layout.bits <= 16])
def test_every_code(name: str) -> None:
    layout = REAL[name]
    codes = np.arange(1 << layout.bits, dtype=WIDTHS[layout.bits])
    expected = [value(name, code) for code in range(1 << layout.bits)]
    np.testing.assert_array_equal(layout.values(codes), expected)
    assert layout.is_nan(codes).tolist() == [math.isnan(x) for x in expected]
    assert layout.is_infinite(codes).tolist() == [math.isinf(x) for x in expected]
    usable = ~layout.is_nan(codes)
    assert layout.negative(codes)[usable].tolist() == [
        math.copysign(1, x) < 0 for x in expected if not math.isnan(x)
    ]
    # Sorted by value, neighbours are one step apart; the two zeros are the same number.
    ordered = sorted(codes[usable].tolist(), key=lambda code: expected[code])
    one, other = (np.array(part, codes.dtype) for part in zip(*pairwise(ordered), strict=True))
    steps = layout.steps(one, other)
    both_zero = (layout.magnitude(one) == 0) & (layout.magnitude(other) == 0)
    if layout.signed:
        assert (steps == np.where(both_zero, 0, 1)).all()
    else:
        assert (steps == 1).all()


@pytest.mark.parametrize(("name", "float_type"), [("float32", np.float32), ("float64", np.float64)])
@given(start=st.floats(allow_nan=False, allow_infinity=False), steps=st.integers(0, 20))
def test_steps_are_those_of_nextafter(name: str, float_type: Any, start: float, steps: int) -> None:
    with np.errstate(over="ignore"):
        first = float_type(start)
    if not np.isfinite(first):
        return
    last = first
    for _ in range(steps):
        with np.errstate(over="ignore", under="ignore"):
            last = np.nextafter(last, float_type(np.inf))
    if not np.isfinite(last):
        return
    width = WIDTHS[8 * first.itemsize]
    a, b = (np.array([x], float_type).view(width) for x in (first, last))
    assert REAL[name].steps(a, b).tolist() == [steps]
    assert REAL[name].steps(b, a).tolist() == [steps]


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_steps_are_those_of_torch_s_nextafter(name: str) -> None:
    torch = import_torch()
    dtype = getattr(torch, name)
    start = torch.tensor([-1.0, -0.0, 0.0, 1.0, 1e-7, 255.9, -3e4], dtype=dtype)
    at = start
    layout, width = REAL[name], WIDTHS[8 * start.element_size()]
    for n in range(1, 6):
        if name in ("float16",):
            at = torch.from_numpy(np.nextafter(at.numpy(), np.float16(np.inf)))
        else:
            at = torch.nextafter(at, torch.full_like(at, math.inf))
        raw_a, raw_b = (x.view(torch.uint8).numpy().tobytes() for x in (start, at))
        steps = layout.steps(np.frombuffer(raw_a, width), np.frombuffer(raw_b, width))
        assert steps.tolist() == [n] * len(start)


def test_the_ends_of_float64_are_as_far_apart_as_can_be() -> None:
    layout = REAL["float64"]
    ends = np.array([-np.inf, np.inf]).view("<u8")
    assert layout.steps(ends[:1], ends[1:]).tolist() == [2 * 0x7FF0000000000000]


def test_halves_of_a_byte() -> None:
    layout: FloatLayout = FLOATS["float4_e2m1fn_x2"]
    codes = np.arange(16, dtype=np.uint8)
    assert layout.values(codes).tolist() == [
        *(0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0),
        *(-0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0),
    ]
    assert not layout.is_nan(codes).any()
    assert layout.steps(codes[1:2], codes[9:10]).tolist() == [2]

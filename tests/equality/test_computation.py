"""What kind of computing gives such differences."""

from __future__ import annotations

import numpy as np
import pytest

from rpcinspect.equality.difference import Difference, Nature, nature_of
from rpcinspect.equality.element_stats import Tally
from rpcinspect.equality.rules import Rules
from tests.equality.test_element_stats import block
from tests.rpc.torch_tables import import_torch


def differences(a: np.ndarray, b: np.ndarray) -> list[Difference]:  # type: ignore[type-arg]
    dtype, width = {4: ("float32", "<u4"), 8: ("float64", "<u8")}[a.dtype.itemsize]
    tally = Tally(dtype, a.size, Rules())
    tally.add(block(0, a.view(width).tolist(), width), block(0, b.view(width).tolist(), width))
    return tally.differences("t")


def test_dropout_with_other_random_numbers() -> None:
    torch = import_torch()
    x = torch.randn(64, generator=torch.Generator().manual_seed(1))
    masked = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        masked.append(torch.nn.functional.dropout(x, 0.5).numpy())
    assert nature_of(differences(*masked)) == nature_of(differences(*masked[::-1])) == "mask"
    again = masked[0].copy()
    again[masked[0] != 0] += 1
    assert nature_of(differences(masked[0], again)) == "other"
    assert nature_of(differences(np.maximum(x.numpy(), 0), np.maximum(x.numpy() + 1, 0))) == "other"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_in_another_order(dtype: str) -> None:
    rows = np.random.default_rng(3).random((1000, 20)).astype(dtype)
    there, back = (sum(order) for order in (rows.T, rows.T[::-1]))
    assert nature_of(differences(np.asarray(there), np.asarray(back))) == "rounding"


@pytest.mark.parametrize(
    ("a", "b", "nature"),
    [
        ([1.0, -0.0], [1.0, 0.0], "rounding"),
        ([1.0, 2.0], [1.0, 2.01], "other"),
        ([1.0, 0.0], [1.0, 2.0], "other"),
        ([0.0, 3.0], [2.0, 0.0], "mask"),
        ([0.0, 3.0, -0.0], [2.0, -0.0, 0.0], "mask"),
        ([1.0, 1.0], [1.0, 1.0 + 2.0**-30], "other"),
    ],
)
def test_of_elements(a: list[float], b: list[float], nature: Nature) -> None:
    assert nature_of(differences(np.array(a), np.array(b))) == nature


@pytest.mark.parametrize(
    ("found", "nature"),
    [
        ([Difference(code="value", path="value", a_value=1.0, b_value=1.0000001)], "rounding"),
        ([Difference(code="value", path="value", a_value=1.0, b_value=1.1)], "other"),
        ([Difference(code="value", path="value", a_value=1, b_value=2)], "other"),
        ([Difference(code="value", path="value", a_value="nan", b_value=1.0)], "other"),
        ([], "other"),
    ],
)
def test_of_what_has_no_elements(found: list[Difference], nature: Nature) -> None:
    assert nature_of(found) == nature


def test_of_several() -> None:
    one, mask, far = (
        differences(np.array(a), np.array(b))
        for a, b in (([1.0], [1.0 + 2.0**-50]), ([0.0, 3.0], [2.0, 0.0]), ([1.0], [2.0]))
    )
    assert nature_of([*one, *one]) == "rounding"
    assert nature_of([*one, *mask]) == "mask"
    assert nature_of([*mask, *far]) == "other"

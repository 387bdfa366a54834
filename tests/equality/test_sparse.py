"""Sparse tensors: by indices and values as they travelled, then coalesced, and which of them differs."""

from __future__ import annotations

from typing import Any

import pytest

from rpcinspect.equality.difference import Difference
from rpcinspect.equality.elements import Storage, Tensors
from rpcinspect.equality.rules import Rules
from tests.equality.builders import codes, compare, from_torch
from tests.rpc.torch_tables import import_torch

INDICES = [[0, 2, 1], [1, 0, 1]]
VALUES = [1.0, 2.0, 3.0]


def coo(indices: Any, values: Any, size: Any = (3, 2), **more: Any) -> Tensors:
    torch = import_torch()
    made = torch.sparse_coo_tensor(
        torch.tensor(indices), torch.tensor(values, **more), size, check_invariants=True
    )
    return from_torch(made)


def both(one: Tensors, other: Tensors, rules: Rules | None = None) -> list[Difference]:
    return compare(one, other, rules or Rules())


def test_the_same() -> None:
    assert both(coo(INDICES, VALUES), coo(INDICES, VALUES)) == []


def test_order_of_entries_is_form() -> None:
    (found,) = both(coo(INDICES, VALUES), coo([[1, 0, 2], [1, 1, 0]], [3.0, 1.0, 2.0]))
    assert (found.code, found.path, found.text) == (
        "form",
        "tensors[0].indices",
        "the entries come in a different order",
    )


def test_a_coalesced_tensor_and_one_that_is_not() -> None:
    """torch.testing.assert_close would coalesce and say nothing, or refuse for the number of entries."""
    torch = import_torch()
    made = torch.sparse_coo_tensor([[0, 1, 0]], torch.tensor([0.1, 2.0, 0.2]), (2,), check_invariants=True)
    (found,) = both(from_torch(made), from_torch(made.coalesce()))
    assert (found.code, found.a_value, found.b_value) == ("form", 3, 2)


def test_another_value() -> None:
    (found,) = both(coo(INDICES, VALUES), coo(INDICES, [1.0, 2.5, 3.0]))
    assert (found.code, found.path) == ("value", "tensors[0].values.elements[1]")


def test_another_value_in_another_order() -> None:
    found = both(coo(INDICES, VALUES), coo([[1, 0, 2], [1, 1, 0]], [3.0, -1.0, 2.0]))
    assert codes(found) == ["value", "form"]
    assert (found[0].path, found[0].a_value) == ("tensors[0].coalesced.values.elements[0]", 1.0)


def test_another_index() -> None:
    (found,) = both(coo(INDICES, VALUES), coo([[0, 2, 2], [1, 0, 1]], VALUES))
    assert (found.code, found.path) == ("value", "tensors[0].coalesced.indices")
    assert (found.a_value, found.b_value) == ([1, 1], [2, 1])


def test_sums_that_differ_in_the_last_bit() -> None:
    """0.1 + 0.2 + 0.3 depends on the order: coalesced, the two are not the same."""
    one = coo([[0, 0, 0]], [0.1, 0.2, 0.3], (1,))
    other = coo([[0, 0, 0]], [0.3, 0.2, 0.1], (1,))
    (found,) = both(one, other)
    assert (found.code, found.path) == ("value", "tensors[0].values.elements[0]")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "complex64", "int64"])
def test_entries_of_any_type_are_ordered(dtype: str) -> None:
    torch = import_torch()
    one = coo(INDICES, [1, 2, 3], dtype=getattr(torch, dtype))
    other = coo([[1, 0, 2], [1, 1, 0]], [3, 1, 2], dtype=getattr(torch, dtype))
    assert codes(both(one, other)) == ["form"]


def test_dense_dimensions_behind_the_sparse_ones() -> None:
    one = coo([[0, 1]], [[1.0, 2.0], [3.0, 4.0]], (2, 2))
    assert codes(both(one, coo([[1, 0]], [[3.0, 4.0], [1.0, 2.0]], (2, 2)))) == ["form"]
    found = both(one, coo([[1, 0]], [[3.0, 4.0], [1.0, 9.0]], (2, 2)))
    assert found[0].path == "tensors[0].coalesced.values.elements[1]"


def test_no_entries() -> None:
    empty = coo([[], []], [])
    assert both(empty, coo([[], []], [])) == []
    assert [d.path for d in both(empty, coo(INDICES, VALUES))] == ["tensors[0].coalesced.indices"]


def test_a_dense_tensor_is_something_else() -> None:
    torch = import_torch()
    dense = from_torch(torch.zeros(3, 2))
    (found,) = both(coo(INDICES, VALUES), dense)
    assert (found.code, found.path) == ("field", "tensors[0].layout")


def test_missing_parts_are_unknown() -> None:
    one = coo(INDICES, VALUES)
    first, second = one.storages
    cut = Tensors(one.metas, (first, Storage(None, second.read, "missing", second.target_device)))
    (found,) = both(one, cut)
    assert (found.code, found.path) == ("unknown", "tensors[0].values")


def test_compressed_rows_are_compared_as_they_are() -> None:
    torch = import_torch()

    def csr(columns: list[int]) -> Tensors:
        crow, values = torch.tensor([0, 1, 2]), torch.tensor([1.0, 2.0])
        with torch.no_grad():
            made = torch.sparse_csr_tensor(crow, torch.tensor(columns), values, (2, 2), check_invariants=True)
        return from_torch(made)

    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one, same, other = csr([0, 1]), csr([0, 1]), csr([1, 1])
    assert both(one, same) == []
    (found,) = both(one, other)
    assert (found.code, found.path) == ("value", "tensors[0].col_indices.elements[0]")

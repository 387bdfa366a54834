"""Small tables: aligned by what a terminal shows, not by characters."""

from __future__ import annotations

from rich.cells import cell_len

from rpcinspect.views.columns import columns


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    head, *rows = columns(
        ("a", "count", "rest"), [("x", "1", "last"), ("long name", "1,000", "")], right=(1,)
    )
    assert head == "a          count  rest"
    assert rows == ["x              1  last", "long name  1,000"]


def test_wide_characters_take_two_cells() -> None:
    lines = list(columns(("name", "x"), [("訓練", "1"), ("abc", "2")]))
    assert {cell_len(line) for line in lines} == {7}


def test_without_rows_there_is_a_header() -> None:
    assert list(columns(("a", "b"), [])) == ["a  b"]

"""Rows of a window, numbers at many positions, and which rows of a table differ."""

from __future__ import annotations

import numpy as np
import pytest

from rpcinspect.tcp.rows import (
    LLC,
    NOT_IP,
    Rows,
    alternatives,
    distinct_numbers,
    distinct_rows,
    ether_types,
    gather,
)
from tests.builders import Captured, packet_block


def test_rows_of_a_block() -> None:
    block = packet_block([b"abc", Captured(b"defgh", length=9)])  # 16 bytes before each frame
    rows = Rows.of_block(block)
    assert (rows.row.tolist(), rows.at.tolist()) == ([0, 1], [16, 35])
    assert (rows.end.tolist(), rows.wire.tolist()) == ([19, 40], [19, 44])
    moved = rows.having(4).moved(2)
    assert (moved.row.tolist(), moved.at.tolist(), moved.end.tolist()) == ([1], [37], [40])
    assert moved.joined(rows).row.tolist() == [1, 0, 1]


def test_gather() -> None:
    window = bytes(range(20))
    found = gather(window, np.array([0, 3, 16]), ">u2", 2)
    assert found.tolist() == [[0x0001, 0x0203], [0x0304, 0x0506], [0x1011, 0x1213]]
    assert gather(b"", np.array([], dtype=np.int64), ">u2", 2).shape == (0, 2)


def test_ether_types_below_0x600_are_lengths() -> None:
    window = bytes.fromhex("05ff 0600 0800 0000")
    at = np.array([0, 2, 4, 6])
    assert ether_types(window, at).tolist() == [NOT_IP, 0x600, 0x800, NOT_IP]
    assert ether_types(window, at, LLC).tolist() == [LLC, 0x600, 0x800, LLC]


def test_alternatives() -> None:
    rows = Rows.of_block(packet_block([b"a", b"b", b"c"]))
    chosen = np.array([False, True, False])
    found, kind = alternatives(rows, chosen, rows.keep(chosen).moved(1), np.array([5], dtype=np.uint16), 7)
    assert dict(zip(found.row.tolist(), kind.tolist(), strict=True)) == {0: 7, 1: 5, 2: 7}
    assert found.at[0] == rows.at[1] + 1


def test_distinct_numbers() -> None:
    assert distinct_numbers(np.array([], dtype=np.uint16)) == []
    assert distinct_numbers(np.array([3, 3], dtype=np.uint16)) == [3]
    assert distinct_numbers(np.array([3, 1, 3], dtype=np.uint16)) == [1, 3]


@pytest.mark.parametrize("kinds", [1, 3, 2000, 70_000])
def test_distinct_rows(kinds: int) -> None:
    generator = np.random.default_rng(kinds)
    which = generator.integers(0, kinds, 80_000)
    table = generator.integers(0, 1 << 63, (2, kinds), dtype=np.uint64)
    columns = (table[0][which], table[1][which])
    first, group = distinct_rows(columns)
    expected = len(np.unique(which))
    assert len(first) == expected
    for column in columns:
        assert np.array_equal(column[first][group], column)
    assert np.all(np.diff(first) > 0)
    assert np.all(first[group] <= np.arange(80_000))  # the first row of each kind

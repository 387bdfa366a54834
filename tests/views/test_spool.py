"""Rows that wait in a file."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcinspect.views import spool
from rpcinspect.views.spool import Spool


@given(rows=st.lists(st.binary(max_size=40), max_size=40), seed=st.integers())
def test_rows_come_back_in_any_order(rows: list[bytes], seed: int) -> None:
    with tempfile.TemporaryFile() as file:
        waiting = Spool(file)
        for row in rows:
            waiting.extend([row])
        order = random.Random(seed).sample(range(len(rows)), len(rows))
        assert len(waiting) == len(rows)
        assert waiting.read(order) == [rows[i] for i in order]


def test_rows_of_many_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(spool, "BATCH_BYTES", 50)
    rows = [bytes([i]) * (i * 7 % 200) for i in range(100)]
    rows[50] = bytes(range(256)) * 100  # those behind it are in other pages of the file
    with (tmp_path / "spool").open("w+b", buffering=0) as file:
        waiting = Spool(file)
        for row in rows:
            waiting.extend([row])
        assert file.tell() > 0  # they do not wait in memory
        order = [*range(99, -1, -3), *range(0, 100, 3)]
        assert waiting.read(order) == [rows[i] for i in order]


def test_no_rows() -> None:
    with tempfile.TemporaryFile() as file:
        assert Spool(file).read([]) == []


def test_a_row_may_be_read_twice() -> None:
    with tempfile.TemporaryFile() as file:
        waiting = Spool(file)
        waiting.extend([b"a"])
        waiting.extend([b""])
        assert waiting.read([0, 1, 0]) == [b"a", b"", b"a"]
        assert waiting.read([1, 1]) == [b"", b""]


def test_bytes_of_a_row_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "BATCH_BYTES", 8)
    with tempfile.TemporaryFile() as file:
        waiting = Spool(file)
        waiting.extend([b"ab..", b"..cd", b""])
        waiting.replace(1, b"..", b"xy")
        waiting.extend([b"ef.."])
        waiting.replace(3, b"..", b"zz")
        waiting.replace(2, b"..", b"!!")  # which it has not
        assert waiting.read([0, 1, 2, 3]) == [b"ab..", b"xycd", b"", b"efzz"]

"""Rows of one table: what goes in comes out, in row groups, and memory does not grow with them."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rpcinspect.export.parquet import table_file
from rpcinspect.export.parquet.table_file import BATCH_ROWS, ParquetFile, in_order

SCHEMA = pa.schema([("number", pa.int64()), ("text", pa.string()), ("list", pa.list_(pa.int64()))])


def row(number: int) -> tuple[object, ...]:
    return number, f"text {number % 7}", [number, None]


def read(path: Path) -> list[tuple[object, ...]]:
    """The rows of a file."""
    return [tuple(one.values()) for one in pq.read_table(path).to_pylist()]


@pytest.mark.parametrize("count", [0, 1, BATCH_ROWS - 1, BATCH_ROWS, 3 * BATCH_ROWS + 5])
def test_rows_come_out_as_they_went_in(count: int, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    file = ParquetFile(path.open("wb"), SCHEMA)
    for number in range(count):
        file.add(row(number))
    file.close()
    assert file.rows == count
    assert read(path) == [row(number) for number in range(count)]


def test_columns_come_by_their_names_and_others_are_null(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    file = ParquetFile(path.open("wb"), SCHEMA, ("list", "number"))
    file.add(([1], 2))
    file.close()
    assert read(path) == [(2, None, [1])]
    assert list(in_order([{"text": "a", "more": 0}], SCHEMA.names)) == [(None, "a", None)]


@pytest.mark.parametrize(("rows", "size"), [(BATCH_ROWS * 2, 1 << 30), (1 << 30, 40_000)])
def test_row_groups_end_at_a_number_of_rows_or_bytes(
    rows: int, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_file, "GROUP_ROWS", rows)
    monkeypatch.setattr(table_file, "GROUP_BYTES", size)
    path = tmp_path / "a.parquet"
    file = ParquetFile(path.open("wb"), SCHEMA)
    for number in range(BATCH_ROWS * 5):
        file.add(row(number))
    file.close()
    found = pq.ParquetFile(path)
    groups = [found.metadata.row_group(i).num_rows for i in range(found.num_row_groups)]
    assert len(groups) > 1
    assert max(groups) <= BATCH_ROWS * 2
    assert found.read().num_rows == BATCH_ROWS * 5


def test_memory_holds_no_more_than_a_row_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_file, "GROUP_BYTES", 1 << 20)
    file = ParquetFile((tmp_path / "a.parquet").open("wb"), SCHEMA)
    before = pa.total_allocated_bytes()
    gc.collect()
    tracemalloc.start()
    try:
        high = 0
        for number in range(60_000):
            file.add((number, "x" * 50 + str(number), [number] * 5))
            if not number % 1000:
                high = max(high, pa.total_allocated_bytes() - before)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        file.close()
    assert high < 8 << 20
    assert peak < 4 << 20


def test_texts_are_kept_once_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    file = ParquetFile(path.open("wb"), SCHEMA)
    for number in range(5000):
        file.add((number, "a long text that comes again and again" * 10, [number]))
    file.close()
    column = pq.ParquetFile(path).metadata.row_group(0).column(1)
    assert "RLE_DICTIONARY" in column.encodings
    assert column.total_uncompressed_size < 10_000


def test_a_full_disk_is_an_os_error(tmp_path: Path) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no /dev/full")
    file = ParquetFile(full.open("wb"), SCHEMA)
    for number in range(5000):
        file.add(row(number))
    with pytest.raises(OSError, match="No space left on device"):
        file.close()
    file.abandon()


def test_what_is_abandoned_is_closed(tmp_path: Path) -> None:
    file = ParquetFile((tmp_path / "a.parquet").open("wb"), SCHEMA)
    file.add(row(1))
    file.abandon()
    file.abandon()
    assert file._file.closed

"""One table as one Parquet file: rows go in, row groups come out.

In: rows, each a value for each of some columns; others of the schema are null; an open file. Out: what the
file holds.
Memory has a batch of rows as they came, then Arrow's columns until a row group is full. Raises `OSError`
where the file can't be written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import IO, Any

import pyarrow as pa
from pyarrow.parquet import ParquetWriter

ParquetRow = tuple[Any, ...]

BATCH_ROWS = 2_000
GROUP_ROWS = 1 << 17
GROUP_BYTES = 1 << 25


def record_batch(rows: Sequence[ParquetRow], names: Sequence[str], schema: pa.Schema) -> pa.RecordBatch:
    """Returns rows with values for columns of these names as columns of a schema."""
    there = dict(zip(names, zip(*rows, strict=True), strict=True))
    columns = [
        pa.array(there[one.name], one.type) if one.name in there else pa.nulls(len(rows), one.type)
        for one in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def in_order(rows: Iterable[Mapping[str, Any]], names: Sequence[str]) -> Iterator[ParquetRow]:
    """Yields dicts as rows; what one lacks is null."""
    return (tuple(map(row.get, names)) for row in rows)


class ParquetFile:
    """Takes rows until `close`, or `abandon`."""

    def __init__(self, file: IO[bytes], schema: pa.Schema, names: Sequence[str] | None = None) -> None:
        """Closes the file in the end. It is one of Python's, so that a full disk is an `OSError` with its
        number. `names`: the columns of rows, if not all in the order of the schema.
        """
        self.rows = 0
        self._names = schema.names if names is None else names
        self._schema = schema
        self._batch: list[ParquetRow] = []
        self._group: list[pa.RecordBatch] = []
        self._file = file
        try:
            self._writer = ParquetWriter(self._file, schema, compression="zstd")
        except BaseException:
            self._file.close()
            raise

    def add(self, row: ParquetRow) -> None:
        """Takes a row."""
        self._batch.append(row)
        self.rows += 1
        if len(self._batch) >= BATCH_ROWS:
            self._end_batch()

    def close(self) -> None:
        """Writes what is left."""
        self._end_batch()
        self._end_group()
        self._writer.close()
        self._file.close()

    def abandon(self) -> None:
        """Closes the file, complete or not."""
        for it in (self._writer, self._file):
            with suppress(OSError, pa.ArrowException):
                it.close()

    def _end_batch(self) -> None:
        if self._batch:
            self._group.append(record_batch(self._batch, self._names, self._schema))
            self._batch.clear()
        rows = sum(batch.num_rows for batch in self._group)
        if rows >= GROUP_ROWS or sum(batch.nbytes for batch in self._group) >= GROUP_BYTES:
            self._end_group()

    def _end_group(self) -> None:
        if self._group:
            self._writer.write_table(pa.Table.from_batches(self._group, self._schema))
            self._group.clear()

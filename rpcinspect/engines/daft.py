"""A table of many captures as a DataFrame of Daft: one task for each capture, read where Daft runs it.

In: paths of captures, a table of docs/parquet.md. Out: a lazy DataFrame; columns that it does not need are
not worked out. Needs `pip install 'rpcinspect[daft]'`.
"""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import AsyncIterator, Sequence

from daft import DataFrame, Schema
from daft.io.pushdowns import Pushdowns
from daft.io.source import DataSource, DataSourceTask
from daft.recordbatch import RecordBatch

from rpcinspect.library.tables import record_batches, table_schema


def read_rpc(paths: Sequence[str], table: str = "calls", filter: str | None = None) -> DataFrame:
    """Returns a table of captures; `filter` as `-f` has it. A capture that can't be read has a row in
    `captures` with its `problem`."""
    return DaftSource(tuple(paths), table, filter).read()


class DaftSource(DataSource):
    def __init__(self, paths: tuple[str, ...], table: str, filter: str | None) -> None:
        self._paths, self._table, self._filter = paths, table, filter
        self._schema = Schema.from_pyarrow_schema(table_schema(table))

    @property
    def name(self) -> str:
        return f"rpcinspect {self._table}"

    @property
    def schema(self) -> Schema:
        return self._schema

    async def get_tasks(self, pushdowns: Pushdowns) -> AsyncIterator[DataSourceTask]:
        columns = pushdowns.columns
        if columns is not None:
            columns = [*dict.fromkeys((*columns, *pushdowns.filter_required_column_names()))] or ["capture"]
        for path in self._paths:
            yield DaftTask(path, self._table, self._filter, columns)


class DaftTask(DataSourceTask):
    def __init__(self, path: str, table: str, filter: str | None, columns: list[str] | None) -> None:
        self._asked = (path, table, filter)
        self._columns = columns

    @property
    def schema(self) -> Schema:
        return Schema.from_pyarrow_schema(table_schema(self._asked[1], self._columns))

    async def read(self) -> AsyncIterator[RecordBatch]:
        batches = record_batches(*self._asked, columns=self._columns, unreadable=True)
        while (batch := await to_thread(next, batches, None)) is not None:
            yield RecordBatch.from_arrow_record_batches([batch], batch.schema)

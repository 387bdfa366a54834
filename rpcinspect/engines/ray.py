"""A table of many captures as a Dataset of Ray Data: one task for each capture.

In: paths of captures that each worker sees, a table of docs/parquet.md. Out: a lazy Dataset. Needs
`pip install 'rpcinspect[ray]'`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import pyarrow
import ray.data
from ray.data.block import BlockMetadata
from ray.data.datasource import Datasource, ReadTask

from rpcinspect.library.tables import record_batches, table_schema


def read_rpc(
    paths: Sequence[str],
    table: str = "calls",
    filter: str | None = None,
    *,
    columns: Collection[str] | None = None,
) -> ray.data.Dataset:
    """Returns a table of captures, or some of its columns; `filter` as `-f` has it. A capture that can't be
    read has a row in `captures` with its `problem`."""
    return ray.data.read_datasource(RaySource(paths, table, filter, columns))


class RaySource(Datasource):
    def __init__(
        self, paths: Sequence[str], table: str, filter: str | None, columns: Collection[str] | None
    ) -> None:
        super().__init__()
        self._paths, self._table, self._filter, self._columns = paths, table, filter, columns
        self._schema = table_schema(table, columns)

    def estimate_inmemory_data_size(self) -> int | None:
        return None

    def get_read_tasks(self, parallelism: int, *_: object, **__: object) -> list[ReadTask]:
        return [self._task(path) for path in self._paths]

    def _task(self, path: str) -> ReadTask:
        table, filter, columns, schema = self._table, self._filter, self._columns, self._schema

        def blocks() -> Iterator[pyarrow.Table]:
            for batch in record_batches(path, table, filter, columns=columns, unreadable=True):
                yield pyarrow.Table.from_batches([batch])

        known = BlockMetadata(num_rows=None, size_bytes=None, input_files=[path], exec_stats=None)
        return ReadTask(blocks, known, schema=schema)

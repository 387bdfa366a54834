"""A table of many captures as a DataFrame of Spark: a partition for each.

In: paths of captures that each executor sees, a table of docs/parquet.md. Out: a lazy DataFrame. Needs
`pip install 'rpcinspect[spark]'`, and `spark.sql.python.filterPushdown.enabled` to hand comparisons down.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import pyarrow
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import datasource as spark
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from rpcinspect.engines.comparisons import as_filter
from rpcinspect.library.tables import record_batches, table_schema


def read_rpc(
    session: SparkSession, paths: Sequence[str], table: str = "calls", columns: Collection[str] | None = None
) -> DataFrame:
    """Returns a table of captures, or some columns of it. A capture that can't be read has a row in
    `captures` with its `problem`."""
    session.dataSource.register(SparkSource)
    asked = json.dumps([list(paths), table, columns and list(columns)])
    return session.read.format(SparkSource.name()).option("asked", asked).load()


class SparkSource(spark.DataSource):
    @classmethod
    def name(cls) -> str:
        return "rpcinspect"

    def schema(self) -> StructType:
        return from_arrow_schema(table_schema(*json.loads(self.options["asked"])[1:]))

    def reader(self, schema: StructType) -> SparkReader:
        return SparkReader(*json.loads(self.options["asked"]))


class SparkReader(spark.DataSourceReader):
    def __init__(self, paths: list[str], table: str, columns: list[str] | None) -> None:
        self._paths, self._table, self._columns = paths, table, columns
        self._filter: str | None = None

    def pushFilters(self, filters: list[Any]) -> list[Any]:  # noqa: N802
        asked = [as_filter(self._table, type(one).__name__, one) for one in filters]
        self._filter = " and ".join(filter(None, asked)) or None
        return filters  # Spark asks everything once more: ours may pick a row too many

    def partitions(self) -> list[spark.InputPartition]:
        return [spark.InputPartition(path) for path in self._paths]

    def read(self, partition: spark.InputPartition) -> Iterator[pyarrow.RecordBatch]:
        path = partition.value
        return record_batches(path, self._table, self._filter, columns=self._columns, unreadable=True)

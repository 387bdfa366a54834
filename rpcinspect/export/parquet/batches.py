"""One table of a session as Arrow's record batches, some rows at a time.

In: the name of a table, a session, what of it is shown, its records. Out: batches with the columns that
Parquet files of the lake have, or with those that are asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice

import pyarrow as pa

from rpcinspect.export.parquet.messages import MessageRows
from rpcinspect.export.parquet.schema import TABLES
from rpcinspect.export.parquet.session import call_rows, session_rows
from rpcinspect.export.parquet.table_file import BATCH_ROWS, ParquetRow, in_order, record_batch
from rpcinspect.files.temporary import Temporary
from rpcinspect.filter.matches import Shown
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.model import Session
from rpcinspect.tcp.ranges import CaptureBytes
from rpcinspect.views.jsonl.calls import CallRows, OfSession


def narrowed(schema: pa.Schema, columns: Collection[str]) -> pa.Schema:
    """Returns the columns of a schema that have these names; the first where none has: rows count, too."""
    return pa.schema([one for one in schema if one.name in columns] or [schema.field(0)])


def with_column(batch: pa.RecordBatch, name: str, value: str, schema: pa.Schema) -> pa.RecordBatch:
    """Returns the columns of a schema: one has the same value in each row, the others are the batch's."""
    columns = [
        pa.repeat(value, batch.num_rows) if one.name == name else batch.column(one.name) for one in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def of_messages(
    table: str,
    session: Session,
    shown: Shown | None,
    records: Iterable[RpcRecord],
    source: CaptureBytes,
    schema: pa.Schema,
    *,
    hashes: bool = True,
) -> Iterator[pa.RecordBatch]:
    """Yields `messages` or `tensors`, in the order of the records."""
    make = MessageRows(session, source, hashes=hashes, columns=schema.names)
    kept = (one for one in records if shown is None or shown.rows[one.row])
    if table == "messages":
        return _batches(map(make.message, kept), make.columns, schema)
    return _batches((row for record in kept for row in make.tensors(record)), make.tensor_columns, schema)


def of_calls(calls: OfSession, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yields `calls`, in the order of time."""
    return _batches(in_order(call_rows(calls), schema.names), schema.names, schema)


def of_session(
    table: str, session: Session, shown: Shown | None, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yields any other table."""
    rows = next(rows for name, rows in session_rows(session, shown) if name == table)
    return _batches(in_order(rows, schema.names), schema.names, schema)


def arrow_table(
    table: str, session: Session, shown: Shown | None, records: Iterable[RpcRecord], source: CaptureBytes
) -> pa.Table:
    """Returns a table in memory; `KeyError` where there is none of that name."""
    schema = TABLES[table]
    if table in ("messages", "tensors"):
        batches = list(of_messages(table, session, shown, records, source, schema))
    elif table == "calls":
        with Temporary() as spool:
            calls = CallRows(spool)
            of_rows = sorted(records, key=lambda record: record.row)
            calls.feed(of_rows)
            batches = list(of_calls(calls.of(session, shown), schema))
    else:
        batches = list(of_session(table, session, shown, schema))
    return pa.Table.from_batches(batches, schema)


def _batches(rows: Iterable[ParquetRow], names: Sequence[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    there = iter(rows)
    while some := list(islice(there, BATCH_ROWS)):
        yield record_batch(some, names, schema)

"""One table of a run in memory, as `rpcinspect.Run.to_arrow` gives it.

In: the name of a table, a session, what of it is shown, all its records as they became complete. Out: an
Arrow table with the columns that Parquet files of the lake have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from rpcinspect.export.parquet.messages import MessageRows
from rpcinspect.export.parquet.schema import TABLES
from rpcinspect.export.parquet.session import call_rows, session_rows
from rpcinspect.export.parquet.table_file import ParquetRow
from rpcinspect.files.temporary import Temporary
from rpcinspect.filter.matches import Shown
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.model import Session
from rpcinspect.tcp.ranges import CaptureBytes
from rpcinspect.views.jsonl.calls import CallRows


def arrow_table(
    name: str, session: Session, shown: Shown | None, records: Sequence[RpcRecord], source: CaptureBytes
) -> pa.Table:
    """The table of that name; `KeyError` where there is none."""
    schema = TABLES[name]
    return pa.Table.from_pylist(list(_rows(name, session, shown, records, source)), schema)


def _rows(
    name: str, session: Session, shown: Shown | None, records: Sequence[RpcRecord], source: CaptureBytes
) -> Iterable[ParquetRow]:
    if name == "calls":
        return _calls(session, shown, records)
    if name in ("messages", "tensors"):
        make = MessageRows(session, source)
        order = session.order.tolist()
        kept = [records[row] for row in (order if shown is None else shown.of(order))]
        if name == "messages":
            return map(make.message, kept)
        return (row for record in kept for row in make.tensors(record))
    return next(rows for table, rows in session_rows(session, shown) if table == name)


def _calls(session: Session, shown: Shown | None, records: Sequence[RpcRecord]) -> Iterator[ParquetRow]:
    with Temporary() as spool:
        calls = CallRows(spool)
        calls.feed(records)
        yield from call_rows(calls.of(session, shown))

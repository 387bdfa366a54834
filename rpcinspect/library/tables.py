"""Tables of captures as streams of Arrow's record batches: what an engine that reads many captures needs.

In: the paths of one capture, or of several that are one session; the name of a table, a filter. Out: batches
in bounded memory, each row with the capture that it is of. docs/fleet.md shows engines that use it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from rpcinspect.capture.reader import PathName
from rpcinspect.errors import CaptureError, OutputError, RpcInspectError
from rpcinspect.files.temporary import Temporary
from rpcinspect.filter.grammar import parse
from rpcinspect.filter.selection import CallSelection, Filter, Selection
from rpcinspect.pipeline import Decoding, Options
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.views.jsonl.calls import CallRows

if TYPE_CHECKING:
    import pyarrow

    from rpcinspect.filter.matches import Shown

CAPTURE = "capture"
"""The first column: the path of the capture, of several as one session that of the first."""


@contextmanager
def needs_pyarrow() -> Iterator[None]:
    """Raises `OutputError` where what is imported meanwhile lacks pyarrow."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "pyarrow":
            raise
        raise OutputError("this needs pyarrow: pip install 'rpcinspect[parquet]'") from error


def table_schema(table: str, columns: Collection[str] | None = None) -> pyarrow.Schema:
    """Returns the columns of a table of docs/parquet.md, or those of them that are named, with `capture`
    before them. Raises `OutputError` for a name that is none, and where pyarrow is missing."""
    with needs_pyarrow():
        import pyarrow

        from rpcinspect.export.parquet.schema import TABLES
    if table not in TABLES:
        raise OutputError(f"there is no table {table}: there are {', '.join(TABLES)}")
    schema = pyarrow.schema([(CAPTURE, pyarrow.string()), *TABLES[table]])
    unknown = [] if columns is None else sorted(set(columns).difference(schema.names))
    if unknown:
        raise OutputError(f"the table {table} has no column {', '.join(unknown)}")
    return schema if columns is None else pyarrow.schema([one for one in schema if one.name in columns])


def record_batches(
    path: PathName | Sequence[PathName],
    table: str = "messages",
    filter: str | None = None,
    *,
    columns: Collection[str] | None = None,
    hashes: bool = True,
    unreadable: bool = False,
    options: Options | None = None,
) -> Iterator[pyarrow.RecordBatch]:
    """Yields one table of a capture, a few thousand rows at a time; several paths are one session.

    `filter`: as `-f` has it, asked of messages, of `calls` of request and answer together. `columns`: only
    these, so that no other is worked out. `unreadable`: a capture that can't be read has a row in `captures`
    with its `problem`, and none in other tables; else `CaptureError` is raised. Raises `FilterError`,
    `OutputError` at once, before anything is read.
    """
    paths = [os.fspath(one) for one in ([path] if isinstance(path, (str, os.PathLike)) else path)]
    schema = table_schema(table, columns)
    asked = None if filter is None else Filter(parse(filter), filter)
    batches = _read(paths, table, asked, schema, hashes, options)
    return _with_problem(batches, paths[0], table, schema) if unreadable else batches


def _with_problem(
    batches: Iterator[pyarrow.RecordBatch], path: str, table: str, schema: pyarrow.Schema
) -> Iterator[pyarrow.RecordBatch]:
    """Yields the same; for a capture that can't be read the row that says so."""
    from rpcinspect.export.parquet.table_file import record_batch

    try:
        yield from batches
    except (RpcInspectError, OSError) as error:
        if table == "captures":
            yield record_batch([(path, path, str(error))], (CAPTURE, "path", "problem"), schema)


def _read(
    paths: Sequence[str],
    table: str,
    asked: Filter | None,
    schema: pyarrow.Schema,
    hashes: bool,
    options: Options | None,
) -> Iterator[pyarrow.RecordBatch]:
    """Yields the batches of a table: of one pass over the capture, messages and tensors of another."""
    from rpcinspect.export.parquet import batches
    from rpcinspect.export.parquet.schema import TABLES

    inner = batches.narrowed(TABLES[table], schema.names)
    with ExitStack() as stack:
        calls = CallRows(stack.enter_context(Temporary())) if table == "calls" else None
        with Decoding(paths, options) as decoding:
            shown = _first_pass(decoding, asked, calls)
            session = decoding.session
        if calls is not None:
            found = batches.of_calls(calls.of(session, shown), inner)
        elif table in ("messages", "tensors"):
            again = stack.enter_context(Decoding(paths, options))
            records = _unchanged(again.records(), len(session.messages), paths[0])
            found = batches.of_messages(table, session, shown, records, again.bytes, inner, hashes=hashes)
        else:
            found = batches.of_session(table, session, shown, inner)
        for batch in found:
            yield batches.with_column(batch, CAPTURE, paths[0], schema)


def _first_pass(decoding: Decoding, asked: Filter | None, calls: CallRows | None) -> Shown | None:
    """Reads everything once, calls aside; returns what the filter picks."""
    kind = Selection if calls is None else CallSelection
    selection = None if asked is None else kind(asked, decoding.bytes)
    for records in decoding.blocks():
        if calls is not None:
            calls.feed(records)
        if selection is not None:
            for record in records:
                selection.feed(record)
    return None if selection is None else selection.finish(decoding.session)


def _unchanged(records: Iterator[RpcRecord], count: int, path: str) -> Iterator[RpcRecord]:
    """Yields the records of a second pass. Raises `CaptureError` where there are not as many as before."""
    seen = 0
    for seen, record in enumerate(records, 1):
        if seen <= count:
            yield record
    if seen != count:
        raise CaptureError(f"{path}: it has changed while it was read")

"""The tables that `export parquet` writes, and the type of each column; docs/parquet.md explains them.

Names are those of the contract, flattened with `_`; where that would make a word of SQL's, PyTorch's longer
name. They come from the tables of fields and of columns, which other views show.
"""

from __future__ import annotations

import pyarrow as pa

from rpcinspect.fields.table import MESSAGE, TENSOR
from rpcinspect.views.jsonl.calls import CALL
from rpcinspect.views.questions.session import CAPTURE, CONTEXT, EDGE, FINDING, PIPE, RREF, SPAN, WORKER

VERSION = "1"
"""Of all tables together: goes up when a column goes away or changes, not when one comes."""

TEXT = pa.string()
ARROW = {
    "text": TEXT,
    "bool": pa.bool_(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "double": pa.float64(),
    "timestamp": pa.timestamp("us", tz="UTC"),  # Spark reads no nanoseconds; `_ns` columns have them
    "list of text": pa.list_(TEXT),
    "list of int64": pa.list_(pa.int64()),
    "map": pa.map_(TEXT, TEXT),
}
"""What is in a column → its type."""

_FIELDS = {"messages": MESSAGE, "tensors": TENSOR}
_COLUMNS = {
    "captures": CAPTURE,
    "workers": WORKER,
    "pipes": PIPE,
    "messages": (),
    "tensors": (),
    "calls": CALL,
    "contexts": (*CONTEXT, *SPAN),
    "edges": EDGE,
    "rrefs": RREF,
    "findings": FINDING,
}


def _schema(table: str) -> pa.Schema:
    columns = {"message": "int64", "tensor": "int32"} if table == "tensors" else {}
    for field in _FIELDS.get(table, ()):
        columns |= field.columns
    columns |= {column.name: column.type for column in _COLUMNS[table] if column.type}
    return pa.schema([(name, ARROW[cells]) for name, cells in columns.items()])


TABLES: dict[str, pa.Schema] = {table: _schema(table) for table in _COLUMNS}

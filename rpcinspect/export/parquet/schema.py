"""The tables that `export parquet` writes, and the type of each column; docs/parquet.md explains them.

Names are those of the contract, flattened with `_`; where that would make a word of SQL's, PyTorch's longer
name. Those of messages and tensors come from the table of fields.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from rpcinspect.fields.field import Field
from rpcinspect.fields.table import MESSAGE, TENSOR

VERSION = "1"
"""Of all tables together: goes up when a column goes away or changes, not when one comes."""

TEXT, FLAG, NUMBER, INT64, FLOAT = pa.string(), pa.bool_(), pa.int32(), pa.int64(), pa.float64()
TIME = pa.timestamp("us", tz="UTC")
"""Spark reads no nanoseconds; `_ns` columns have them."""
TEXTS, INT64S = pa.list_(TEXT), pa.list_(INT64)
MAP = pa.map_(TEXT, TEXT)

ARROW = {
    "text": TEXT,
    "bool": FLAG,
    "int32": NUMBER,
    "int64": INT64,
    "double": FLOAT,
    "timestamp": TIME,
    "list of text": TEXTS,
    "list of int64": INT64S,
    "map": MAP,
}
"""What is in a field's column → its type."""


def _columns(fields: Sequence[Field]) -> dict[str, pa.DataType]:
    return {name: ARROW[cells] for field in fields for name, cells in field.columns.items()}


CAPTURES = {
    "number": NUMBER,
    "path": TEXT,
    "format": TEXT,
    "packets": INT64,
    "bytes": INT64,
    "first_time_ns": INT64,
    "last_time_ns": INT64,
    "reader": TEXT,
    "clock_offset_ns": INT64,
    "clock_uncertainty_ns": INT64,
    "clock_applied": FLAG,
}
WORKERS = {
    "name": TEXT,
    "id": INT64,
    "worker_group": INT64,
    "job": NUMBER,
    "addresses": TEXTS,
}
PIPES = {
    "pipe": NUMBER,
    "job": NUMBER,
    "client": TEXT,
    "server": TEXT,
    "transport": TEXT,
    "channels": MAP,
    "visible": TEXT,
    "reason": TEXT,
}
CALLS = {
    "request": INT64,
    "answer": INT64,
    "job": NUMBER,
    "caller": TEXT,
    "callee": TEXT,
    "call": TEXT,
    "method": TEXT,
    "class": TEXT,
    "function": TEXT,
    "args": TEXTS,
    "kwargs": MAP,
    "text": TEXT,
    "result": TEXT,
    "error_type": TEXT,
    "error_node_id": INT64,
    "error_text": TEXT,
    "type": TEXT,
    "context_id": INT64,
    "housekeeping": FLAG,
    "time_ns": INT64,
    "end_time_ns": INT64,
    "latency_ns": INT64,
    "parents": INT64S,
    "parent_certain": FLAG,
}
CONTEXTS = {
    "context_id": INT64,
    "job": NUMBER,
    "creator": TEXT,
    "workers": TEXTS,
    "edges": NUMBER,
    "cleanup": INT64S,
    "begin_ns": INT64,
    "end_ns": INT64,
    "duration_ns": INT64,
    "backward_ns": INT64,
    "gradients_expected": NUMBER,
    "gradients_came": NUMBER,
}
EDGES = {
    "context_id": INT64,
    "job": NUMBER,
    "autograd_message_id": INT64,
    "sender": TEXT,
    "receiver": TEXT,
    "forward": INT64,
    "begin_ns": INT64,
    "end_ns": INT64,
    "tensors_requiring_grad": NUMBER,
    "gradient_expected": FLAG,
    "gradients": NUMBER,
    "backward": INT64S,
}
RREFS = {
    "rref_created_on": INT64,
    "rref_local_id": INT64,
    "job": NUMBER,
    "owner": TEXT,
    "forks": TEXTS,
    "deleted": TEXTS,
    "live_forks": TEXTS,
}
FINDINGS = {
    "code": TEXT,
    "severity": TEXT,
    "messages": INT64S,
    "workers": TEXTS,
    "first_worker": TEXT,
    "text": TEXT,
    "remedy": TEXT,
}

TABLES: dict[str, pa.Schema] = {
    name: pa.schema(list(columns.items()))
    for name, columns in {
        "captures": CAPTURES,
        "workers": WORKERS,
        "pipes": PIPES,
        "messages": _columns(MESSAGE),
        "tensors": {"message": INT64, "tensor": NUMBER, **_columns(TENSOR)},
        "calls": CALLS,
        "contexts": CONTEXTS,
        "edges": EDGES,
        "rrefs": RREFS,
        "findings": FINDINGS,
    }.items()
}

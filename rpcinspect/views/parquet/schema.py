"""The tables that `--format parquet` writes, and the type of each column; docs/parquet.md explains them.

Names are those of the contract, flattened with `_`; where that would make a word of SQL's, PyTorch's longer
name. Lengths that were announced may be absurd: they are cut off at the largest int64 (`capped`), since no
engine has a type for all of them.
"""

from __future__ import annotations

import pyarrow as pa

VERSION = "1"
"""Of all tables together: goes up when a column goes away or changes, not when one comes."""

TEXT, FLAG, NUMBER, INT64, FLOAT = pa.string(), pa.bool_(), pa.int32(), pa.int64(), pa.float64()
TIME = pa.timestamp("us", tz="UTC")
"""Spark reads no nanoseconds; `_ns` columns have them."""
TEXTS, INT64S = pa.list_(TEXT), pa.list_(INT64)
MAP = pa.map_(TEXT, TEXT)

MAX_INT64 = (1 << 63) - 1

MESSAGES = {
    "index": INT64,
    "time": TIME,
    "time_ns": INT64,
    "end_time_ns": INT64,
    "pipe": NUMBER,
    "job": NUMBER,
    "src": TEXT,
    "dst": TEXT,
    "type": TEXT,
    "id": INT64,
    "request": FLAG,
    "answers": INT64,
    "answered_by": INT64,
    "latency_ns": INT64,
    "control": FLAG,
    "envelopes": TEXTS,
    "body_type": TEXT,
    "function": TEXT,
    "args": TEXTS,
    "kwargs": MAP,
    "async": FLAG,
    "value": TEXT,
    "failed": FLAG,
    "error_type": TEXT,
    "error_node_id": NUMBER,
    "error_text": TEXT,
    "context_id": INT64,
    "autograd_message_id": INT64,
    "from_worker_id": INT64,
    "device_map": MAP,
    "retain_graph": FLAG,
    "grads": INT64S,
    "rref_created_on": INT64,
    "rref_local_id": INT64,
    "fork_created_on": INT64,
    "fork_local_id": INT64,
    "profiling_created_on": INT64,
    "profiling_local_id": INT64,
    "tensors": NUMBER,
    "nbytes": INT64,
    "storage_nbytes": INT64,
    "missing_bytes": INT64,
    "problems": TEXTS,
    "findings": TEXTS,
    "location_capture": NUMBER,
    "location_packet": INT64,
    "location_flow": TEXT,
    "location_offset": INT64,
}
TENSORS = {
    "message": INT64,
    "tensor": NUMBER,
    "dtype": TEXT,
    "shape": INT64S,
    "stride": INT64S,
    "storage_offset": INT64,
    "layout": TEXT,
    "device": TEXT,
    "target_device": TEXT,
    "requires_grad": FLAG,
    "parameter": FLAG,
    "conj": FLAG,
    "neg": FLAG,
    "quantizer_scheme": TEXT,
    "quantizer_scale": FLOAT,
    "quantizer_zero_point": INT64,
    "quantizer_axis": INT64,
    "part": TEXT,
    "part_of": NUMBER,
    "numel": INT64,
    "nbytes": INT64,
    "storage": INT64,
    "storage_nbytes": INT64,
    "missing_bytes": INT64,
    "placement": TEXT,
    "sha256": TEXT,
}
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
        "messages": MESSAGES,
        "tensors": TENSORS,
        "contexts": CONTEXTS,
        "edges": EDGES,
        "rrefs": RREFS,
        "findings": FINDINGS,
    }.items()
}


def capped(length: int) -> int:
    """A length as an int64."""
    return min(length, MAX_INT64)

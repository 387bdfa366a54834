"""Deterministic jobs whose calls overlap, one module each.

Each has `LABELS` (calls of which one may be changed), `work()` (what rank 0 does) and, where others have a
program of their own too, `beside(rank)`. Sizes of pauses are drawn afresh in each run, so orders differ from
run to run; what is sent does not.
"""

KINDS = (
    "pipeline_context",
    "pipeline_plain",
    "shared_rref",
    "nested",
    "fanout",
    "proxies",
    "futures",
    "remote_module",
    "script_async",
    "profiled",
    "sparse",
    "data_parallel",
    "dynamic",
    "background",
    "queued",
)

TELLING = frozenset(
    {"pipeline_context", "pipeline_plain", "nested", "remote_module", "profiled", "sparse", "dynamic"}
)
"""Those whose nested calls carry what tells them apart: a value of the request's arguments, a tensor, an RRef
that it brought, a context. Those of the others carry only what was computed from the request."""

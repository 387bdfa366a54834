"""The output contract, schema 1, as tables: every key of `decode --format jsonl` with what its value may be.

Written down from the contract's own text. Fields may be added to the output, none of these may change.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]


def check(value: Any, spec: Any, where: str) -> None:
    """`spec`: a type; None; a set of allowed values; a tuple of alternatives; [spec] of every item; a dict of
    the keys that must be there; a function that says yes.
    """
    if isinstance(spec, tuple):
        assert any(conforms(value, alternative) for alternative in spec), f"{where}: {value!r}"
    elif isinstance(spec, list):
        assert type(value) is list, where
        for i, item in enumerate(value):
            check(item, spec[0], f"{where}[{i}]")
    elif isinstance(spec, dict):
        assert type(value) is dict, where
        for key, inner in spec.items():
            assert key in value, f"{where} lacks {key}"
            check(value[key], inner, f"{where}.{key}")
    elif isinstance(spec, (set, frozenset)):
        assert value in spec, f"{where}: {value!r}"
    elif spec is None:
        assert value is None, where
    elif isinstance(spec, type):
        assert type(value) is spec, f"{where}: {value!r}"  # a bool is no int here
    else:
        assert spec(value), f"{where}: {value!r}"


def conforms(value: Any, spec: Any) -> bool:
    try:
        check(value, spec, "")
    except AssertionError:
        return False
    return True


def matches(pattern: str) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and re.fullmatch(pattern, value) is not None


def map_of(spec: Any) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, dict) and all(conforms(item, spec) for item in value.values())


def pair(value: Any) -> bool:
    """[worker, local id]"""
    return isinstance(value, list) and len(value) == 2 and all(conforms(item, count) for item in value)


def count(value: Any) -> bool:
    return type(value) is int and value >= 0


def end(value: Any) -> bool:
    """A name, `worker:ID` or `ip:port`: never a Python None or an empty text."""
    return type(value) is str and bool(value) and value != "None"


MAYBE_COUNT = (count, None)
MAYBE_TEXT = (str, None)
ADDRESS = matches(r"\d+\.\d+\.\d+\.\d+:\d+|\[[0-9a-f:.]+\]:\d+")
FLOW = matches(r"[\d.]+:\d+>[\d.]+:\d+|\[[0-9a-f:.]+\]:\d+>\[[0-9a-f:.]+\]:\d+")
NUMBER = (int, float, {"nan", "inf", "-inf"})
TYPE = matches(r"[A-Z][A-Z_]+[A-Z]")

CAPTURE = {
    "schema": {1},
    "capture": count,
    "path": str,
    "format": {"pcap", "pcapng"},
    "packets": count,
    "bytes": count,
    "first_time_ns": MAYBE_COUNT,
    "last_time_ns": MAYBE_COUNT,
    "reader": {"native", "tshark", "log"},
}
WORKER = {"name": MAYBE_TEXT, "id": MAYBE_COUNT, "group": count, "addresses": [ADDRESS]}
PIPE = {
    "pipe": count,
    "client": end,
    "server": end,
    "transport": str,
    "channels": map_of(str),
    "visible": {"full", "no-tensors", "handshake-only", "no-handshake"},
    "reason": MAYBE_TEXT,
}
PROBLEM = {"layer": str, "reason": str, "packet": MAYBE_COUNT, "offset": MAYBE_COUNT}
TENSOR = {
    "dtype": matches(r"[a-z]\w+"),
    "shape": [count],
    "stride": [count],
    "offset": count,
    "layout": {"strided", "sparse_coo", "sparse_csr"},
    "device": matches(r"[a-z]+(:\d+)?"),
    "target_device": (matches(r"[a-z]+(:\d+)?"), None),
    "requires_grad": bool,
    "parameter": bool,
    "conj": bool,
    "neg": bool,
    "quantizer": (
        None,
        {"scheme": str, "scale": (None, NUMBER), "zero_point": (None, int), "axis": MAYBE_COUNT},
    ),
    "parts": map_of(count),
    "storage": MAYBE_COUNT,
    "storage_nbytes": MAYBE_COUNT,
    "missing_bytes": count,
    "placement": {"certain", "uncertain", "missing"},
    "sha256": (matches("[0-9a-f]{64}"), None),
}
MESSAGE = {
    "index": count,
    "time_ns": count,
    "end_time_ns": count,
    "pipe": count,
    "src": end,
    "dst": end,
    "type": TYPE,
    "id": int,
    "request": bool,
    "answers": MAYBE_COUNT,
    "control": bool,
    "envelopes": [{"type": TYPE, "wrapped_type": TYPE}],
    "body": {"type": TYPE},
    "tensors": [TENSOR],
    "problems": [PROBLEM],
    "location": {
        "capture": count,
        "packet": count,
        "flow": FLOW,
        "offset": count,
        "first_packet": count,
        "last_packet": count,
    },
}
EVENT = {
    "kind": {"mark", "push", "pop", "alloc"},
    "name": str,
    "thread_id": int,
    "handle": int,
    "node_id": int,
    "cpu_ns": int,
    "cpu_memory": int,
    "cuda_recorded": bool,
    "cuda_memory": int,
    "cuda_device": int,
    "cuda_us": NUMBER,
    "shapes": [[int]],
}
AUTOGRAD = {
    "context_id": int,
    "autograd_message_id": int,
    "from_worker_id": int,
    "device_map": map_of(str),
}
ENVELOPES = {
    "RUN_WITH_PROFILING_REQ": {
        "profiling_id": pair,
        "config": {"state": int, "report_input_shapes": bool, "profile_memory": bool},
    },
    "RUN_WITH_PROFILING_RESP": {"profiling_id": pair, "events": [EVENT]},
    "FORWARD_AUTOGRAD_REQ": AUTOGRAD,
    "FORWARD_AUTOGRAD_RESP": AUTOGRAD,
}
ERROR = {"type": MAYBE_TEXT, "node_id": MAYBE_COUNT, "text": str}
PYTHON_CALL = {"function": str, "args": [str], "kwargs": map_of(str), "async": bool}
SCRIPT_CALL = {"function": str, "schema": MAYBE_TEXT, "args": [str], "async": bool}
REMOTE = {"rref_id": pair, "fork_id": pair}
RESULT = {"value": MAYBE_TEXT, "error": (None, ERROR)}
BODIES: dict[str, Json] = {
    "PYTHON_CALL": PYTHON_CALL,
    "SCRIPT_CALL": SCRIPT_CALL,
    "PYTHON_REMOTE_CALL": {**PYTHON_CALL, **REMOTE},
    "SCRIPT_REMOTE_CALL": {**SCRIPT_CALL, **REMOTE},
    "PYTHON_RET": RESULT,
    "SCRIPT_RET": RESULT,
    "PYTHON_RREF_FETCH_RET": RESULT,
    "SCRIPT_RREF_FETCH_RET": RESULT,
    "EXCEPTION": {"error": ERROR},
    "BACKWARD_AUTOGRAD_REQ": {
        "context_id": int,
        "autograd_message_id": int,
        "retain_graph": bool,
        "grads": [count],
    },
    "BACKWARD_AUTOGRAD_RESP": {},
    "RREF_BACKWARD_REQ": {"rref_id": pair, "context_id": int, "retain_graph": bool},
    "RREF_BACKWARD_RESP": {},
    "CLEANUP_AUTOGRAD_CONTEXT_REQ": {"context_id": int},
    "CLEANUP_AUTOGRAD_CONTEXT_RESP": {},
    "REMOTE_RET": REMOTE,
    "RREF_FORK_REQUEST": REMOTE,
    "RREF_USER_DELETE": REMOTE,
    "RREF_CHILD_ACCEPT": {"fork_id": pair},  # the wire has no more
    "RREF_ACK": {},
    "PYTHON_RREF_FETCH_CALL": {"rref_id": pair},
    "SCRIPT_RREF_FETCH_CALL": {"rref_id": pair},
}
UNKNOWN = {"payload_hex": matches("([0-9a-f]{2})*")}
CONTEXT = {
    "context_id": int,
    "creator": end,
    "workers": [end],
    "edges": [
        {
            "autograd_message_id": int,
            "sender": end,
            "receiver": end,
            "forward": count,
            "tensors_requiring_grad": count,
            "backward": [count],
        }
    ],
    "cleanup": [count],
}
RREF = {"rref_id": pair, "owner": (end, None), "forks": [pair], "deleted": [pair], "live_forks": [pair]}
CODES = {
    "error-response": {"error"},
    "unanswered-request": {"error", "info"},
    "missing-gradient": {"error"},
    "dangling-send": {"error"},
    "lost-edge": {"warning"},
    "detached-parameter": {"warning"},
    "stale-gradient": {"warning"},
    "leaked-context": {"warning"},
    "leaked-rref": {"warning"},
    "zero-gradient": {"info"},
    "nonfinite-tensor": {"warning"},
    "device-map-missing": {"error"},
    "invisible-transport": {"info", "error"},
    "capture-gap": {"warning"},
    "truncated-packets": {"warning"},
    "conflicting-overlap": {"warning"},
    "unsafe-pickle": {"error", "info"},
    "dangerous-call": {"error"},
    "optimizer-without-gradients": {"warning"},
    "failed-init": {"error"},
    "no-rpc": {"error"},
    "unexpected-envelope": {"warning"},  # an addition of ours, as are those that follow
    "startup-skew": {"info"},
    "sequential-awaits": {"info"},
    "empty-results": {"info"},
}
FINDING = {
    "code": set(CODES),
    "severity": {"error", "warning", "info"},
    "messages": [count],
    "workers": [end],
    "text": str,
    "remedy": MAYBE_TEXT,
}
SUMMARY = {
    "messages": count,
    "by_type": map_of(count),
    "problems": count,
    "bytes": {"rpc": count, "tensors": count, "missing": count, "skipped": count},
}
KINDS: dict[str, Json] = {
    "capture": CAPTURE,
    "worker": WORKER,
    "pipe": PIPE,
    "message": MESSAGE,
    "context": CONTEXT,
    "rref": RREF,
    "finding": FINDING,
    "summary": SUMMARY,
}

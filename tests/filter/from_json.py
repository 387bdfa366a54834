"""What each field of a filter is, taken from jsonl's lines: the other side of the tests."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rpcinspect.fields.table import FIELDS
from rpcinspect.filter.grammar import parse
from rpcinspect.filter.selection import Filter, Selection
from rpcinspect.pipeline import Decoding
from tests.decoded import Decoded, Json, decode

Of = Callable[[Json, Decoded], list[Any]]


def read_filter(text: str) -> Filter:
    """The filter of `-f TEXT`."""
    return Filter(parse(text), text)


def picked(text: str, *paths: Path) -> list[int]:
    """Indexes of the messages that a filter picks."""
    with Decoding([str(path) for path in paths]) as decoding:
        selection = Selection(read_filter(text), decoding.bytes)
        for record in decoding.records():
            selection.feed(record)
        shown = selection.finish(decoding.session)
        return [int(decoding.session.index[row]) for row in shown.of(decoding.session.order.tolist())]


def values(*paths: Path) -> list[dict[str, list[Any]]]:
    """Of every message, what it has of every field, as jsonl tells it."""
    decoded = decode(*paths)
    return [{name: of(message, decoded) for name, of in FROM_JSON.items()} for message in decoded.messages]


def _there(value: Any) -> list[Any]:
    return [] if value is None else [value]


def _answer(m: Json, d: Decoded) -> Json | None:
    return d.answer(m) if m["request"] else None


def _latency(m: Json, d: Decoded) -> list[int]:
    if m["answers"] is not None:
        return [m["end_time_ns"] - d.messages[m["answers"]]["time_ns"]]
    answer = _answer(m, d)
    return [] if answer is None else [answer["end_time_ns"] - m["time_ns"]]


def _body(name: str) -> Of:
    return lambda m, d: _there(m["body"].get(name))


def _pair(name: str) -> Of:
    return lambda m, d: [tuple(pair) for pair in _there(m["body"].get(name))]


def _functions(m: Json, d: Decoded) -> list[Any]:
    """The function, and the method or class of `call` where that is another one."""
    function, call = m["body"].get("function"), m["call"]
    if call is None or call == function:
        return _there(function)
    whole = function.endswith(("_create_module", "_create_module_with_interface")) or (
        m["body"]["type"].startswith("SCRIPT") and not function.endswith("_remote_forward")
    )
    return [function, call if whole else call.rpartition(".")[2]]


def _envelopes(name: str) -> Of:
    return lambda m, d: [e[name] for e in m["envelopes"] if name in e]


def _error(name: str) -> Of:
    return lambda m, d: _there((m["body"].get("error") or {}).get(name))


def _tensors(name: str) -> Of:
    return lambda m, d: [t[name] for t in m["tensors"] if t[name] is not None]


def _findings(m: Json, d: Decoded) -> list[str]:
    return sorted({f["code"] for f in d.of("finding") if m["index"] in f["messages"]})


FROM_JSON: dict[str, Of] = {
    "type": lambda m, d: [m["type"]],
    "body": lambda m, d: [m["body"]["type"]],
    "envelope": _envelopes("type"),
    "src": lambda m, d: [m["src"]],
    "dst": lambda m, d: [m["dst"]],
    "worker": lambda m, d: sorted([m["src"], m["dst"]]),
    "request": lambda m, d: [m["request"]],
    "control": lambda m, d: [m["control"]],
    "error": lambda m, d: [m["body"].get("error") is not None],
    "answers": lambda m, d: _there(m["answers"]),
    "answered": lambda m, d: [_answer(m, d) is not None] if m["request"] else [],
    "latency": _latency,
    "finding": _findings,
    "index": lambda m, d: [m["index"]],
    "time": lambda m, d: [m["time_ns"] - d.messages[0]["time_ns"]],
    "time_ns": lambda m, d: [m["time_ns"]],
    "took": lambda m, d: [m["end_time_ns"] - m["time_ns"]],
    "id": lambda m, d: [m["id"]],
    "pipe": lambda m, d: [m["pipe"]],
    "capture": lambda m, d: [m["location"]["capture"]],
    "packet": lambda m, d: [m["location"]["packet"]],
    "first_packet": lambda m, d: [m["location"]["first_packet"]],
    "last_packet": lambda m, d: [m["location"]["last_packet"]],
    "flow": lambda m, d: [m["location"]["flow"]],
    "fn": _functions,
    "call": lambda m, d: _there(m["call"]),
    "housekeeping": lambda m, d: [m["housekeeping"]],
    "async": _body("async"),
    "arg": lambda m, d: m["body"].get("args", []),
    "kwarg": lambda m, d: [f"{k}={v}" for k, v in m["body"].get("kwargs", {}).items()],
    "value": _body("value"),
    "error.type": _error("type"),
    "error.text": _error("text"),
    "error.node_id": _error("node_id"),
    "ctx": lambda m, d: _envelopes("context_id")(m, d) + _body("context_id")(m, d),
    "autograd_message_id": lambda m, d: (
        _envelopes("autograd_message_id")(m, d) + _body("autograd_message_id")(m, d)
    ),
    "from_worker_id": _envelopes("from_worker_id"),
    "device_map": lambda m, d: [
        f"{a}->{b}" for e in m["envelopes"] if "device_map" in e for a, b in e["device_map"].items()
    ],
    "retain_graph": _body("retain_graph"),
    "rref_id": _pair("rref_id"),
    "fork_id": _pair("fork_id"),
    "profiling_id": lambda m, d: [tuple(e["profiling_id"]) for e in m["envelopes"] if "profiling_id" in e],
    "event": lambda m, d: [event["name"] for e in m["envelopes"] for event in e.get("events", ())],
    "tensors": lambda m, d: [len(m["tensors"])],
    "tensor.dtype": _tensors("dtype"),
    "tensor.shape": lambda m, d: [tuple(t["shape"]) for t in m["tensors"]],
    "tensor.dim": lambda m, d: [len(t["shape"]) for t in m["tensors"]],
    "tensor.numel": lambda m, d: [math.prod(t["shape"]) for t in m["tensors"]],
    "tensor.storage_nbytes": _tensors("storage_nbytes"),
    "tensor.layout": _tensors("layout"),
    "tensor.device": _tensors("device"),
    "tensor.target_device": _tensors("target_device"),
    "tensor.requires_grad": _tensors("requires_grad"),
    "tensor.parameter": _tensors("parameter"),
    "tensor.conj": _tensors("conj"),
    "tensor.neg": _tensors("neg"),
    "tensor.quantizer": lambda m, d: [t["quantizer"]["scheme"] for t in m["tensors"] if t["quantizer"]],
    "tensor.placement": _tensors("placement"),
    "tensor.missing": lambda m, d: [
        t["missing_bytes"] > 0 or t["placement"] == "missing" for t in m["tensors"]
    ],
    "tensor.missing_bytes": _tensors("missing_bytes"),
    "tensor.sha256": _tensors("sha256"),
    "problem": lambda m, d: [p["reason"] for p in m["problems"]],
    "problem.layer": lambda m, d: [p["layer"] for p in m["problems"]],
}

NOT_IN_JSON = {"job", "nbytes", "tensor.nbytes"}
"""Fields that no line has; they have tests of their own."""

MISSING = {field.name for field in FIELDS} ^ {*FROM_JSON, *NOT_IN_JSON}
assert not MISSING, f"FROM_JSON or NOT_IN_JSON of tests/filter/from_json.py: what of {sorted(MISSING)}?"

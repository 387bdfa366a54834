"""The fields of messages and of their tensors: the one list of them.

A field that is added here is in filters, in `--fields` and in the tables of Parquet; docs/parquet.md and
docs/reference/fields.md (`make docs` writes it) list it. Its class says whether lines of JSON have it, too,
under its key:

`OfTensor`  a value of each tensor: in JSON, in the tensor's object
`Seen`      a value that other messages decide, such as the answer's number: in JSON; it needs a property of
            its name in `AtTheEnd` of fields/session.py, and in `SoFar` if it is known while messages come
`Field`     a value that a message has by itself: in JSON its envelopes and body have it, where
            views/jsonl/message.py and fields/body.py put it; `OfPlace` is one of its `location`

Nothing here asks for what others have rendered.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rpcinspect.fields.field import Field, OfPlace, OfTensor, Seen, To
from rpcinspect.fields.kinds import CONTEXT, DURATION, FLAG, KINDS, NUMBER, PAIR, SHAPE, SIZE, TEXT, TYPE
from rpcinspect.fields.message import MessageValues
from rpcinspect.fields.plain import Picked, number
from rpcinspect.rpc.message import is_request
from rpcinspect.rpc.questions import failed, missing_bytes, size_of
from rpcinspect.rpc.types import GloballyUniqueId
from rpcinspect.run.message import Tensor

FILTER, JSON, TABLE = To.FILTER, To.JSON, To.TABLE


def _command(*names: str) -> Callable[[MessageValues], Any]:
    """Attributes of the command, as far as it has them; ids as pairs."""

    def get(message: MessageValues) -> Any:
        found = [getattr(message.command, name) for name in names if hasattr(message.command, name)]
        return tuple([one.to_value() if isinstance(one, GloballyUniqueId) else one for one in found])

    return get


def _body(name: str) -> Callable[[MessageValues], Any]:
    """A field of the body: each item of a list, each pair of a dict."""

    def get(message: MessageValues) -> Any:
        value = message.body.get(name)
        if isinstance(value, dict):
            return tuple(value.items())
        return tuple(value) if isinstance(value, list) else value

    return get


def _error(name: str) -> Callable[[MessageValues], Any]:
    """Returns a getter of a field of the error that an answer reports."""
    return lambda message: (message.body.get("error") or {}).get(name)


def _quantizer(name: str) -> Callable[[Tensor], Any]:
    """An attribute of the quantizer of a tensor that has one."""
    return lambda tensor: getattr(tensor.meta.quantizer, name, None)


_quantizer_json = Picked("scheme scale zero_point axis", scale=number)


MESSAGE: tuple[Field, ...] = (
    Seen("index", NUMBER, "the message's number, as the table shows it", ">= 100"),
    Seen("time", DURATION, "begin, counted from that of the first message", "> 1.5s", to=FILTER),
    Field(
        "begin",
        NUMBER,
        "begin, in microseconds",
        of=lambda m: m.tp.first_ns // 1000,
        renamed="time",
        cells="timestamp",
    ),
    Seen("time_ns", NUMBER, "begin, nanoseconds since 1970", "> 1700000000000000000", of="tp.first_ns"),
    Seen("end_time_ns", NUMBER, "its last captured byte, tensors included"),
    Field(
        "took",
        DURATION,
        "from its first captured byte to its last",
        "> 1ms",
        lambda m: m.tp.last_ns - m.tp.first_ns,
        FILTER,
    ),
    Seen("pipe", NUMBER, "number of the pipe", "== 0", cells="int32", of="pipe"),
    Seen(
        "job",
        NUMBER,
        "number of the job; ids are unique within a job",
        "== 1",
        to=TABLE,
        streams=False,
        cells="int32",
    ),
    Seen("src", TEXT, "who sends", "== worker0"),
    Seen("dst", TEXT, "who receives", '~ "^trainer"'),
    Seen("worker", TEXT, "who sends or receives", "in {ps, master}", to=FILTER),
    Seen(
        "type",
        TYPE,
        "the message's type; with envelopes, of the outermost",
        "== FORWARD_AUTOGRAD_REQ",
        of="type",
    ),
    Seen("id", NUMBER, "the id that request and answer share on a pipe", "== 7", of="rpc.message.id"),
    Seen("request", FLAG, "is a request", "", of=lambda m: is_request(m.rpc.message.type)),
    Seen("answers", NUMBER, "index of the request that it answers", "== 6"),
    Seen("answered", FLAG, "a request that has an answer", "", to=FILTER, streams=False),
    Seen("answered_by", NUMBER, "of a request: index of its answer"),
    Seen(
        "latency",
        DURATION,
        "from the request's first byte to its answer's last; of both",
        "> 50ms",
        to=FILTER,
    ),
    Seen("latency_ns", NUMBER, "of a request: nanoseconds to the last byte of its answer"),
    Seen("parents", NUMBER, "the requests that it was, or may have been, sent for", to=JSON),
    Seen("parent_certain", FLAG, "it was certainly sent for these, or for none", to=JSON),
    Seen("call", TEXT, "who is called, in readable form", '~ "Head.forward"', to=JSON, streams=False),
    Seen("housekeeping", FLAG, "keeps references and contexts, or is control", "", to=JSON),
    Seen("control", FLAG, "is of the agents' own calls, or an answer to one", ""),
    Seen("failure", TEXT, "why its caller gave up, as logs say", to=JSON),
    Field(
        "envelope", TYPE, "the types of the envelopes", "== RUN_WITH_PROFILING_REQ", "envelopes", plural=True
    ),
    Field(
        "body",
        TYPE,
        "the type of what is inside of all envelopes",
        "== PYTHON_CALL",
        "body_type",
        renamed="body_type",
    ),
    Field("fn", TEXT, "the function, and the one behind torch's helper", '~ "forward"', "functions", FILTER),
    Field("function", TEXT, "what is called, also where it has no name", of=_body("function")),
    Field("arg", TEXT, "each argument, as decode shows it", '~ "^tensor#0"', _body("args"), plural=True),
    Field("kwarg", TEXT, "each keyword argument, NAME=VALUE", '~ "^gain="', "keywords", FILTER),
    Field("kwargs", TEXT, "each keyword argument", of=_body("kwargs"), cells="map"),
    Field("async", FLAG, "the function is an async_execution one", "", _command("is_async_execution")),
    Field("value", TEXT, "what an answer returns", '~ "^tensor#"', _body("value")),
    Field("error", FLAG, "is an answer that reports an error", "", "reports_error", FILTER),
    Field(
        "failed", FLAG, "is an answer that reports an error, or an EXCEPTION", of=lambda m: failed(m.record)
    ),
    Field("error.type", TEXT, "type of the exception", "== builtins.KeyError", _error("type")),
    Field(
        "error.node_id",
        NUMBER,
        "id of the worker on which it was raised",
        "== 1",
        _error("node_id"),
        cells="int32",
    ),
    Field("error.text", TEXT, "the whole text of the error", '~ "(?i)timeout"', _error("text")),
    Field(
        "ctx",
        CONTEXT,
        "autograd context: of an envelope, a gradient, a cleanup",
        "== 0:3",
        "contexts",
        renamed="context_id",
    ),
    Field("autograd_message_id", CONTEXT, "autograd edge: of an envelope or a gradient", "== 1:2", "edges"),
    Field("from_worker_id", NUMBER, "sender's id in an autograd envelope", "== 0", "senders", FILTER),
    Field("sender", NUMBER, "id of the sender, in an envelope or a fetch", renamed="from_worker_id"),
    Field("device_map", TEXT, "each pair of an envelope's map", '== "cpu->cuda:0"', "device_pairs", FILTER),
    Field(
        "devices",
        TEXT,
        "the innermost envelope's map: the sender's device → the receiver's",
        renamed="device_map",
        cells="map",
    ),
    Field("retain_graph", FLAG, "of a gradient", "", _command("retain_graph")),
    Field("grads", NUMBER, "of a gradient: which of its tensors", of=_body("grads"), cells="list of int64"),
    Field(
        "rref_id",
        PAIR,
        "the remote reference that a command names",
        "== 0:3",
        _command("ret_rref_id", "rref_id"),
    ),
    Field("fork_id", PAIR, "the fork that a command names", "== 0:4", _command("ret_fork_id", "fork_id")),
    Field("profiling_id", PAIR, "id of a profiled call", "== 0:1", "profiling_ids"),
    Field("event", TEXT, "names of the events of a profiled answer", '== "aten::mm"', "events", FILTER),
    Field("tensors", NUMBER, "how many tensors it has", ">= 2", "tensor_count", cells="int32"),
    Field("nbytes", SIZE, "all of it: descriptor, payloads, tensors", "> 1MB", lambda m: size_of(m.record)),
    Field(
        "storage_nbytes",
        SIZE,
        "of these, bytes of tensors",
        of=lambda m: sum([one.descriptor.length for one in m.tp.tensors]),
    ),
    Field("missing_bytes", SIZE, "of these, bytes not captured", of=lambda m: missing_bytes(m.record)),
    Field("problem", TEXT, "what is wrong with the message", '~ "not captured"', "problems", plural=True),
    Field("problem.layer", TEXT, "the layer that found it", "== pickle", "problem_layers", FILTER),
    Seen(
        "finding",
        TEXT,
        "codes of the findings that name the message",
        "== error-response",
        to=TABLE,
        plural=True,
        streams=False,
    ),
    OfPlace(
        "capture",
        NUMBER,
        "number of the capture, in the order of the command line",
        "== 1",
        "tp.capture",
        cells="int32",
    ),
    OfPlace("packet", NUMBER, "packet of its first byte, as Wireshark counts", "> 500"),
    OfPlace("first_packet", NUMBER, "lowest packet that holds bytes of it, tensors included", "< 500"),
    OfPlace("last_packet", NUMBER, "highest packet that holds bytes of it, tensors included", ">= 500"),
    OfPlace("flow", TEXT, "addresses: ip:port>ip:port", '~ ":29500>"'),
    OfPlace("offset", NUMBER, "bytes from the beginning of that direction's stream", of="tp.offset"),
)
"""Fields of messages, in the order of JSON and of Parquet."""

TENSOR: tuple[OfTensor, ...] = (
    OfTensor("dtype", TEXT, "torch's name of the element type", "in {float16, bfloat16}", "meta.dtype"),
    OfTensor("shape", SHAPE, "sizes", "== [*, 4]", "meta.sizes"),
    OfTensor("dim", NUMBER, "how many dimensions", "== 0", lambda t: len(t.meta.sizes), FILTER),
    OfTensor("stride", SHAPE, "in elements", of="meta.strides"),
    OfTensor("offset", NUMBER, "in elements", of="meta.storage_offset", renamed="storage_offset"),
    OfTensor("layout", TEXT, "strided, sparse_coo, …", "== sparse_coo", "meta.layout"),
    OfTensor("device", TEXT, "the sender's device", "== cuda:0", "meta.device"),
    OfTensor("target_device", TEXT, "the receiver's device", "!= cpu", "place.target_device"),
    OfTensor("requires_grad", FLAG, "requires_grad", "", "meta.requires_grad"),
    OfTensor("parameter", FLAG, "is an nn.Parameter", ""),
    OfTensor("conj", FLAG, "its conjugate bit", "", "meta.conj"),
    OfTensor("neg", FLAG, "its negative bit", "", "meta.neg"),
    OfTensor(
        "quantizer",
        TEXT,
        "scheme of a quantized one",
        "== per_tensor_affine",
        _quantizer("scheme"),
        TABLE,
        "quantizer_scheme",
    ),
    OfTensor(
        "quantizer",
        TEXT,
        "scheme, scale, zero_point and axis of a quantized one",
        of=lambda t: t.meta.quantizer and _quantizer_json(t.meta.quantizer),
        to=JSON,
    ),
    OfTensor("quantizer_scale", NUMBER, "its scale", of=_quantizer("scale"), to=TABLE, cells="double"),
    OfTensor("quantizer_zero_point", NUMBER, "its zero point", of=_quantizer("zero_point"), to=TABLE),
    OfTensor("quantizer_axis", NUMBER, "the dimension of its channels", of=_quantizer("axis"), to=TABLE),
    OfTensor(
        "parts",
        TEXT,
        "of a sparse or per-channel quantized one: its parts",
        of=lambda t: dict(t.meta.parts),
        to=JSON,
    ),
    OfTensor("part", TEXT, "of a part of another tensor: indices, values, …", to=TABLE),
    OfTensor(
        "part_of",
        NUMBER,
        "number of the tensor that it is a part of",
        of="meta.part_of",
        to=TABLE,
        cells="int32",
    ),
    OfTensor("numel", NUMBER, "how many elements", "> 1000", lambda t: math.prod(t.meta.sizes), TABLE),
    OfTensor(
        "nbytes",
        SIZE,
        "bytes of its elements; none of sparse ones",
        "> 1MB",
        lambda t: t.nbytes if t.meta.layout == "strided" else None,
        FILTER,
    ),
    OfTensor("nbytes", SIZE, "bytes of its elements, of a sparse one those of its parts", to=TABLE),
    OfTensor(
        "storage", NUMBER, "number of its storage in the message; several may share one", of="meta.storage"
    ),
    OfTensor(
        "storage_nbytes",
        SIZE,
        "bytes of its storage, which is what travels",
        "> 4KiB",
        "place.storage_nbytes",
    ),
    OfTensor("missing", FLAG, "bytes of its storage were not captured", "", "is_missing", FILTER),
    OfTensor(
        "missing_bytes", SIZE, "bytes of its storage that were not captured", "> 0", "place.missing_bytes"
    ),
    OfTensor("placement", TEXT, "certain, uncertain or missing", "== uncertain", "place.placement.value"),
    OfTensor("sha256", TEXT, "hash of its elements, as jsonl has it", '~ "^e3b0"'),
)
"""Fields of tensors."""

FIELDS: tuple[Field, ...] = tuple([field for field in (*MESSAGE, *TENSOR) if field.test is not None])
"""Fields that a filter may name."""
ALIASES = {"context_id": "ctx", "function": "fn", "from": "src", "to": "dst"}
"""Names that jsonl, or the table's heading, has for fields which are shorter here."""
BY_NAME: dict[str, Field] = {field.name: field for field in FIELDS}
BY_NAME |= {alias: BY_NAME[name] for alias, name in ALIASES.items()}


def field_lines() -> Iterator[str]:
    """Yields the lines of `--fields`: fields with kinds and examples, then the values of each kind."""
    names = {field.name: field.name for field in FIELDS}
    for alias, name in ALIASES.items():
        names[name] += f", {alias}"
    yield from _columns(
        ("field", "kind", "what it is", "example"),
        [(names[field.name], field.kind.name, field.about, field.example) for field in FIELDS],
    )
    yield ""
    kinds = {(kind.name, kind.unit, " ".join(sorted(kind.operators))) for kind in KINDS}
    yield from _columns(("kind", "values", "operators"), sorted(kinds))


def _columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for row in (header, *rows):
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()

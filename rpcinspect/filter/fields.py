"""The fields that a filter may name: one table, from which `--fields`, the check of a filter and its
evaluation come.

A field gives a tuple of values of a message: none where the message lacks it, several
where it has several, as `tensor.dtype`.
A field that the message alone decides has `said`; one that other messages decide, too (names,
numbers, answers, findings), has `known`, and is asked for at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from msgspec import Struct

from rpcinspect.filter import said
from rpcinspect.filter.kinds import CONTEXT, DURATION, FLAG, NUMBER, PAIR, SHAPE, SIZE, TEXT, TYPE, Kind
from rpcinspect.filter.known import Known
from rpcinspect.filter.said import Reader
from rpcinspect.rpc.record import RpcRecord

Values: TypeAlias = tuple[Any, ...]
Said: TypeAlias = Callable[[RpcRecord, Reader], Values]
KnownOf: TypeAlias = Callable[[Known], Callable[[int], Values]]


class Field(Struct, frozen=True, eq=False):
    """One of them."""

    name: str
    kind: Kind
    about: str
    example: str
    """A filter with it."""
    said: Said | None = None
    known: KnownOf | None = None
    streams: bool = True
    """Whether it says something before the end of the captures."""


FIELDS: tuple[Field, ...] = (
    Field(
        "type",
        TYPE,
        "the message's type; with envelopes, of the outermost",
        "type == FORWARD_AUTOGRAD_REQ",
        said.type_,
    ),
    Field("body", TYPE, "the type of what is inside of all envelopes", "body == PYTHON_CALL", said.body),
    Field(
        "envelope", TYPE, "the types of the envelopes", "envelope == RUN_WITH_PROFILING_REQ", said.envelope
    ),
    Field("src", TEXT, "who sends", "src == worker0", known=lambda known: known.source),
    Field("dst", TEXT, "who receives", 'dst ~ "^trainer"', known=lambda known: known.destination),
    Field("worker", TEXT, "who sends or receives", "worker in {ps, master}", known=lambda known: known.ends),
    Field("request", FLAG, "is a request", "request", said.request),
    Field(
        "control",
        FLAG,
        "is of the agents' own calls, or an answer to one",
        "not control",
        known=lambda known: known.control,
    ),
    Field("error", FLAG, "is an answer that reports an error", "error", said.error),
    Field(
        "answers",
        NUMBER,
        "index of the request that it answers",
        "answers == 6",
        known=lambda known: known.answers,
    ),
    Field(
        "answered",
        FLAG,
        "a request that has an answer",
        "request and not answered",
        known=lambda known: known.answered,
        streams=False,
    ),
    Field(
        "latency",
        DURATION,
        "from the request's first byte to its answer's last; of both",
        "latency > 50ms",
        known=lambda known: known.latency,
    ),
    Field(
        "finding",
        TEXT,
        "codes of the findings that name the message",
        "finding == error-response",
        known=lambda known: known.findings,
        streams=False,
    ),
    Field(
        "index",
        NUMBER,
        "the message's number, as the table shows it",
        "index >= 100",
        known=lambda known: known.index,
    ),
    Field(
        "time",
        DURATION,
        "begin, counted from that of the first message",
        "time > 1.5s",
        known=lambda known: known.time,
    ),
    Field("time_ns", NUMBER, "begin, nanoseconds since 1970", "time_ns > 1700000000000000000", said.time_ns),
    Field("took", DURATION, "from its first captured byte to its last", "took > 1ms", said.took),
    Field("id", NUMBER, "the id that request and answer share on a pipe", "id == 7", said.id_),
    Field("pipe", NUMBER, "number of the pipe", "pipe == 0", said.pipe),
    Field(
        "capture",
        NUMBER,
        "number of the capture, in the order in which they are named",
        "capture == 1",
        said.capture,
    ),
    Field("packet", NUMBER, "packet of its first byte, as Wireshark counts", "packet > 500", said.packet),
    Field("flow", TEXT, "addresses: ip:port>ip:port", 'flow ~ ":29500>"', said.flow),
    Field("nbytes", SIZE, "all of it: descriptor, payloads, tensors", "nbytes > 1MB", said.nbytes),
    Field("fn", TEXT, "the function that a call names", 'fn ~ "forward"', said.function),
    Field("async", FLAG, "the function is an async_execution one", "async", said.is_async),
    Field("arg", TEXT, "each argument, as decode shows it", 'arg ~ "^tensor#0"', said.arguments),
    Field("kwarg", TEXT, "each keyword argument, NAME=VALUE", 'kwarg ~ "^gain="', said.keywords),
    Field("value", TEXT, "what an answer returns", 'value ~ "^tensor#"', said.value),
    Field("error.type", TEXT, "type of the exception", "error.type == builtins.KeyError", said.error_type),
    Field("error.text", TEXT, "all that the error says", 'error.text ~ "(?i)timeout"', said.error_text),
    Field(
        "error.node_id",
        NUMBER,
        "id of the worker on which it was raised",
        "error.node_id == 1",
        said.error_node,
    ),
    Field(
        "ctx",
        CONTEXT,
        "autograd context: of an envelope, a gradient, a clean-up",
        "ctx == 0:3",
        said.contexts,
    ),
    Field(
        "autograd_message_id",
        CONTEXT,
        "autograd edge: of an envelope or a gradient",
        "autograd_message_id == 1:2",
        said.edges,
    ),
    Field(
        "from_worker_id",
        NUMBER,
        "sender's id in an autograd envelope",
        "from_worker_id == 0",
        said.from_worker,
    ),
    Field(
        "device_map", TEXT, "each pair of an envelope's map", 'device_map == "cpu->cuda:0"', said.device_map
    ),
    Field("retain_graph", FLAG, "of a gradient", "retain_graph", said.retain_graph),
    Field("rref_id", PAIR, "the remote reference that a command names", "rref_id == 0:3", said.rref),
    Field("fork_id", PAIR, "the fork that a command names", "fork_id == 0:4", said.fork),
    Field("profiling_id", PAIR, "id of a profiled call", "profiling_id == 0:1", said.profiling),
    Field("event", TEXT, "names of the events of a profiled answer", 'event == "aten::mm"', said.events),
    Field("tensors", NUMBER, "how many tensors it has", "tensors >= 2", said.tensors),
    Field(
        "tensor.dtype",
        TEXT,
        "torch's name of the element type",
        "tensor.dtype in {float16, bfloat16}",
        said.dtype,
    ),
    Field("tensor.shape", SHAPE, "sizes", "tensor.shape == [*, 4]", said.shape),
    Field("tensor.dim", NUMBER, "how many dimensions", "tensor.dim == 0", said.dim),
    Field("tensor.numel", NUMBER, "how many elements", "tensor.numel > 1000", said.numel),
    Field(
        "tensor.nbytes",
        SIZE,
        "bytes of its elements; none of sparse ones",
        "tensor.nbytes > 1MB",
        said.tensor_nbytes,
    ),
    Field(
        "tensor.storage_nbytes",
        SIZE,
        "bytes of its storage, which is what travels",
        "tensor.storage_nbytes > 4KiB",
        said.storage_nbytes,
    ),
    Field("tensor.layout", TEXT, "strided, sparse_coo, …", "tensor.layout == sparse_coo", said.layout),
    Field("tensor.device", TEXT, "the sender's device", "tensor.device == cuda:0", said.device),
    Field(
        "tensor.target_device",
        TEXT,
        "the receiver's device",
        "tensor.target_device != cpu",
        said.target_device,
    ),
    Field("tensor.requires_grad", FLAG, "requires_grad", "tensor.requires_grad", said.requires_grad),
    Field("tensor.parameter", FLAG, "is an nn.Parameter", "tensor.parameter", said.parameter),
    Field("tensor.conj", FLAG, "its conjugate bit", "tensor.conj", said.conj),
    Field("tensor.neg", FLAG, "its negative bit", "tensor.neg", said.neg),
    Field(
        "tensor.quantizer",
        TEXT,
        "scheme of a quantised one",
        "tensor.quantizer == per_tensor_affine",
        said.quantizer,
    ),
    Field(
        "tensor.placement",
        TEXT,
        "certain, uncertain or missing",
        "tensor.placement == uncertain",
        said.placement,
    ),
    Field("tensor.missing", FLAG, "bytes of its storage were not captured", "tensor.missing", said.missing),
    Field("tensor.missing_bytes", SIZE, "how many of them", "tensor.missing_bytes > 0", said.missing_bytes),
    Field(
        "tensor.sha256", TEXT, "hash of its elements, as jsonl has it", 'tensor.sha256 ~ "^e3b0"', said.sha256
    ),
    Field(
        "problem",
        TEXT,
        "what is wrong with the message: the reason",
        'problem ~ "not captured"',
        said.problems,
    ),
    Field("problem.layer", TEXT, "which layer found it", "problem.layer == pickle", said.problem_layers),
)

ALIASES = {"context_id": "ctx", "function": "fn"}
"""Names that jsonl has for fields which are shorter here."""

BY_NAME: dict[str, Field] = {field.name: field for field in FIELDS}
BY_NAME |= {alias: BY_NAME[name] for alias, name in ALIASES.items()}

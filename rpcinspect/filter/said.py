"""What a message says by itself, as the fields of filters ask for it.

In: a record. Out: a tuple of values: none where the message lacks the field. Values are those of the output
contract, so that a filter and a script over jsonl agree.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

from rpcinspect.rpc.command import (
    CleanupAutogradContextReq,
    ExceptionResponse,
    PropagateGradientsReq,
    RRefBackwardReq,
    ScriptCall,
    ScriptRemoteCall,
)
from rpcinspect.rpc.command_codec import message_type_of
from rpcinspect.rpc.dtypes import DTYPES
from rpcinspect.rpc.envelope import RpcWithAutograd, RpcWithProfilingReq, RpcWithProfilingResp
from rpcinspect.rpc.message import is_request, type_name
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.types import GloballyUniqueId
from rpcinspect.run.tensors import LastRead, hash_of, place_of
from rpcinspect.views.contract.bodies import Bodies
from rpcinspect.views.contract.message import text
from rpcinspect.wire.ranges import CaptureBytes
from rpcinspect.wire.records import Placement

Texts: TypeAlias = tuple[str, ...]
Numbers: TypeAlias = tuple[int, ...]
Flags: TypeAlias = tuple[bool, ...]
Pairs: TypeAlias = tuple[tuple[int, int], ...]


class Reader:
    """What some fields need beside the record: the bytes of tensors, and a memory of bodies in words."""

    def __init__(self, source: CaptureBytes) -> None:
        self.source = source
        self.body = Bodies().of


# --- the message --------------------------------------------------------------------------------------------


def type_(record: RpcRecord, reader: Reader) -> Texts:
    return (type_name(record.rpc.message.type),)


def body(record: RpcRecord, reader: Reader) -> Texts:
    return (type_name(message_type_of(record.rpc.command)),)


def envelope(record: RpcRecord, reader: Reader) -> Texts:
    return tuple([type_name(envelope.message_type) for envelope in record.rpc.envelopes])


def request(record: RpcRecord, reader: Reader) -> Flags:
    return (is_request(record.rpc.message.type),)


def error(record: RpcRecord, reader: Reader) -> Flags:
    return (record.facts.failed or type(record.rpc.command) is ExceptionResponse,)


def time_ns(record: RpcRecord, reader: Reader) -> Numbers:
    return (record.tp.first_ns,)


def took(record: RpcRecord, reader: Reader) -> Numbers:
    return (record.tp.last_ns - record.tp.first_ns,)


def id_(record: RpcRecord, reader: Reader) -> Numbers:
    return (record.rpc.message.id,)


def pipe(record: RpcRecord, reader: Reader) -> Numbers:
    return () if record.tp.pipe.logged else (record.tp.pipe.number,)


def capture(record: RpcRecord, reader: Reader) -> Numbers:
    return (record.tp.capture,)


def packet(record: RpcRecord, reader: Reader) -> Numbers:
    return () if record.tp.pipe.logged else (record.tp.packet,)


def flow(record: RpcRecord, reader: Reader) -> Texts:
    return () if record.tp.pipe.logged else (str(record.tp.flow),)


def nbytes(record: RpcRecord, reader: Reader) -> Numbers:
    tp = record.tp
    return (tp.length + sum([tensor.descriptor.length for tensor in tp.tensors]),)


def problems(record: RpcRecord, reader: Reader) -> Texts:
    return tuple([text(problem.reason) for problem in record.problems])


def problem_layers(record: RpcRecord, reader: Reader) -> Texts:
    return tuple([problem.layer for problem in record.problems])


# --- what it calls or returns -------------------------------------------------------------------------------


def function(record: RpcRecord, reader: Reader) -> Texts:
    command = record.rpc.command
    if isinstance(command, (ScriptCall, ScriptRemoteCall)):
        return (text(command.function),)
    name = record.facts.function
    return () if name is None else (text(name),)


def is_async(record: RpcRecord, reader: Reader) -> Flags:
    flag = getattr(record.rpc.command, "is_async_execution", None)
    return () if flag is None else (flag,)


def arguments(record: RpcRecord, reader: Reader) -> Texts:
    return tuple(reader.body(record).get("args", ()))


def keywords(record: RpcRecord, reader: Reader) -> Texts:
    return tuple([f"{name}={value}" for name, value in (reader.body(record).get("kwargs") or {}).items()])


def value(record: RpcRecord, reader: Reader) -> Texts:
    value = reader.body(record).get("value")
    return () if value is None else (value,)


def error_type(record: RpcRecord, reader: Reader) -> Texts:
    found = _error(record, reader).get("type")
    return () if found is None else (found,)


def error_text(record: RpcRecord, reader: Reader) -> Texts:
    found = _error(record, reader).get("text")
    return () if found is None else (found,)


def error_node(record: RpcRecord, reader: Reader) -> Numbers:
    found = _error(record, reader).get("node_id")
    return () if found is None else (found,)


def _error(record: RpcRecord, reader: Reader) -> dict[str, Any]:
    return reader.body(record).get("error") or {} if error(record, reader)[0] else {}


# --- distributed autograd, references, profiling ------------------------------------------------------------


def contexts(record: RpcRecord, reader: Reader) -> Numbers:
    found = [
        envelope.autograd_metadata.autograd_context_id
        for envelope in record.rpc.envelopes
        if isinstance(envelope, RpcWithAutograd)
    ]
    command = record.rpc.command
    if isinstance(command, PropagateGradientsReq):
        found.append(command.autograd_metadata.autograd_context_id)
    elif isinstance(command, CleanupAutogradContextReq):
        found.append(command.context_id)
    elif isinstance(command, RRefBackwardReq):
        found.append(command.autograd_context_id)
    return tuple(found)


def edges(record: RpcRecord, reader: Reader) -> Numbers:
    found = [
        envelope.autograd_metadata.autograd_message_id
        for envelope in record.rpc.envelopes
        if isinstance(envelope, RpcWithAutograd)
    ]
    command = record.rpc.command
    if isinstance(command, PropagateGradientsReq):
        found.append(command.autograd_metadata.autograd_message_id)
    return tuple(found)


def from_worker(record: RpcRecord, reader: Reader) -> Numbers:
    return tuple([e.from_worker_id for e in record.rpc.envelopes if isinstance(e, RpcWithAutograd)])


def device_map(record: RpcRecord, reader: Reader) -> Texts:
    return tuple(
        [
            f"{text(source)}->{text(target)}"
            for envelope in record.rpc.envelopes
            if isinstance(envelope, RpcWithAutograd)
            for source, target in envelope.device_map.items()
        ]
    )


def retain_graph(record: RpcRecord, reader: Reader) -> Flags:
    flag = getattr(record.rpc.command, "retain_graph", None)
    return () if flag is None else (flag,)


def rref(record: RpcRecord, reader: Reader) -> Pairs:
    return _ids(record, "ret_rref_id", "rref_id")


def fork(record: RpcRecord, reader: Reader) -> Pairs:
    return _ids(record, "ret_fork_id", "fork_id")


def _ids(record: RpcRecord, *names: str) -> Pairs:
    command = record.rpc.command
    found = [getattr(command, name, None) for name in names]
    return tuple([unique.to_value() for unique in found if isinstance(unique, GloballyUniqueId)])


def profiling(record: RpcRecord, reader: Reader) -> Pairs:
    return tuple(
        [
            envelope.profiling_id.to_value()
            for envelope in record.rpc.envelopes
            if isinstance(envelope, (RpcWithProfilingReq, RpcWithProfilingResp))
        ]
    )


def events(record: RpcRecord, reader: Reader) -> Texts:
    return tuple(
        [
            text(event.name)
            for envelope in record.rpc.envelopes
            if isinstance(envelope, RpcWithProfilingResp)
            for event in envelope.profiled_events
        ]
    )


# --- tensors ------------------------------------------------------------------------------------------------


def tensors(record: RpcRecord, reader: Reader) -> Numbers:
    return (len(record.rpc.tensors),)


def dtype(record: RpcRecord, reader: Reader) -> Texts:
    return tuple([meta.dtype for meta in record.rpc.tensors])


def shape(record: RpcRecord, reader: Reader) -> tuple[tuple[int, ...], ...]:
    return tuple([meta.sizes for meta in record.rpc.tensors])


def dim(record: RpcRecord, reader: Reader) -> Numbers:
    return tuple([len(meta.sizes) for meta in record.rpc.tensors])


def numel(record: RpcRecord, reader: Reader) -> Numbers:
    return tuple([math.prod(meta.sizes) for meta in record.rpc.tensors])


def tensor_nbytes(record: RpcRecord, reader: Reader) -> Numbers:
    found = []
    for meta in record.rpc.tensors:
        if meta.layout == "strided":
            kind = DTYPES[meta.dtype]
            found.append(-(-math.prod(meta.sizes) // kind.values_per_byte) * kind.item_bytes)
    return tuple(found)


def storage_nbytes(record: RpcRecord, reader: Reader) -> Numbers:
    places = [place_of(record, meta) for meta in record.rpc.tensors]
    return tuple([place.storage_nbytes for place in places if place.storage_nbytes is not None])


def layout(record: RpcRecord, reader: Reader) -> Texts:
    return tuple([meta.layout for meta in record.rpc.tensors])


def device(record: RpcRecord, reader: Reader) -> Texts:
    return tuple([text(meta.device) for meta in record.rpc.tensors])


def target_device(record: RpcRecord, reader: Reader) -> Texts:
    places = [place_of(record, meta) for meta in record.rpc.tensors]
    return tuple([place.target_device for place in places if place.target_device is not None])


def requires_grad(record: RpcRecord, reader: Reader) -> Flags:
    return tuple([meta.requires_grad for meta in record.rpc.tensors])


def parameter(record: RpcRecord, reader: Reader) -> Flags:
    parameters = record.facts.parameters
    return tuple([number in parameters for number in range(len(record.rpc.tensors))])


def conj(record: RpcRecord, reader: Reader) -> Flags:
    return tuple([meta.conj for meta in record.rpc.tensors])


def neg(record: RpcRecord, reader: Reader) -> Flags:
    return tuple([meta.neg for meta in record.rpc.tensors])


def quantizer(record: RpcRecord, reader: Reader) -> Texts:
    return tuple([text(m.quantizer.scheme) for m in record.rpc.tensors if m.quantizer is not None])


def placement(record: RpcRecord, reader: Reader) -> Texts:
    return tuple([place_of(record, meta).placement.value for meta in record.rpc.tensors])


def missing(record: RpcRecord, reader: Reader) -> Flags:
    places = [place_of(record, meta) for meta in record.rpc.tensors]
    return tuple([p.missing_bytes > 0 or p.placement is Placement.MISSING for p in places])


def missing_bytes(record: RpcRecord, reader: Reader) -> Numbers:
    return tuple([place_of(record, meta).missing_bytes for meta in record.rpc.tensors])


def sha256(record: RpcRecord, reader: Reader) -> Texts:
    read = LastRead(reader.source)
    found = [hash_of(record, meta, read) for meta in record.rpc.tensors]
    return tuple([digest for digest in found if digest is not None])

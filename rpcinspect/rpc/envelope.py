"""Envelopes: messages that wrap another message's payload with facts of autograd or of the profiler.

In: the type and the payload of a message, whole. Out: the envelopes, outermost first, with the type and
payload that they wrap. The payload is read from its end: the wrapped payload, a JIT pickle of a tuple, and
the length of that pickle as 8 bytes, big-endian. Tensors and the message id are shared with the wrapped
message. `wrap` is the way back.
Mirrors torch/csrc/distributed/autograd/rpc_messages/rpc_with_autograd.cpp, rpc_with_profiling_{req,resp}.cpp,
and the wrapped payloads of torch/csrc/distributed/rpc/utils.cpp.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from msgspec import Struct

from rpcinspect.errors import DecodeError, LimitExceeded
from rpcinspect.limits import DEFAULT_LIMITS, Limits
from rpcinspect.pickles.jit import read_forms, read_jit
from rpcinspect.pickles.jit_write import write_jit
from rpcinspect.pickles.semantic import device_map
from rpcinspect.pickles.tree import Dict, PickleCall, Value
from rpcinspect.rpc.message import MessageType
from rpcinspect.rpc.profiling import LegacyEvent, ProfilerConfig, events_from_values, items, tagged
from rpcinspect.rpc.types import DeviceMapping, ProfilingId, WorkerId, as_int, as_worker_id, describe

MAX_ENVELOPES = 8
"""Nesting that is followed; torch writes at most two."""

FOOTER_BYTES = 8


class AutogradMetadata(Struct, frozen=True):
    """Which edge of which distributed autograd graph a message belongs to."""

    autograd_context_id: int
    """Creator in the upper 16 bits, its counter below; see `types.unpack_id`."""
    autograd_message_id: int
    """Pairs a send with its recv; the gradient comes back under the same id."""


class RpcWithAutograd(Struct, frozen=True, kw_only=True):
    """FORWARD_AUTOGRAD_REQ and FORWARD_AUTOGRAD_RESP."""

    message_type: int
    autograd_metadata: AutogradMetadata
    from_worker_id: WorkerId
    device_map: DeviceMapping
    """Of the requester for this callee; empty in responses."""
    wrapped_message_type: int


class RpcWithProfilingReq(Struct, frozen=True, kw_only=True):
    """RUN_WITH_PROFILING_REQ: the callee is to profile the call."""

    message_type: int = int(MessageType.RUN_WITH_PROFILING_REQ)
    profiler_config: ProfilerConfig
    profiling_id: ProfilingId
    wrapped_message_type: int


class RpcWithProfilingResp(Struct, frozen=True, kw_only=True):
    """RUN_WITH_PROFILING_RESP: the answer, with what the callee's profiler saw."""

    message_type: int = int(MessageType.RUN_WITH_PROFILING_RESP)
    profiling_id: ProfilingId
    profiled_events: tuple[LegacyEvent, ...]
    wrapped_message_type: int


Envelope: TypeAlias = RpcWithAutograd | RpcWithProfilingReq | RpcWithProfilingResp


class Peeled(Struct, frozen=True):
    """What came off a payload. Where `error` is set, `payload` of `type` is an envelope that is damaged."""

    envelopes: tuple[Envelope, ...]
    type: int
    payload: bytes
    error: DecodeError | None = None


def peel(message_type: int, payload: bytes) -> tuple[tuple[Envelope, ...], int, bytes]:
    """(envelopes outermost first, inner type, inner payload); DecodeError where one is damaged."""
    peeled = peel_partial(message_type, payload)
    if peeled.error is not None:
        raise peeled.error
    return peeled.envelopes, peeled.type, peeled.payload


def peel_partial(message_type: int, payload: bytes, limits: Limits = DEFAULT_LIMITS) -> Peeled:
    """As `peel`, but damage is returned as `error`, beside the envelopes around it; never raises."""
    envelopes: list[Envelope] = []
    try:
        while message_type in ENVELOPES:
            if len(envelopes) == MAX_ENVELOPES:
                raise LimitExceeded("rpc", "MAX_ENVELOPES", MAX_ENVELOPES, MAX_ENVELOPES + 1)
            inner, suffix = split_wrapped(payload)
            envelope = ENVELOPES[message_type].from_value(message_type, read_jit(suffix, limits))
            envelopes.append(envelope)
            message_type, payload = envelope.wrapped_message_type, inner
    except DecodeError as error:
        return Peeled(tuple(envelopes), message_type, payload, error)
    return Peeled(tuple(envelopes), message_type, payload)


def wrap(envelopes: Sequence[Envelope], payload: bytes, like: bytes | None = None) -> bytes:
    """The payload of the outermost message: `payload` in `envelopes` (outermost first).

    They are written as torch writes them, or in the forms of `like`, a payload in as many envelopes.
    """
    suffixes: list[bytes | None] = []
    for _ in envelopes:
        inner, suffix = (None, None) if like is None else split_wrapped(like)
        suffixes.append(suffix)
        like = inner
    for envelope, suffix in zip(reversed(envelopes), reversed(suffixes), strict=True):
        written = _to_suffix(envelope, suffix)
        payload = payload + written + len(written).to_bytes(FOOTER_BYTES, "big")
    return payload


def split_wrapped(payload: bytes) -> tuple[bytes, bytes]:
    """(wrapped payload, pickled tuple) of an envelope's payload."""
    end = len(payload) - FOOTER_BYTES
    if end < 0:
        raise DecodeError("rpc", f"an envelope of {len(payload)} bytes has no room for its footer")
    length = int.from_bytes(payload[end:], "big", signed=True)
    if not 0 < length <= end:
        raise DecodeError("rpc", f"the footer announces a tuple of {length} bytes, {end} are there", end)
    return payload[: end - length], payload[end - length : end]


def _to_suffix(envelope: Envelope, like: bytes | None) -> bytes:
    """The pickled tuple of an envelope."""
    value = ENVELOPES[envelope.message_type].to_value(envelope)
    if like is None:
        return write_jit(value)
    if isinstance(envelope, RpcWithAutograd) and _is_int_map(read_jit(like)[4]):
        value = (*value[:4], _index_map(envelope.device_map))
    return write_jit(value, read_forms(like))


def _autograd_from_value(message_type: int, value: Value) -> RpcWithAutograd:
    """Reads (wrapped type, context id, autograd message id, sender, device map)."""
    wrapped, context_id, message_id, from_worker_id, pairs = items(value, 5, "autograd envelope")
    devices = device_map(pairs)
    if devices is None:
        raise DecodeError("rpc", "the device map of an autograd envelope is not a map")
    return RpcWithAutograd(
        message_type=message_type,
        autograd_metadata=AutogradMetadata(
            as_int(context_id, "autograd context id"), as_int(message_id, "autograd message id")
        ),
        from_worker_id=as_worker_id(from_worker_id, "sender's worker id"),
        device_map=devices,
        wrapped_message_type=as_int(wrapped, "wrapped message type"),
    )


def _autograd_to_value(envelope: Envelope) -> Value:
    assert isinstance(envelope, RpcWithAutograd)
    return (
        int(envelope.wrapped_message_type),  # a MessageType is an int, but no plain one
        envelope.autograd_metadata.autograd_context_id,
        envelope.autograd_metadata.autograd_message_id,
        envelope.from_worker_id,
        tagged(Dict(list(envelope.device_map.items())), "Dict[str, str]"),
    )


def _profiling_req_from_value(message_type: int, value: Value) -> RpcWithProfilingReq:
    """Reads (wrapped type, [state, report_input_shapes, profile_memory], profiling id)."""
    wrapped, config, profiling_id = items(value, 3, "profiling request")
    return RpcWithProfilingReq(
        message_type=message_type,
        profiler_config=ProfilerConfig.from_value(config),
        profiling_id=ProfilingId.from_value(profiling_id, "profiling id"),
        wrapped_message_type=as_int(wrapped, "wrapped message type"),
    )


def _profiling_req_to_value(envelope: Envelope) -> Value:
    assert isinstance(envelope, RpcWithProfilingReq)
    return (
        int(envelope.wrapped_message_type),  # a MessageType is an int, but no plain one
        envelope.profiler_config.to_value(),
        envelope.profiling_id.to_value(),
    )


def _profiling_resp_from_value(message_type: int, value: Value) -> RpcWithProfilingResp:
    """Reads (wrapped type, profiling id, number of events, event, …)."""
    if type(value) is not tuple or len(value) < 3:
        raise DecodeError(
            "rpc", f"profiling response: expected a tuple of 3 or more, found {describe(value)}"
        )
    wrapped, profiling_id, count, *events = value
    if count != len(events):
        raise DecodeError("rpc", f"{len(events)} profiled events, where another number was announced")
    return RpcWithProfilingResp(
        message_type=message_type,
        profiling_id=ProfilingId.from_value(profiling_id, "profiling id"),
        profiled_events=events_from_values(events),
        wrapped_message_type=as_int(wrapped, "wrapped message type"),
    )


def _profiling_resp_to_value(envelope: Envelope) -> Value:
    assert isinstance(envelope, RpcWithProfilingResp)
    return (
        int(envelope.wrapped_message_type),  # a MessageType is an int, but no plain one
        envelope.profiling_id.to_value(),
        len(envelope.profiled_events),
        *map(LegacyEvent.to_value, envelope.profiled_events),
    )


def _is_int_map(node: Value) -> bool:
    return type(node) is PickleCall and node.args[-1] == "Dict[int, int]"


def _index_map(devices: DeviceMapping) -> Value:
    """A device map by the indices of CUDA devices, as 1.8 writes it."""
    pairs = [(_device_index(source), _device_index(target)) for source, target in devices.items()]
    return tagged(Dict(pairs), "Dict[int, int]")


def _device_index(device: str) -> int:
    """`cuda:1` → 1."""
    kind, _, index = device.partition(":")
    if kind != "cuda" or not index.isdigit():
        raise ValueError(f"the device maps of 1.8 hold CUDA devices only, not {device!r}")
    return int(index)


class _Codec(Struct, frozen=True):
    from_value: Callable[[int, Value], Envelope]
    to_value: Callable[[Envelope], Value]


ENVELOPES: dict[int, _Codec] = {
    MessageType.FORWARD_AUTOGRAD_REQ: _Codec(_autograd_from_value, _autograd_to_value),
    MessageType.FORWARD_AUTOGRAD_RESP: _Codec(_autograd_from_value, _autograd_to_value),
    MessageType.RUN_WITH_PROFILING_REQ: _Codec(_profiling_req_from_value, _profiling_req_to_value),
    MessageType.RUN_WITH_PROFILING_RESP: _Codec(_profiling_resp_from_value, _profiling_resp_to_value),
}

"""What a message consists of: the parts of its frames with their places, and words for its tensors.

In: a record. Out: parts in the order of the stream, pairs of a name and a text. Places of a stream count from
its first byte, as Wireshark's "follow TCP stream" shows it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from rpcinspect.fields.phrases import amount
from rpcinspect.rpc.envelope import FOOTER_BYTES, split_wrapped
from rpcinspect.rpc.message import type_name
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.tensor import TensorMeta
from rpcinspect.run.tensors import place_of
from rpcinspect.tensorpipe.frame import HEADER_BYTES
from rpcinspect.tensorpipe.records import Placement, Visibility

VISIBLE = {
    Visibility.FULL: "fully visible",
    Visibility.NO_TENSORS: "its tensors travel elsewhere",
    Visibility.HANDSHAKE_ONLY: "only its handshake is visible",
    Visibility.NO_HANDSHAKE: "its handshake was not captured",
}
PLACED = {
    Placement.CERTAIN: "location certain",
    Placement.UNCERTAIN: "location uncertain",
    Placement.MISSING: "not captured",
}
DESCRIPTOR, COMMAND, PAYLOAD = "descriptor", "command", "payload"
TYPE, ID, TABLE = "message type", "message id", "tensor table"
PAYLOADS = (TYPE, ID, PAYLOAD, TABLE)
"""What torch's four payloads are called."""


class StreamPart(Struct, frozen=True):
    """A part of a message's frames."""

    name: str
    start: int
    """Its place in the stream; in a log, within the part."""
    data: bytes
    """What was captured of it, up to the first byte that was not."""
    length: int
    missing: int = 0
    """How many of its bytes were not captured."""


def stream_parts(record: RpcRecord) -> Iterator[StreamPart]:
    """Yields the descriptor and the payloads, without the lengths of their frames; a payload that was
    captured whole is cut into the command and the envelopes around it."""
    tp = record.tp
    if tp.pipe.logged:
        for name, data in zip(PAYLOADS, tp.payloads, strict=True):
            yield StreamPart(name, 0, data, len(data))
        return
    at = tp.offset + HEADER_BYTES
    yield StreamPart(DESCRIPTOR, at, tp.descriptor_body, len(tp.descriptor_body))
    at += len(tp.descriptor_body)
    for number, payload in enumerate(tp.payloads):
        at += HEADER_BYTES
        name = PAYLOADS[number] if number < len(PAYLOADS) else f"payload {number}"
        length = tp.descriptor.payloads[number].length
        if name == PAYLOAD and tp.payload_missing is None:
            yield from _payload(record, payload, at)
        else:
            missing = 0 if tp.payload_missing is None else tp.payload_missing[number]
            yield StreamPart(name, at, payload, length, missing)
        at += length


def _payload(record: RpcRecord, payload: bytes, at: int) -> Iterator[StreamPart]:
    """The command, then each envelope's suffix from the innermost out, as they lie in the stream."""
    suffixes: list[tuple[str, bytes]] = []
    for envelope in record.rpc.envelopes:
        payload, suffix = split_wrapped(payload)
        footer = len(suffix).to_bytes(FOOTER_BYTES, "big")
        suffixes.append((f"envelope {type_name(envelope.message_type)}", suffix + footer))
    yield StreamPart(COMMAND, at, payload, len(payload))
    at += len(payload)
    for name, suffix in reversed(suffixes):
        yield StreamPart(name, at, suffix, len(suffix))
        at += len(suffix)


def event_words(event: dict[str, Any], start_ns: int) -> str:
    """Returns a profiler's event in a line, with its time since the first."""
    words = [f"{event['kind']:<5} +{(event['cpu_ns'] - start_ns) / 1e6:.3f} ms"]
    if event["name"]:
        words.append(event["name"])
    if event["shapes"]:
        words.append(f"shapes {event['shapes']}")
    if event["cpu_memory"]:
        words.append(f"{event['cpu_memory']:+,} bytes")
    if event["cuda_recorded"]:
        words.append(f"cuda:{event['cuda_device']} {event['cuda_us']} µs")
    if event["cuda_memory"]:
        words.append(f"{event['cuda_memory']:+,} bytes on cuda:{event['cuda_device']}")
    words.append(f"(thread {event['thread_id']}, handle {event['handle']}, node {event['node_id']})")
    return "  ".join(words)


def tensor_facts(record: RpcRecord, meta: TensorMeta) -> Iterator[tuple[str, str]]:
    """What is known of a tensor without its bytes."""
    place = place_of(record, meta)
    if meta.layout == "strided":
        yield "layout", f"stride {list(meta.strides)}, offset {meta.storage_offset}"
    if meta.part_of is not None:
        yield "part of", f"tensor#{meta.part_of}"
    if meta.parts:
        yield "parts", ", ".join(f"{name} tensor#{part}" for name, part in meta.parts)
    if meta.quantizer is not None:
        quantizer = meta.quantizer
        scale = (
            f", scale {quantizer.scale}, zero point {quantizer.zero_point}" if quantizer.axis is None else ""
        )
        axis = f", axis {quantizer.axis}" if quantizer.axis is not None else ""
        yield "quantizer", f"{quantizer.scheme}{scale}{axis}"
    yield "device", f"{meta.device} → {place.target_device or meta.device}"
    if meta.storage is None:
        return
    size = "?" if place.storage_nbytes is None else amount(place.storage_nbytes)
    where = PLACED[place.placement]
    if place.missing_bytes:
        where = f"{place.missing_bytes:,} bytes of it not captured"
    yield "storage", f"number {meta.storage} of this message, {size}, {where}"

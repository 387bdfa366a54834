"""One message in full: how it travelled, its envelopes, its fields, its tensors; each part with its bytes.

In: a record, the session and the captures' bytes. Out: rich text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from rpcinspect.errors import DecodeError
from rpcinspect.rpc.envelope import FOOTER_BYTES, split_wrapped
from rpcinspect.rpc.message import type_name
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.tensor import TensorMeta
from rpcinspect.rpc.tensor_values import first_values
from rpcinspect.session.model import NONE, Session
from rpcinspect.views.message_json import body_json, envelope_json, tensor_text
from rpcinspect.views.phrases import packed, printable
from rpcinspect.views.table import amount, duration
from rpcinspect.views.tensors import bytes_of, hash_of, place_of, storage_of
from rpcinspect.wire.stream import CaptureBytes

HEX_ROWS = 16
VALUES = 8
PART_NAMES = ("message type", "message id", "payload", "tensor table")


def detail(record: RpcRecord, session: Session, source: CaptureBytes) -> RenderableType:
    """Everything about one message."""
    return Group(*_parts(record, session, source))


def _parts(record: RpcRecord, session: Session, source: CaptureBytes) -> Iterator[RenderableType]:
    yield from _head(record, session)
    yield from _envelopes(record)
    yield from _body(record)
    yield from _tensors(record, source)
    yield from _bytes(record)


def _title(text: str) -> Text:
    return Text(f"\n{text}", style="bold")


def _field(name: str, value: object, indent: int = 2) -> Text:
    return Text(f"{' ' * indent}{name}: {printable(str(value))}")


def _head(record: RpcRecord, session: Session) -> Iterator[RenderableType]:
    row, tp = record.row, record.tp
    messages = session.messages
    source, destination = session.source(row), session.destination(row)
    name = type_name(record.rpc.message.type)
    number = int(session.index[row])
    yield Text(f"message {number}: {name}, {printable(source)} → {printable(destination)}", style="bold")
    yield _field("id", record.rpc.message.id)
    partner = messages.partner[row]
    if partner != NONE:
        other = int(session.index[partner])
        if tp.from_client:
            yield _field("answered by", f"message {other}")
        else:
            latency = tp.first_ns - messages.end_time_ns[partner]
            yield _field("answers", f"message {other}, after {duration(latency)}")
    start = min(messages.time_ns) if len(messages) else 0
    yield _field("time", f"{(tp.first_ns - start) / 1e9:.9f} s, takes {duration(tp.last_ns - tp.first_ns)}")
    yield _field("pipe", f"{tp.pipe.number}, {tp.pipe.transport}, {tp.pipe.visible.value}")
    where = record.location
    yield _field(
        "place", f"capture {where.capture}, packet {where.packet}, {where.flow}, offset {where.offset}"
    )
    for problem in record.problems:
        yield Text(f"  problem: {problem.layer}: {printable(problem.reason)}", style="red")


def _envelopes(record: RpcRecord) -> Iterator[RenderableType]:
    for envelope in record.rpc.envelopes:
        told = envelope_json(envelope)
        yield _title(f"envelope {told.pop('type')}")
        yield from _fields(told)


def _body(record: RpcRecord) -> Iterator[RenderableType]:
    rpc = record.rpc
    texts = [
        tensor_text(i, meta, parameter=i in record.facts.parameters) for i, meta in enumerate(rpc.tensors)
    ]
    pickle = record.facts.pickle
    told = body_json(rpc.command, texts, pickle.error if pickle is not None and pickle.error else pickle)
    yield _title(f"body {told.pop('type')}")
    yield from _fields(told)
    for suspicion in record.facts.suspicions:
        yield Text(f"  unsafe ({suspicion.severity}): {printable(f'{suspicion.name}: {suspicion.reason}')}")


def _fields(told: dict[str, Any]) -> Iterator[RenderableType]:
    for name, value in told.items():
        if name in ("context_id", "autograd_message_id"):
            yield _field(name, f"{value} ({packed(value)})")
        elif isinstance(value, dict) and value:
            yield _field(name, "")
            for key, item in value.items():
                yield from _value(printable(str(key)), item, 4)
        elif isinstance(value, list) and value and not all(isinstance(item, int) for item in value):
            yield _field(name, "")
            for number, item in enumerate(value):
                yield from _value(str(number), item, 4)
        else:
            yield from _value(name, value, 2)


def _value(name: str, value: object, indent: int) -> Iterator[RenderableType]:
    """Captured text with line breaks, as tracebacks have, stays readable: a line each."""
    if isinstance(value, str) and "\n" in value:
        yield _field(name, "", indent)
        for line in value.splitlines():
            yield Text(f"{' ' * (indent + 2)}{printable(line)}")
    else:
        yield _field(name, value, indent)


def _tensors(record: RpcRecord, source: CaptureBytes) -> Iterator[RenderableType]:
    for index, meta in enumerate(record.rpc.tensors):
        parameter = index in record.facts.parameters
        yield _title(printable(tensor_text(index, meta, parameter=parameter)))
        yield from _tensor(record, meta, source)


def _tensor(record: RpcRecord, meta: TensorMeta, source: CaptureBytes) -> Iterator[RenderableType]:
    place = place_of(record, meta)
    if meta.layout == "strided":
        yield _field("layout", f"stride {list(meta.strides)}, offset {meta.storage_offset}")
    if meta.part_of is not None:
        yield _field("part of", f"tensor#{meta.part_of}")
    if meta.parts:
        yield _field("parts", ", ".join(f"{name} tensor#{part}" for name, part in meta.parts))
    if meta.quantizer is not None:
        quantizer = meta.quantizer
        scale = (
            f", scale {quantizer.scale}, zero point {quantizer.zero_point}" if quantizer.axis is None else ""
        )
        axis = f", axis {quantizer.axis}" if quantizer.axis is not None else ""
        yield _field("quantizer", f"{quantizer.scheme}{scale}{axis}")
    yield _field("device", f"{meta.device} → {place.target_device or meta.device}")
    if meta.storage is None:
        return
    size = "?" if place.storage_nbytes is None else amount(place.storage_nbytes)
    missing = f", {place.missing_bytes:,} missing" if place.missing_bytes else ""
    yield _field("storage", f"{meta.storage}, {size}, {place.placement.value}{missing}")
    digest = hash_of(record, meta, source)
    if digest is not None:
        yield _field("sha256", digest)
    data = bytes_of(record, meta, source)
    if data is None:
        return
    try:
        values = first_values(meta, data, VALUES)
    except DecodeError as error:
        yield _field("values", f"can't be told: {error}")
    else:
        yield _field("values", ", ".join(map(str, values)) or "none")
    storage = storage_of(record, meta)
    if storage is not None and storage.extent is not None and data:
        pieces = storage.extent.pieces
        for capture, offset, length in pieces[:4]:
            yield _field("bytes", f"{offset}..{offset + length} of capture {capture}")
        if len(pieces) > 4:
            yield _field("bytes", f"and {len(pieces) - 4} more pieces")
        yield Text(hexdump(data, 0))


def _bytes(record: RpcRecord) -> Iterator[RenderableType]:
    """The frames of the descriptor connection, cut into the parts that were told above."""
    at = record.tp.offset
    yield from _chunk("descriptor", record.tp.descriptor_body, at + 8)
    at += 8 + len(record.tp.descriptor_body)
    for number, payload in enumerate(record.tp.payloads):
        at += 8
        name = PART_NAMES[number] if number < len(PART_NAMES) else f"payload {number}"
        if number == 2 and record.tp.payload_missing is None:
            yield from _payload(record, payload, at)
        else:
            yield from _chunk(name, payload, at)
        at += record.tp.descriptor.payloads[number].length


def _payload(record: RpcRecord, payload: bytes, at: int) -> Iterator[RenderableType]:
    """The command, then each envelope's suffix from the innermost out, as they lie in the stream."""
    suffixes: list[tuple[str, bytes]] = []
    for envelope in record.rpc.envelopes:
        payload, suffix = split_wrapped(payload)
        footer = len(suffix).to_bytes(FOOTER_BYTES, "big")
        suffixes.append((f"envelope {type_name(envelope.message_type)}", suffix + footer))
    yield from _chunk("command", payload, at)
    at += len(payload)
    for name, suffix in reversed(suffixes):
        yield from _chunk(name, suffix, at)
        at += len(suffix)


def _chunk(name: str, data: bytes, at: int) -> Iterator[RenderableType]:
    yield _title(f"bytes of {name}: {at}..{at + len(data)} of the stream")
    if data:
        yield Text(hexdump(data, at))


def hexdump(data: bytes, start: int, rows: int = HEX_ROWS) -> str:
    """Hex and ASCII, 16 bytes a row; says how much is left out."""
    out = []
    for at in range(0, min(len(data), rows * 16), 16):
        row = data[at : at + 16]
        shown = "".join(chr(b) if 32 <= b < 127 else "." for b in row)
        out.append(f"  {start + at:08x}  {row.hex(' ').ljust(47)}  {shown}")
    if len(data) > rows * 16:
        out.append(f"  … {len(data) - rows * 16:,} more bytes")
    return "\n".join(out)

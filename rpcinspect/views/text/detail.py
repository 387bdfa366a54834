"""One message in full: how it travelled, its envelopes, its fields, its tensors; each part with its bytes.

In: a record, the session and the captures' bytes. Out: rich texts, a line or a block of lines each. Ranges
of bytes are half open: `371..444` is 73 bytes long. Those of a stream count from its first byte, as
Wireshark's "follow TCP stream" shows it; those of tensors are places in the (uncompressed) capture file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rpcinspect.errors import DecodeError
from rpcinspect.fields.body import body_of, envelope_json, tensor_text
from rpcinspect.fields.phrases import counted, duration, packed, path_label, printable, shorten, some
from rpcinspect.problems import Problem
from rpcinspect.rpc.message import type_name
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.tensor import TensorMeta
from rpcinspect.rpc.tensor_values import first_values
from rpcinspect.run.causes import Causes, explain
from rpcinspect.run.tensors import LastRead, bytes_of, hash_of, storage_of
from rpcinspect.session.model import NONE, Session
from rpcinspect.tcp.ranges import CaptureBytes
from rpcinspect.unexpected import unexpected
from rpcinspect.views.message_parts import VISIBLE, event_words, stream_parts, tensor_facts
from rpcinspect.views.text.console import StyledText
from rpcinspect.views.words import moment

FAILURES = {
    "timeout": "its caller timed out",
    "connection": "its connection broke",
    "error": "its caller's agent failed it",
}
"""By the reason of a `CallFailure`."""
HEX_ROWS = 16
VALUES = 8
MAX_FIELD = 20_000
PIECES = 4
MAX_PARENTS = 8


def detail(
    record: RpcRecord, session: Session, source: CaptureBytes, *, rows: int | None = HEX_ROWS
) -> Iterator[StyledText]:
    """Yields all parts of one message; of ranges of bytes so many rows in hexadecimal: 0, no range; None, all
    of each."""
    for part in (
        _head(record, session),
        _envelopes(record),
        _body(record),
        _tensors(record, session, LastRead(source), rows),
        () if rows == 0 else _bytes(record, rows),
    ):
        try:
            yield from part
        except Exception as error:
            yield _problem(unexpected(error, "view", record.location))


def _problem(problem: Problem) -> StyledText:
    return StyledText(f"  problem: {problem.layer}: {printable(problem.reason)}", style="red")


def _title(text: str) -> StyledText:
    return StyledText(f"\n{text}", style="bold")


def _field(name: str, value: object, indent: int = 2) -> StyledText:
    told = shorten(printable(str(value)), MAX_FIELD)
    return StyledText(f"{' ' * indent}{name}: {told}".rstrip())


def _head(record: RpcRecord, session: Session) -> Iterator[StyledText]:
    row, tp = record.row, record.tp
    messages = session.messages
    source, destination = session.source(row), session.destination(row)
    name = type_name(record.rpc.message.type)
    number = int(session.index[row])
    yield StyledText(
        f"message {number}: {name}, {printable(source)} → {printable(destination)}", style="bold"
    )
    yield _field("id", record.rpc.message.id)
    partner = messages.partner[row]
    if partner != NONE:
        other = int(session.index[partner])
        latency = duration(messages.latency_ns(row) or 0)
        yield _field("answered by" if tp.from_client else "answers", f"message {other}, latency {latency}")
    if tp.from_client and not messages.control[row]:
        yield _field("sent", cause_words(explain(session), number))
    failure = session.failures.get(row)
    if failure is not None:
        waited = duration(failure.time_ns - tp.first_ns)
        told = f": {failure.text}" if failure.text else ""
        yield _field("given up", f"{FAILURES[failure.reason]} {waited} after it began{told}")
    start = min(messages.time_ns)
    took = "" if tp.pipe.logged else f", takes {duration(tp.last_ns - tp.first_ns)}"
    yield _field(
        "time", f"{(tp.first_ns - start) / 1e9:.9f} s after the first, {moment(tp.first_ns, 9)}{took}"
    )
    file = path_label(session.captures[tp.capture].path)
    if tp.pipe.logged:
        yield _field("place", f"{file}, record {tp.packet}, at byte {tp.offset}")
    else:
        where = record.location
        yield _field("pipe", f"{tp.pipe.number} (transport {tp.pipe.transport}, {VISIBLE[tp.pipe.visible]})")
        yield _field("place", f"{file}, packet {where.packet}, {where.flow}, offset {where.offset}")
    for problem in record.problems:
        yield _problem(problem)


def cause_words(causes: Causes, number: int) -> str:
    """Returns for which request of another worker a request was sent, or may have been."""
    parents, certain = causes.of(number)
    if not parents and certain:
        return "by the sender's own program"
    shown = some([f"message {parent}" for parent in parents], MAX_PARENTS)
    if certain:
        return f"while serving {shown}"
    ways = (
        [f"while serving one of {shown}" if len(parents) > 1 else f"while serving {shown}"] if parents else []
    )
    doubt = causes.doubts[number]
    ways += ["for a request that was not captured"] if doubt.unseen else []
    if doubt.own:
        ways.append("by the sender's own program")
    return f"{' or '.join(ways)} (ambiguous)"


def _envelopes(record: RpcRecord) -> Iterator[StyledText]:
    for envelope in record.rpc.envelopes:
        told = envelope_json(envelope)
        events = told.pop("events", None)
        yield _title(f"envelope {told.pop('type')}")
        yield from _fields(told)
        if events is not None:
            yield from _events(events)


def _events(events: list[dict[str, Any]]) -> Iterator[StyledText]:
    """One line per profiler event; times count from the first."""
    yield _field("events", counted(len(events), "event"))
    start = min((event["cpu_ns"] for event in events), default=0)
    for number, event in enumerate(events):
        yield _field(str(number), event_words(event, start), 4)


def _body(record: RpcRecord) -> Iterator[StyledText]:
    told = dict(body_of(record).json)
    yield _title(f"body {told.pop('type')}")
    unknown = told.pop("payload_hex", None)
    if unknown is not None:
        yield _field("not understood", f"{counted(len(unknown) // 2, 'byte')}, see below")
    if told.get("error", told) is None:
        del told["error"]
    yield from _fields(told)
    audit = record.facts.audit
    for error in audit.errors:
        yield StyledText(f"  unsafe: {printable(f'{error.name}: {error.reason}')}", style="red")
    if audit.dangerous_call is not None:
        called = audit.dangerous_call
        yield StyledText(f"  dangerous call: {printable(f'{called.name}: {called.reason}')}", style="red")


def _fields(told: dict[str, Any]) -> Iterator[StyledText]:
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


def _value(name: str, value: object, indent: int) -> Iterator[StyledText]:
    """Captured text with line breaks, as tracebacks have, stays readable: a line each."""
    if isinstance(value, str) and "\n" in value:
        yield _field(name, "", indent)
        for line in value[:MAX_FIELD].split("\n"):
            yield StyledText(f"{' ' * (indent + 2)}{printable(line)}".rstrip())
        if len(value) > MAX_FIELD:
            yield StyledText(f"{' ' * (indent + 2)}… {counted(len(value) - MAX_FIELD, 'more character')}")
    else:
        yield _field(name, value, indent)


def _tensors(record: RpcRecord, session: Session, read: LastRead, rows: int | None) -> Iterator[StyledText]:
    firsts: dict[int | None, int] = {}
    """Of each storage the first tensor, at which its bytes are shown."""
    for index, meta in enumerate(record.rpc.tensors):
        parameter = index in record.facts.parameters
        yield _title(printable(tensor_text(index, meta, parameter=parameter)))
        yield from _tensor(record, meta, read)
        first = firsts.setdefault(meta.storage, index)
        yield from _storage(record, meta, first, session, read, rows)


def _tensor(record: RpcRecord, meta: TensorMeta, read: LastRead) -> Iterator[StyledText]:
    """What is known of a tensor, and its first elements."""
    for name, text in tensor_facts(record, meta):
        yield _field(name, text)
    if meta.storage is None:
        return
    digest = hash_of(record, meta, read)
    if digest is not None:
        yield _field("sha256", digest)
    data = bytes_of(record, meta, read)
    if data is None:
        return
    try:
        values = first_values(meta, data, VALUES)
    except DecodeError as error:
        yield _field("values", f"can't be told: {error}")
    else:
        yield _field("values", ", ".join(map(str, values)) or "none")


def _storage(
    record: RpcRecord, meta: TensorMeta, first: int, session: Session, read: LastRead, rows: int | None
) -> Iterator[StyledText]:
    """The bytes of a tensor's storage and where they lie; shared ones are shown at the first tensor only."""
    storage = storage_of(record, meta)
    if storage is None or storage.extent is None:
        return
    if record.rpc.tensors[first] is not meta:
        yield _field("bytes", f"those of tensor#{first}")
        return
    pieces = storage.extent.pieces
    for capture, offset, length in pieces[:PIECES]:
        info = session.captures[capture]
        unpacked = f" ({info.compression}, unpacked)" if info.compression else ""
        yield StyledText(f"  bytes: {offset}..{offset + length} of {path_label(info.path)}{unpacked}")
    if len(pieces) > PIECES:
        yield _field("bytes", f"and {counted(len(pieces) - PIECES, 'more piece')}")
    data = bytes_of(record, meta, read)
    if data and rows != 0:
        yield StyledText(hexdump(data, 0, rows))


def _bytes(record: RpcRecord, rows: int | None) -> Iterator[StyledText]:
    """The frames of the descriptor connection, cut into the parts that were told above."""
    of = "part" if record.tp.pipe.logged else "stream"
    for part in stream_parts(record):
        yield _title(f"bytes of {part.name}: {part.start}..{part.start + len(part.data)} of the {of}")
        if part.data:
            yield StyledText(hexdump(part.data, part.start, rows))


def hexdump(data: bytes, start: int, rows: int | None = HEX_ROWS) -> str:
    """Hex and ASCII, 16 bytes a row, offsets from `start`; says how much is left out after `rows`."""
    out = []
    shown_bytes = len(data) if rows is None else min(len(data), rows * 16)
    for at in range(0, shown_bytes, 16):
        row = data[at : at + 16]
        shown = "".join(chr(b) if 32 <= b < 127 else "." for b in row)
        out.append(f"  {start + at:08x}  {row.hex(' ').ljust(47)}  {shown}")
    if len(data) > shown_bytes:
        out.append(f"  … {counted(len(data) - shown_bytes, 'more byte')} (--all shows them)")
    return "\n".join(out)

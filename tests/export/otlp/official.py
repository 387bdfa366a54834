"""OpenTelemetry's own classes, for tests of traces: they refuse any field, enum or number that OTLP has not.

In: a file of ours. Out: its spans with the worker that each belongs to. The protobuf JSON mapping has bytes
in base64, OTLP's JSON has ids in hex; nothing else differs.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

from google.protobuf.json_format import ParseDict
from msgspec import Struct
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

IDS = {"traceId": 16, "spanId": 8, "parentSpanId": 8}
"""Of each the bytes that it has."""
MAX_LINE = 1 << 20
"""What a collector reads of a line of a file."""


class ReadSpan(Struct, frozen=True):
    """A span, and whose it is."""

    worker: str
    resource: dict[str, Any]
    span: Span

    @property
    def told(self) -> dict[str, Any]:
        return attributes(self.span)

    @property
    def request(self) -> int:
        """Index of the request; of an answer without one its own."""
        told = self.told
        return int(told["torchrpc.request" if "torchrpc.request" in told else "torchrpc.answer"])


def read(data: bytes) -> list[ReadSpan]:
    """Every span, in the order of the file; fails on what OTLP does not allow."""
    lines = data.split(b"\n")
    assert lines.pop() == b""
    return [one for line in lines for one in _of_line(line)]


def _of_line(line: bytes) -> Iterator[ReadSpan]:
    assert len(line) < MAX_LINE
    request = ParseDict(_with_bytes(json.loads(line)), ExportTraceServiceRequest())
    for resource in request.resource_spans:
        about = attributes(resource.resource)
        for scope in resource.scope_spans:
            for span in scope.spans:
                assert span.start_time_unix_nano <= span.end_time_unix_nano
                assert any(span.trace_id)
                assert any(span.span_id)
                yield ReadSpan(about["service.name"], about, span)


def _with_bytes(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_bytes(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: _bytes(key, item) if key in IDS else _with_bytes(item) for key, item in value.items()}


def _bytes(key: str, text: str) -> str:
    assert text == text.lower()
    assert len(bytes.fromhex(text)) == IDS[key]
    return b64encode(bytes.fromhex(text)).decode()


def attributes(one: Any) -> dict[str, Any]:
    """Attributes of a span, a link, an event or a resource; no key may come twice."""
    found = {item.key: _plain(item.value) for item in one.attributes}
    assert len(found) == len(one.attributes)
    return found


def _plain(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    assert kind is not None
    if kind == "array_value":
        return [_plain(item) for item in value.array_value.values]
    return getattr(value, kind)

"""Data on its way into a page: JSON that a browser reads without losing a digit, gzipped, as base64.

In: objects, or the JSON of message lines. Out: text of letters, digits, `+`, `/` and `=` only: nothing that
was captured can end the element it stands in, or be read as anything but data.

JavaScript has only doubles: of integers beyond 2⁵³ it loses digits. So 64-bit ids and times since 1970 become
strings, whatever their size, and so does every other number that long.
"""

from __future__ import annotations

import gzip
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator
from typing import Any

import orjson

KEYS = b"|".join((b"id", b"context_id", b"autograd_message_id", b"begin_ns", b"end_ns", b"backward_ns"))
IDS = re.compile(rb'("(?:%b)":)(-?\d+)' % KEYS)
"""A string can't hold this: the quotes in it are escaped."""
LONG = re.compile(rb"[:\[,]-?\d{16}")
STRING_OR_LONG = re.compile(rb'"(?:[^"\\]|\\.)*"|-?\d{16,}(?![\d.eE])')
HEX = re.compile(rb'("payload_hex":"[0-9a-f]{1024})[0-9a-f]+')
LEVEL = 6
CHUNK_BYTES = 1 << 17
"""Of JSON that is unpacked at once when one of its objects is looked at."""


def exact(json: bytes) -> bytes:
    """The same JSON with long numbers as strings."""
    json = IDS.sub(rb'\1"\2"', json)
    if LONG.search(json) is None:
        return json
    return STRING_OR_LONG.sub(lambda m: m[0] if m[0][:1] == b'"' else b'"%b"' % m[0], json)


def cut(json: bytes) -> bytes:
    """A message whose payload is not understood, with only the first bytes of it."""
    return HEX.sub(rb"\1", json)


def packed_text(data: bytes) -> bytes:
    """Gzipped, in base64."""
    return b64encode(gzip.compress(data, LEVEL, mtime=0))


def packed_json(value: Any) -> bytes:
    """An object, packed."""
    return packed_text(exact(orjson.dumps(value)))


def chunks(objects: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """The JSON of objects, some at a time: (how many, a packed list of them)."""
    batch: list[bytes] = []
    size = 0
    for json in objects:
        batch.append(exact(json))
        size += len(json)
        if size >= CHUNK_BYTES:
            yield len(batch), packed_text(b"[%b]" % b",\n".join(batch))
            batch, size = [], 0
    if batch:
        yield len(batch), packed_text(b"[%b]" % b",\n".join(batch))

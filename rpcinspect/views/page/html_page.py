"""A whole run as one page of HTML that needs nothing but itself: opened from a disk, without a network.

In: a run, what a filter picked. Out: pieces of UTF-8. What is small is written as HTML; messages and contexts
follow as data that the page's script unpacks.

Data is JSON, gzipped, as base64: nothing that was captured can end the element it stands in, or be read as
anything but data. JavaScript has only doubles: of integers beyond 2⁵³ it loses digits. So 64-bit ids and
times since 1970 become strings, whatever their size, and so does every other number that long.
"""

from __future__ import annotations

import gzip
import re
import shlex
from base64 import b64encode
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import orjson

from rpcinspect.capture.source import STDIN_NAME
from rpcinspect.equality.elements import ElementBlock, Tensors
from rpcinspect.equality.elements import tensors_of as located_tensors
from rpcinspect.equality.floats import FLOATS
from rpcinspect.errors import DecodeError
from rpcinspect.fields.field import Seen
from rpcinspect.fields.message import MessageValues, Reader
from rpcinspect.fields.phrases import packed
from rpcinspect.fields.plain import Json
from rpcinspect.fields.session import failure_json
from rpcinspect.fields.table import BY_NAME
from rpcinspect.filter.matches import Shown
from rpcinspect.rpc.cache import BoundedCache
from rpcinspect.rpc.message import TYPE_NAMES
from rpcinspect.rpc.patterns import Pattern
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.run.elements import norm_of
from rpcinspect.run.graph import ContextGraph
from rpcinspect.run.message import Tensor, tensors_of
from rpcinspect.run.run import RunModel
from rpcinspect.run.tensors import LastRead
from rpcinspect.views.graph_words import gradients_words
from rpcinspect.views.html.kit import file_text, html
from rpcinspect.views.jsonl.message import MessageRenderer
from rpcinspect.views.message_facts import blocks_of, values_text
from rpcinspect.views.page.columns import WorkerLanes, columns_of
from rpcinspect.views.page.overview import page_of
from rpcinspect.views.questions.contexts import graph_json

TEMPLATES = Path(__file__).parent / "templates"
SCRIPTS = (
    "trace_data.js",
    "trace_rows.js",
    "trace_grammar.js",
    "trace_pattern.js",
    "trace_filter.js",
    "trace_sort.js",
    "trace_axis.js",
    "trace_lines.js",
    "trace_labels.js",
    "trace_sequence.js",
    "trace_pointer.js",
    "trace_messages.js",
    "trace_detail.js",
    "trace_contexts.js",
    "trace.js",
)
"""In the order in which they are joined."""

ASKED_OF_EACH, ASKED_OF_PATTERN = ("id", "pipe", "capture"), ("fn", "tensor.nbytes")
ASKED = (*ASKED_OF_EACH, *ASKED_OF_PATTERN)
"""Fields of filters that no line of `--format jsonl` has from `envelopes` on; the script reads the others
there, or has them in columns. All messages of a pattern say the same of the last two."""
MAX_PATTERN_BYTES, EACH_TENSOR = 1 << 20, 100
"""Of what is kept of patterns."""
FLOATING = {*FLOATS, "complex32", "complex64", "complex128"}


def trace_html(run: RunModel, shown: Shown | None = None) -> Iterator[bytes]:
    """The page, piece by piece; the run's captures must be open, for the bytes of tensors."""
    part = run if shown is None else run.narrowed(shown.rows, shown.touched)
    page = page_of(part, None if shown is None else shown.text)
    return html(TEMPLATES, "trace", script=_script(), data=_data(part), page=page)


def _data(part: RunModel) -> Iterator[bytes]:
    """All that the script unpacks: the columns at once, the rest when it is looked at."""
    run, indexes, graphs = part.whole, sorted(part.picked), [*map(part.shown, part.graphs)]
    lanes = WorkerLanes(run.session)
    contexts = {(graph.job, graph.context_id): n for n, graph in enumerate(graphs)}
    data = columns_of(run, lanes, indexes, contexts)
    data["contexts"] = [_context_row(graph, lanes) for graph in graphs]
    data["fields"] = {
        name: [field.name, field.kind.name, isinstance(field, Seen)] for name, field in BY_NAME.items()
    }
    paths = [capture.path for capture in run.session.captures]
    data["captures"] = shlex.join("-" if path == STDIN_NAME else path for path in paths)
    data["type_names"] = [*TYPE_NAMES.values()]
    data["findings"] = [
        {"code": finding.code, "severity": finding.severity, "messages": finding.messages}
        for finding in part.findings
    ]
    yield _element("data", 0, packed_json(data))
    for count, text in chunks(_messages(run, indexes)):
        yield _element("messages", count, text)
    for count, text in chunks(_graph_json(part, graph) for graph in graphs):
        yield _element("contexts", count, text)


def _messages(run: RunModel, indexes: Sequence[int]) -> Iterator[bytes]:
    """Each message as `--format jsonl` has it, from `envelopes` on, with what filters ask for beside that,
    the first values and the norms of its tensors."""
    renderer, asked = MessageRenderer(run.bytes), _AskedBeside(run)
    for index in indexes:
        record = run.messages[index]
        more: Json = {"asked": asked.of(record)}
        if record.like.tensors:
            told = record.told(lambda one: _elements(one, run))
            more["values"], more["norms"] = [values for values, _ in told], [norm for _, norm in told]
        failure = run.session.failures.get(record.row)
        if failure is not None:
            more["failure"] = failure_json(failure)
        yield cut(b"%b,%b" % (orjson.dumps(more)[:-1], renderer.tail(record)))


class _AskedBeside:
    """What filters ask of a message, beside its line."""

    def __init__(self, run: RunModel) -> None:
        self._reader = Reader(run.bytes, hashes=False)
        self._known: BoundedCache[Pattern, Json] = BoundedCache(MAX_PATTERN_BYTES)

    def of(self, record: RpcRecord) -> Json:
        """By the name of the field."""
        message, pattern = MessageValues(record, self._reader), record.pattern
        shared = None if pattern is None else self._known.get(pattern)
        if shared is None:
            shared = {name: BY_NAME[name].values(message) for name in ASKED_OF_PATTERN}
            if pattern is not None:
                self._known.put(pattern, shared, len(pattern.rpc.tensors) * EACH_TENSOR)
        return {name: BY_NAME[name].values(message) for name in ASKED_OF_EACH} | shared


def _elements(record: RpcRecord, run: RunModel) -> list[tuple[str, Json | None]]:
    """Of each tensor its first values, and what `_norm` says."""
    tensors = located_tensors(record, run.read)
    return [_first_and_norm(tensors, tensor) for tensor in tensors_of(record, LastRead(run.bytes))]


def _first_and_norm(tensors: Tensors, tensor: Tensor) -> tuple[str, Json | None]:
    """The bytes are read once for both."""
    blocks = blocks_of(tensors, tensor.meta)
    try:
        first = next(blocks, None)
    except DecodeError as error:
        return f"can't be told: {error}", None
    if first is None:
        return "", None
    return values_text(tensor.dtype, first), _norm(tensor, chain((first,), blocks))


def _norm(tensor: Tensor, blocks: Iterator[ElementBlock]) -> Json | None:
    """What the elements of a tensor of floats come to, whose bytes are all there and lie in its storage."""
    if tensor.dtype not in FLOATING or not tensor.affordable:
        return None
    try:
        found = norm_of(tensor.dtype, blocks)
    except DecodeError:
        return None
    if not found.count:
        return None
    norm = None if found.norm is None else float(f"{found.norm:.6g}")
    return {"norm": norm, "nan": found.nan, "infinite": found.infinite}


def _element(name: str, count: int, text: bytes) -> bytes:
    """Data is no script: the browser does not look at it."""
    return b'<script type="text/plain" data-of="%b" data-count="%d">%b</script>\n' % (
        name.encode(),
        count,
        text,
    )


def _context_row(graph: ContextGraph, lanes: WorkerLanes) -> Json:
    """What the list of contexts shows."""
    return {
        "name": packed(graph.context_id),
        "context_id": graph.context_id,
        "creator": lanes.number(graph.job, graph.creator),
        "workers": [lanes.number(graph.job, worker) for worker in graph.workers],
        "duration_ns": graph.end_ns - graph.begin_ns,
        "edges": len(graph.edges),
        "words": gradients_words(graph),
        "missing": len(graph.missing),
        "failed": graph.failed,
        "zero": graph.zero,
        "nbytes": graph.nbytes,
        "cleanup": len(graph.cleanup),
    }


def _graph_json(run: RunModel, graph: ContextGraph) -> bytes:
    """A context in full: the objects of `graph --format jsonl`."""
    return orjson.dumps(list(graph_json(graph, run.critical_path(graph))))


@cache
def _script() -> str:
    """One script of many files, with nothing of it in the page's global names."""
    parts = [f"// {name}\n{file_text(TEMPLATES / name)}" for name in SCRIPTS]
    return "\n".join(['"use strict";', "(() => {", *parts, "})();", ""])


KEYS = b"|".join((b"id", b"context_id", b"autograd_message_id", b"begin_ns", b"end_ns", b"backward_ns"))
IDS = re.compile(rb'("(?:%b)":)(-?\d+)' % KEYS)
"""A string can't hold this: the quotes in it are escaped."""
SHAPE = bytes.maketrans(
    bytes(range(256)), bytes(b"0"[0] if 48 <= c < 58 else b":"[0] if c in b":[," else c for c in range(256))
)
"""Digits become 0, and what stands before a number a colon: to search that takes a tenth of a pattern's
time."""
LONG = (b":" + b"0" * 16, b":-" + b"0" * 16)
STRING_OR_LONG = re.compile(rb'"(?:[^"\\]|\\.)*"|(?<![\d.])-?\d{16,}(?![\d.eE])')
BETWEEN = b",\n"
"""Objects; within one a line break is escaped."""
HEX = re.compile(rb'("payload_hex":"[0-9a-f]{1024})[0-9a-f]+')
LEVEL = 6
CHUNK_BYTES = 1 << 17
"""Of JSON that is unpacked at once when one of its objects is looked at."""
CHUNKS_AHEAD = 8


def exact(json: bytes) -> bytes:
    """Returns the JSON of objects with long numbers as strings, which JavaScript would round."""
    parts = IDS.split(json)  # (other text, key, number)…: a tenth of what replacing each takes
    parts[1::3] = [key + b'"' for key in parts[1::3]]
    parts[2::3] = [number + b'"' for number in parts[2::3]]
    json = b"".join(parts)
    return BETWEEN.join(map(_exact, json.split(BETWEEN))) if _has_long(json) else json


def _has_long(json: bytes) -> bool:
    shape = json.translate(SHAPE)
    return any(one in shape for one in LONG)


def _exact(json: bytes) -> bytes:
    if not _has_long(json):
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
    """The JSON of objects, some at a time: (how many, a packed list of them). Another core packs."""
    waiting: deque[tuple[int, Future[bytes]]] = deque()
    with ThreadPoolExecutor(1) as packer:
        for batch in _batches(objects):
            waiting.append((len(batch), packer.submit(packed_text, b"[%b]" % exact(BETWEEN.join(batch)))))
            if len(waiting) > CHUNKS_AHEAD:
                count, packed = waiting.popleft()
                yield count, packed.result()
        for count, packed in waiting:
            yield count, packed.result()


def _batches(objects: Iterable[bytes]) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    size = 0
    for json in objects:
        batch.append(json)
        size += len(json)
        if size >= CHUNK_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch

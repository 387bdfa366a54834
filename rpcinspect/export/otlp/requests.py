"""A run as OTLP JSON: what a collector takes by HTTP, or reads from a file.

In: a run, and which of its messages are shown. Out: lines, each an ExportTraceServiceRequest in the protobuf
JSON mapping with ids in hex (the JSON encoding of OTLP), so that the file is one of OpenTelemetry's file
exporter. A small run is one line, which can be posted as it is. Lines are shorter than a mebibyte: readers of
files and HTTP servers have limits, and nothing of a long run waits in memory. Spans are in the order in which
calls began; each line names the workers anew whose spans it has.
"""

from __future__ import annotations

from collections.abc import Iterator

import orjson

from rpcinspect import __version__
from rpcinspect.export.otlp.spans import Spans
from rpcinspect.export.otlp.values import attributes
from rpcinspect.fields.phrases import printable_json
from rpcinspect.fields.plain import Json
from rpcinspect.filter.matches import Shown
from rpcinspect.run.run import RunModel
from rpcinspect.session.identity import WorkerKey
from rpcinspect.session.model import Session

SCHEMA = "https://opentelemetry.io/schemas/1.44.0"
"""Which release of the conventions the attributes are named by."""
LINE_BYTES = 800_000
"""A line ends once it has so many: the collector's reader of files cuts lines at 1 MiB."""


def otlp_lines(run: RunModel, shown: Shown | None = None) -> Iterator[bytes]:
    """Yields the lines of the file; with a filter those of the calls of which a message is shown."""
    resources = _Resources(run.session)
    batch = _SpanBatch(resources)
    for worker, span in _spans(run, shown):
        batch.add(worker, span)
        if batch.size >= LINE_BYTES:
            yield batch.line()
            batch = _SpanBatch(resources)
    if batch.size or not run.messages:
        yield batch.line()


def _spans(run: RunModel, shown: Shown | None) -> Iterator[tuple[WorkerKey, Json]]:
    spans, exchanges = Spans(run), run.exchanges.shown(None if shown is None else shown.rows)
    for call in exchanges.calls:
        yield from spans.of_call(call)
    for answer in exchanges.orphans:
        yield spans.of_answer(answer)


class _SpanBatch:
    """The spans of one line, by worker."""

    def __init__(self, resources: _Resources) -> None:
        self._resources = resources
        self._spans: dict[WorkerKey, list[bytes]] = {}
        self.size = 0
        """Bytes of the line so far."""

    def add(self, worker: WorkerKey, span: Json) -> None:
        its = self._spans.get(worker)
        if its is None:
            its = self._spans[worker] = []
            self.size += len(self._resources.head(worker))
        its.append(printable_json(orjson.dumps(span)))
        self.size += len(its[-1])

    def line(self) -> bytes:
        parts = [
            self._resources.head(worker) + b",".join(spans) + b"]}]}" for worker, spans in self._spans.items()
        ]
        return b'{"resourceSpans":[%s]}\n' % b",".join(parts)


class _Resources:
    """Who the workers are; jobs are namespaces where there are several, in which names are used again."""

    def __init__(self, session: Session) -> None:
        self._workers = {(one.job, one.name): one for one in session.workers}
        self._several = len(set(session.jobs)) > 1
        self._heads: dict[WorkerKey, bytes] = {}

    def head(self, worker: WorkerKey) -> bytes:
        """Returns what stands before the spans of a worker."""
        head = self._heads.get(worker)
        if head is None:
            resource = {"attributes": attributes(self._told(worker))}
            scope = {"name": "rpcinspect", "version": __version__}
            head = b'{"schemaUrl":%s,"resource":%s,"scopeSpans":[{"scope":%s,"spans":[' % tuple(
                map(orjson.dumps, (SCHEMA, resource, scope))
            )
            self._heads[worker] = head = printable_json(head)
        return head

    def _told(self, worker: WorkerKey) -> Json:
        job, label = worker
        known = self._workers.get(worker)
        addresses = () if known is None else known.addresses
        return {
            "service.name": label,
            "service.namespace": f"job {job}" if self._several else None,
            "torchrpc.worker.id": None if known is None else known.id,
            "torchrpc.worker.addresses": addresses[:MAX_ADDRESSES] or None,
        }


MAX_ADDRESSES = 8
"""Of a worker."""

"""Messages and their tensors as rows of the `messages` and `tensors` tables.

In: the session, and records of a second pass. Out: dicts with a value for each column.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from rpcinspect.rpc.envelope import RpcWithAutograd, RpcWithProfilingReq, RpcWithProfilingResp
from rpcinspect.rpc.message import is_request, type_name
from rpcinspect.rpc.questions import context_of, element_bytes, failed, missing_bytes, size_of
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.tensor import TensorMeta
from rpcinspect.run.tensors import LastRead, hash_of, place_of
from rpcinspect.session.model import NONE, Session
from rpcinspect.views.contract.bodies import Bodies
from rpcinspect.views.contract.message import text
from rpcinspect.views.parquet.schema import capped
from rpcinspect.wire.ranges import CaptureBytes

Row = dict[str, Any]


class MessageRows:
    """Makes them."""

    def __init__(self, session: Session, source: CaptureBytes, *, hashes: bool = True) -> None:
        self._session = session
        self._source = source
        self._hashes = hashes
        self._bodies = Bodies()
        self._clients = [text(label) for label in session.clients]
        self._servers = [text(label) for label in session.servers]
        self._index: list[int] = session.index.tolist()
        codes: dict[int, dict[str, None]] = defaultdict(dict)
        for finding in session.findings:
            for index in finding.messages:
                codes[index][finding.code] = None
        self._codes = {index: list(its) for index, its in codes.items()}

    def of(self, record: RpcRecord) -> tuple[Row, list[Row]]:
        """The row of a message, and those of its tensors."""
        return self.message(record), list(self.tensors(record))

    def message(self, record: RpcRecord) -> Row:
        """The row of a message."""
        return {**self._head(record), **self._envelopes(record), **self._body(record), **self._rest(record)}

    def _head(self, record: RpcRecord) -> Row:
        """Who, when, and what it answers."""
        columns, row = self._session.messages, record.row
        pipe, forth, kind = columns.pipe[row], columns.from_client[row], columns.type[row]
        client, server = self._clients[pipe], self._servers[pipe]
        partner = columns.partner[row]
        other = None if partner == NONE else self._index[partner]
        return {
            "index": self._index[row],
            "time": columns.time_ns[row] // 1000,
            "time_ns": columns.time_ns[row],
            "end_time_ns": columns.end_time_ns[row],
            "pipe": None if record.tp.pipe.logged else pipe,
            "job": self._session.jobs[pipe],
            "src": client if forth else server,
            "dst": server if forth else client,
            "type": type_name(kind),
            "id": columns.id[row],
            "request": is_request(kind),
            "answers": None if forth else other,
            "answered_by": other if forth else None,
            "latency_ns": columns.latency_ns(row) if forth else None,
            "control": bool(columns.control[row]),
            "findings": self._codes.get(self._index[row], []),
        }

    def _envelopes(self, record: RpcRecord) -> Row:
        """What envelopes say; of the ids, those of a body without envelope too."""
        from_worker = message_id = profiling = None
        devices: list[tuple[str, str]] = []
        for envelope in record.rpc.envelopes:
            if isinstance(envelope, RpcWithAutograd):
                message_id = envelope.autograd_metadata.autograd_message_id
                from_worker = envelope.from_worker_id
                devices = [(text(a), text(b)) for a, b in envelope.device_map.items()]
            elif isinstance(envelope, (RpcWithProfilingReq, RpcWithProfilingResp)):
                profiling = envelope.profiling_id
        return {
            "envelopes": [type_name(envelope.message_type) for envelope in record.rpc.envelopes],
            "context_id": context_of(record),
            "autograd_message_id": message_id,
            "from_worker_id": from_worker,
            "device_map": devices,
            "profiling_created_on": None if profiling is None else profiling.created_on,
            "profiling_local_id": None if profiling is None else profiling.local_id,
        }

    def _body(self, record: RpcRecord) -> Row:
        body = self._bodies.of(record)
        error = body.get("error") or {}
        rref, fork = body.get("rref_id") or NO_ID, body.get("fork_id") or NO_ID
        row = {
            "body_type": body["type"],
            "function": body.get("function"),
            "args": body.get("args", []),
            "kwargs": list((body.get("kwargs") or {}).items()),
            "async": body.get("async"),
            "value": body.get("value"),
            "failed": failed(record),
            "error_type": error.get("type"),
            "error_node_id": error.get("node_id"),
            "error_text": error.get("text"),
            "retain_graph": body.get("retain_graph"),
            "grads": body.get("grads", []),
            "rref_created_on": rref[0],
            "rref_local_id": rref[1],
            "fork_created_on": fork[0],
            "fork_local_id": fork[1],
        }
        for name in ("autograd_message_id", "from_worker_id"):  # of a gradient; of a fetch
            if name in body:
                row[name] = body[name]
        return row

    @staticmethod
    def _rest(record: RpcRecord) -> Row:
        """How much it is, and where."""
        tp = record.tp
        return {
            "tensors": len(record.rpc.tensors),
            "nbytes": capped(size_of(record)),
            "storage_nbytes": capped(sum(tensor.descriptor.length for tensor in tp.tensors)),
            "missing_bytes": capped(missing_bytes(record)),
            "problems": [text(problem.reason) for problem in record.problems],
            "location_capture": tp.capture,
            "location_packet": record.location.packet,
            "location_flow": record.location.flow,
            "location_offset": tp.offset,
        }

    def tensors(self, record: RpcRecord) -> Iterator[Row]:
        """A row for each tensor."""
        names = {part: name for meta in record.rpc.tensors for name, part in meta.parts}
        read = LastRead(self._source)
        for number, meta in enumerate(record.rpc.tensors):
            yield {
                "message": self._index[record.row],
                "tensor": number,
                "parameter": number in record.facts.parameters,
                "part": names.get(number),
                **self._tensor(record, meta, read),
            }

    def _tensor(self, record: RpcRecord, meta: TensorMeta, read: LastRead) -> Row:
        place, quantizer = place_of(record, meta), meta.quantizer
        return {
            "dtype": meta.dtype,
            "shape": meta.sizes,
            "stride": meta.strides,
            "storage_offset": meta.storage_offset,
            "layout": meta.layout,
            "device": text(meta.device),
            "target_device": None if place.target_device is None else text(place.target_device),
            "requires_grad": meta.requires_grad,
            "conj": meta.conj,
            "neg": meta.neg,
            "quantizer_scheme": None if quantizer is None else text(quantizer.scheme),
            "quantizer_scale": None if quantizer is None else quantizer.scale,
            "quantizer_zero_point": None if quantizer is None else quantizer.zero_point,
            "quantizer_axis": None if quantizer is None else quantizer.axis,
            "part_of": meta.part_of,
            "numel": capped(math.prod(meta.sizes)),
            "nbytes": capped(element_bytes(record.rpc.tensors, meta)),
            "storage": None if meta.storage is None else capped(meta.storage),
            "storage_nbytes": None if place.storage_nbytes is None else capped(place.storage_nbytes),
            "missing_bytes": capped(place.missing_bytes),
            "placement": place.placement.value,
            "sha256": hash_of(record, meta, read) if self._hashes else None,
        }


NO_ID = (None, None)

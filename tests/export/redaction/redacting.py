"""Captures redacted in memory, and what must be the same in what was and in what came of it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from rpcinspect.export.pcap.pipes import Numbered
from rpcinspect.export.pcap.writer import write_messages
from rpcinspect.export.redaction.redact import Redactor
from rpcinspect.export.rpclog import write_log
from rpcinspect.pipeline import Decoding
from tests.decoded import Decoded, Json, decode
from tests.logs import OF_PACKETS

CAPTURES = Path(__file__).resolve().parents[3] / "captures"
KEY = b"a key for tests"


def redacted(path: Path, *, network: bool, key: bytes = KEY) -> bytes:
    """A capture as a redacted pcap, or log."""
    output = io.BytesIO()
    with Decoding([str(path)]) as decoding:
        records = list(decoding.records())
        session = decoding.session
        kept = [Numbered(int(session.index[record.row]), record) for record in records]
        kept.sort(key=lambda message: message.index)
        redactor = Redactor(session, kept, lambda extent: extent.read(decoding.bytes), key, network=network)
        messages = redactor.messages()
        if network:
            write_messages(output, redactor.session, messages, redactor.read)
        else:
            write_log(output, redactor.session, messages, redactor.read, decoding.wire_facts)
    return output.getvalue()


def decoded(data: bytes, folder: Path) -> Decoded:
    path = folder / "redacted"
    path.write_bytes(data)
    return decode.__wrapped__(path)


def skeleton(decoded: Decoded) -> dict[str, Any]:
    """All that has no value in it."""
    return {
        "message": [_message(line) for line in decoded.messages],
        "finding": sorted(
            [line["code"], line["severity"], line["messages"], len(line["workers"])]
            for line in decoded.of("finding")
            if line["code"] not in OF_PACKETS
        ),
        "context": [
            [line["context_id"], line["cleanup"], [(e["forward"], e["backward"]) for e in line["edges"]]]
            for line in decoded.of("context")
        ],
        "rref": [[line["rref_id"], line["forks"], line["live_forks"]] for line in decoded.of("rref")],
        "worker": [[line["id"], line["group"], len(line["addresses"])] for line in decoded.of("worker")],
        "problems": decoded.summary["problems"],
    }


def _message(line: Json) -> list[Any]:
    body, tensors = line["body"], line["tensors"]
    kept = (
        "type",
        "rref_id",
        "fork_id",
        "context_id",
        "autograd_message_id",
        "grads",
        "async",
        "retain_graph",
    )
    return [
        *[line[key] for key in ("type", "id", "request", "answers", "control", "time_ns", "end_time_ns")],
        [{k: v for k, v in one.items() if k != "events"} for one in line["envelopes"]],
        [[(e["kind"], e["thread_id"], e["cpu_ns"]) for e in o.get("events", ())] for o in line["envelopes"]],
        {key: body[key] for key in kept if key in body},
        [len(body.get("args") or ()), len(body.get("kwargs") or {}), bool(body.get("error"))],
        [{k: v for k, v in one.items() if k not in ("sha256", "quantizer")} for one in tensors],
        [problem["layer"] for problem in line["problems"]],
    ]

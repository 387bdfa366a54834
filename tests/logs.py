"""Logs made of captures and of nothing, and what must be the same in both."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from rpcinspect.capture import LogBlock, open_capture
from rpcinspect.capture.block import LogRecord
from rpcinspect.cli.redacting import save_log
from rpcinspect.pipeline import Decoding
from tests.decoded import Decoded, Json

OF_PACKETS = {
    "invisible-transport",
    "capture-gap",
    "truncated-packets",
    "conflicting-overlap",
    "startup-skew",
    "failed-init",
    "no-rpc",
}
"""Findings that speak of packets, or of what a log says otherwise or not at all."""


def convert(*captures: Path) -> bytes:
    """The log of captures, as `export rpclog` writes it."""
    paths = [str(path) for path in captures]
    with Decoding(paths) as first:
        for _ in first.records():
            pass
        session = first.session
    output = io.BytesIO()
    with Decoding(paths) as again:
        save_log(output, session, None, again)
    return output.getvalue()


def without_packets(decoded: Decoded) -> dict[str, list[Any]]:
    """What a log and the capture that it was made of have in common."""
    return {
        "worker": decoded.of("worker"),
        "message": [_message(line) for line in decoded.messages],
        "context": decoded.of("context"),
        "rref": decoded.of("rref"),
        "finding": [line for line in decoded.of("finding") if line["code"] not in OF_PACKETS],
        "summary": [
            decoded.summary["messages"],
            decoded.summary["by_type"],
            None if _uncertain(decoded) else decoded.summary["bytes"]["tensors"],
            decoded.summary["bytes"]["missing"],
        ],
    }


def _uncertain(decoded: Decoded) -> bool:
    """Whether bytes of tensors were captured of which nobody knows whose they are: a log has no place for
    those."""
    return any(tensor["placement"] == "uncertain" for line in decoded.messages for tensor in line["tensors"])


def _message(line: Json) -> Json:
    problems = [(problem["layer"], problem["reason"]) for problem in line["problems"]]
    return line | {"pipe": None, "location": None, "problems": problems}


def message(
    src: str = "worker0",
    dst: str = "worker1",
    kind: str | int = "CLEANUP_AUTOGRAD_CONTEXT_RESP",
    payload: bytes = b"",
    storages: tuple[bytes, ...] = (),
    **keys: Any,
) -> bytes:
    """One record, as a writer that knows only the documentation makes it."""
    parts = (payload, *storages)
    header = {"rpc": "message", "time_ns": 1, "src": src, "dst": dst, "type": kind, "id": 0}
    header |= {"bytes": sum(map(len, parts)), "payload": len(payload)}
    header |= {"storages": [len(data) for data in storages]} | keys
    body = b"".join(parts)
    return json.dumps(header).encode() + b"\n" + body + (b"\n" if body else b"")


def log_of(*records: bytes) -> bytes:
    return b'{"rpclog":1}\n' + b"".join(records)


def blocks_of(path: Path) -> tuple[list[LogRecord], list[str], bool]:
    """The records of a log, its problems, and whether some may have been lost."""
    with open_capture(str(path)) as reader:
        blocks = [block for block in reader.blocks() if isinstance(block, LogBlock)]
        records = [record for block in blocks for record in block.records]
        return records, [p.reason for p in reader.problems], any(block.damaged for block in blocks)

"""A log as `record --tensors none` writes it: every message, and no byte of a tensor."""

from __future__ import annotations

import json
from pathlib import Path

from tests.places import content


def without_tensors(name: str, to: Path) -> Path:
    """Writes a log again, its tensors left out."""
    data, kept, at = content(name), [], 0
    while at < len(data):
        end = data.index(b"\n", at) + 1
        line = data[at:end]
        at = end
        if line == b"\n":
            kept.append(line)
            continue
        header = json.loads(line)
        body = data[at : at + header.get("bytes", 0)]
        at += len(body)
        if header.get("storages"):
            body = body[: header["payload"] + header["table"]]
            header["bytes"] = len(body)
            for storage in header["storages"]:
                storage["missing"] = [[0, storage["length"]]]
        kept += [json.dumps(header).encode(), b"\n", body]
    to.write_bytes(b"".join(kept))
    return to

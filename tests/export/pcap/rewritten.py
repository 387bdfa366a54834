"""A capture written again by `write_session`, and what must be the same in both.

In: captures, and which messages to keep. Out: the new file, and each message and the rest of the session as
plain values without what only says where in the file something lies.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rpcinspect.export.pcap.writer import write_session
from rpcinspect.run.run import RunModel
from tests.decoded import Decoded, decode

Json = dict[str, Any]


def rewrite(paths: Sequence[Path], out: Path, keep: Collection[int] | None = None) -> int:
    """Writes the messages of captures, read as one session."""
    with RunModel.open([str(path) for path in paths]) as opened, out.open("wb") as file:
        return write_session(file, opened.session, opened.messages, opened.read, keep)


@dataclass(frozen=True)
class Raw:
    """The bytes of a message, and how its descriptor announced them."""

    payloads: tuple[bytes, ...]
    tensors: tuple[tuple[object, ...], ...]


def raw_messages(*paths: Path) -> list[Raw]:
    """Descriptors but for their channels, payloads and storages, straight from the wire stage."""
    with RunModel.open([str(path) for path in paths]) as opened:
        return [
            Raw(
                record.tp.payloads,
                tuple(
                    (
                        tensor.descriptor.length,
                        tensor.descriptor.source_device,
                        tensor.descriptor.target_device,
                        tensor.placement,
                        None if tensor.extent is None else opened.read(tensor.extent),
                    )
                    for tensor in record.tp.tensors
                ),
            )
            for record in opened.messages
        ]


def told(decoded: Decoded) -> list[Json]:
    """Message lines without their place in the file."""
    return [_without(m, "location", "pipe", "problems") for m in decoded.messages]


def rest(decoded: Decoded) -> dict[str, list[Json]]:
    """The lines about the session, but for when workers came: a copy has one connection for all names."""
    lines = {kind: decoded.of(kind) for kind in ("worker", "context", "rref", "finding")}
    return lines | {"finding": [line for line in lines["finding"] if line["code"] != "startup-skew"]}


def assert_same(paths: Sequence[Path], out: Path) -> None:
    """Everything of the session is in the file that was written from it."""
    before, after = decode(*paths), decode(out)
    assert told(after) == told(before)
    assert raw_messages(out) == raw_messages(*paths)
    assert rest(after) == rest(before)
    assert after.problems() == []
    assert after.summary["by_type"] == before.summary["by_type"]


def _without(line: Json, *keys: str) -> Json:
    return {key: value for key, value in line.items() if key not in keys}

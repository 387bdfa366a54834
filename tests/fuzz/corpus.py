"""What fuzzing begins with: pieces of real captures, the bundled ones and others where there are any.

Out: messages and pickles, of which targets make their seeds. `python -m tests.fuzz.corpus DIR` writes the
seeds of all targets as files.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rpcinspect.pipeline import Decoding
from rpcinspect.rpc.envelope import split_wrapped
from rpcinspect.rpc.record import RpcRecord
from tests.fuzz.mutation import MAX_BYTES
from tests.places import all_foreign, recordings

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (".", "faults", "torch", "versions")
MAX_CAPTURE = 100_000
"""Compressed or not: what a larger capture has, a smaller one has too."""


@dataclass(frozen=True)
class Message:
    """A captured message and what a target may want of it."""

    record: RpcRecord
    src: str
    dst: str
    tensors: tuple[bytes, ...]

    @property
    def payloads(self) -> tuple[bytes, bytes]:
        """Payload and tensor table."""
        payloads = self.record.tp.payloads
        return payloads[2], payloads[3]


def captures() -> list[Path]:
    """Those that are small enough."""
    return [path for path in recordings(*FOLDERS) if path.stat().st_size <= MAX_CAPTURE]


def of_other_protocols() -> list[Path]:
    """Captures of others, for their headers; none where they are not."""
    return all_foreign("thirdparty")


@cache
def messages(path: Path) -> tuple[Message, ...]:
    """All whole ones of a capture, in the order of time."""
    with Decoding([str(path)]) as decoding:
        records = list(decoding.records())
        session = decoding.session
        found = []
        for row in session.order.tolist():
            tp = records[row].tp
            if tp.payload_missing is not None or len(tp.payloads) != 4:
                continue
            tensors = [b"" if t.extent is None else t.extent.read(decoding.bytes) for t in tp.tensors]
            ends = session.source(row), session.destination(row)
            found.append(Message(records[row], *ends, tuple(tensors)))
        return tuple(found)


@cache
def distinct() -> tuple[Message, ...]:
    """One message of each form among all captures: those that differ in more than numbers."""
    found: dict[tuple[object, ...], Message] = {}
    for path in captures():
        for message in messages(path):
            record = message.record
            key = (
                record.rpc.message.type,
                tuple(type(e).__name__ for e in record.rpc.envelopes),
                record.facts.function,
                len(record.rpc.tensors),
                tuple((m.dtype, m.layout) for m in record.rpc.tensors),
                record.facts.failed,
            )
            found.setdefault(key, message)
    return tuple(found.values())


def python_pickles() -> Iterator[bytes]:
    """Of requests and answers."""
    for message in distinct():
        data = getattr(message.record.rpc.command, "serialized_py_obj", None)
        if isinstance(data, bytes):
            yield data


def jit_pickles() -> Iterator[bytes]:
    """Tensor tables, commands, and what envelopes are written in."""
    for message in distinct():
        payload, table = message.payloads
        yield table
        for _ in message.record.rpc.envelopes:
            payload, suffix = split_wrapped(payload)
            yield suffix
        if payload.startswith(b"\x80\x02"):
            yield payload


def write(folder: Path) -> None:
    """Every target's seeds."""
    from tests.fuzz.targets import TARGETS

    for name, target in TARGETS.items():
        to = folder / name
        to.mkdir(parents=True, exist_ok=True)
        seeds = list(dict.fromkeys(seed for seed in target.seeds() if len(seed) <= MAX_BYTES))
        for number, seed in enumerate(seeds):
            (to / f"{number:04}").write_bytes(seed)
        print(f"{name}: {len(seeds)} seeds, {sum(map(len, seeds)):,} bytes")


if __name__ == "__main__":
    write(Path(sys.argv[1]))

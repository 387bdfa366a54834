"""What `decode --format jsonl` says of a capture, as objects: the lines themselves are what tests read."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

from msgspec import Struct

from rpcinspect.pipeline import Decoding, Options
from rpcinspect.views.jsonl.lines import JsonLines
from rpcinspect.views.stream import JsonStream

Json = dict[str, Any]


class Decoded(Struct, frozen=True):
    """The lines of one output, by kind; a message's place in `messages` is its index."""

    lines: tuple[Json, ...]

    def of(self, kind: str) -> list[Json]:
        return [line for line in self.lines if line["kind"] == kind]

    @property
    def messages(self) -> list[Json]:
        return self.of("message")

    @property
    def summary(self) -> Json:
        (summary,) = self.of("summary")
        return summary

    def answer(self, request: Json) -> Json | None:
        """The message that answers a request; more than one is a failure of the decoder."""
        found = [m for m in self.messages if m["answers"] == request["index"]]
        assert len(found) <= 1, f"{len(found)} messages answer #{request['index']}"
        return found[0] if found else None

    def problems(self) -> list[Json]:
        """Of messages and of the capture."""
        return [*self.summary["problem_list"], *(p for m in self.messages for p in m["problems"])]


def parse(lines: bytes) -> tuple[Json, ...]:
    """JSON Lines as objects; NaN and Infinity, which JSON lacks, are refused."""
    assert lines.endswith(b"\n")
    return tuple(json.loads(line, parse_constant=_refuse) for line in lines.decode().split("\n")[:-1])


def _refuse(literal: str) -> NoReturn:
    raise AssertionError(f"{literal} is no JSON")


@lru_cache(maxsize=256)
def decode(*paths: Path, hashes: bool = True) -> Decoded:
    """Captures read as one session. Kept for the tests of this process; don't change it. All bundled captures
    together take 70 MB."""
    return Decoded(parse(b"".join(pieces(*paths, hashes=hashes))))


def pieces(*paths: Path, hashes: bool = True) -> Iterator[bytes]:
    """The output as the command writes it."""
    with tempfile.TemporaryFile() as spool, Decoding([str(path) for path in paths]) as decoding:
        view = JsonLines(spool, decoding.bytes, hashes=hashes)
        for record in decoding.records():
            view.feed([record])
        yield from view.finish(decoding.session)


LATE = ("answered_by", "latency_ns", "parents", "parent_certain", "call")
"""What a message line says of others, which `--stream` can't know yet."""


def alone(line: Json) -> Json:
    """A message line without that."""
    return {key: value for key, value in line.items() if key not in LATE}


def stream(path: Path) -> Decoded:
    """The output of `--stream`."""
    with Decoding([str(path)], Options(by_completion=True)) as decoding:
        view = JsonStream(decoding, hashes=True)
        lines = [view.line(record) for record in decoding.records()]
        lines.append(view.rest(decoding.session))
    return Decoded(parse(b"".join(lines)))

"""The objects of JSON Lines as one JSON document: `{"schema": 1, …}` with a list for each kind of line.

In: what `jsonl` and `trace` make. Out: the document in pieces, one object on each line; memory holds no
more than for the lines. Lists that nothing is in are there too; what there is one of stands by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import orjson

from rpcinspect.fields.plain import Json
from rpcinspect.filter.matches import Shown
from rpcinspect.session.model import Session
from rpcinspect.views.jsonl.calls import OfSession, call_json, filter_line
from rpcinspect.views.jsonl.lines import JsonLines, head_lines, tail_lines

KEYS = {
    "capture": "captures",
    "worker": "workers",
    "pipe": "pipes",
    "message": "messages",
    "context": "contexts",
    "rref": "rrefs",
    "finding": "findings",
    "passing": "passing",
    "segment": "segments",
    "exchange": "exchanges",
    "latency": "latency",
    "straggler": "stragglers",
    "profile": "profiles",
    "profile_row": "profile_rows",
    "device_map": "device_maps",
    "departure": "departures",
    "worker_log": "worker_logs",
    "log": "log",
    "call": "calls",
}
"""Kind of a line → name of its list."""
SINGLE = frozenset({"summary", "closings", "filter"})
"""Kinds of which there is one: not in a list."""

HEAD = ("capture", "worker", "pipe")
TAIL = ("context", "rref", "finding")

_BEGIN = b'{\n"schema": 1'
_END = b"\n}\n"


def session_pieces(view: JsonLines, session: Session, shown: Shown | None = None) -> Iterator[bytes]:
    """Yields what `view.finish` gives, as one document."""
    yield _BEGIN
    yield from _members(head_lines(session), HEAD)
    yield b',\n"messages": ['
    between = b"\n"
    for batch in view.batches(session, shown):
        yield between + b",\n".join(batch)
        between = b",\n"
    yield b"]"
    yield from _members(tail_lines(session, shown), TAIL)
    yield _END


def message_pieces(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Lines of messages and nothing else."""
    yield b"".join((_BEGIN, _list("message", [line.rstrip(b"\n") for line in lines]), _END))


def call_pieces(calls: OfSession, shown: Shown | None) -> Iterator[bytes]:
    """Yields what `call_lines` gives, as one document."""
    yield _BEGIN
    yield b',\n"calls": ['
    between = b"\n"
    for batch in calls.batches(calls.rows):
        yield between + b",\n".join([orjson.dumps(call_json(call)) for call in batch])
        between = b",\n"
    yield b"]"
    if shown is not None:
        yield from _members([filter_line(calls, shown)], ())
    yield _END


def answer_pieces(kinds: Iterable[str], lines: Iterable[Json]) -> Iterator[bytes]:
    """The answer to a question about a whole run, which has a list for each of these kinds."""
    yield _BEGIN
    yield from _members(lines, kinds)
    yield _END


def _members(lines: Iterable[Json], kinds: Iterable[str]) -> Iterator[bytes]:
    """A list for each kind, of those that come beside them too, then what there is one of."""
    lists: dict[str, list[bytes]] = {kind: [] for kind in kinds}
    single: dict[str, bytes] = {}
    for line in lines:
        kind = line["kind"]
        if kind in SINGLE:
            single[kind] = orjson.dumps(line)
        else:
            lists.setdefault(kind, []).append(orjson.dumps(line))
    for kind, objects in lists.items():
        yield _list(kind, objects)
    for kind, one in single.items():
        yield b',\n"%s": %s' % (kind.encode(), one)


def _list(kind: str, objects: Iterable[bytes]) -> bytes:
    inside = b",\n".join(objects)
    return b',\n"%s": [%s]' % (KEYS[kind].encode(), inside and b"\n" + inside)

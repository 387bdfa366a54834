"""The objects of JSON Lines as one JSON document: `{"schema": 1, …}` with a list for each kind of line.

In: lines of JSON. Out: the document in pieces, one object on each line; memory holds no
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

SAME = frozenset({"passing", "latency", "log"})
"""Kinds whose list has their name; the others' has an s more."""
SINGLE = frozenset({"summary", "closings", "filter"})
"""Kinds of which there is one: not in a list."""

HEAD = ("capture", "worker", "pipe")
TAIL = ("context", "rref", "finding")

_BEGIN = b'{\n"schema": 1'
_END = b"\n}\n"


def list_name(kind: str) -> str:
    """Returns what the list of a kind of lines is called in a document."""
    return kind if kind in SAME else f"{kind}s"


def session_pieces(view: JsonLines, session: Session, shown: Shown | None = None) -> Iterator[bytes]:
    """Yields what `view.finish` gives, as one document."""
    yield _BEGIN
    yield from _members(head_lines(session), HEAD)
    yield from _batched("message", view.batches(session, shown))
    yield from _members(tail_lines(session, shown), TAIL)
    yield _END


def message_pieces(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Lines of messages and nothing else."""
    yield b"".join((_BEGIN, _list("message", [line.rstrip(b"\n") for line in lines]), _END))


def call_pieces(calls: OfSession, shown: Shown | None) -> Iterator[bytes]:
    """Yields what `call_lines` gives, as one document."""
    yield _BEGIN
    yield from _batched("call", (map(orjson.dumps, map(call_json, of)) for of in calls.batches(calls.rows)))
    if shown is not None:
        yield from _members([filter_line(calls, shown)], ())
    yield _END


def answer_pieces(kinds: Iterable[str], lines: Iterable[Json]) -> Iterator[bytes]:
    """The answer to a question about a whole run, which has a list for each of these kinds."""
    yield _BEGIN
    yield from _members(lines, kinds)
    yield _END


def _batched(kind: str, batches: Iterable[Iterable[bytes]]) -> Iterator[bytes]:
    """A list of very many objects."""
    yield b',\n"%s": [' % list_name(kind).encode()
    between = b"\n"
    for batch in batches:
        yield between + b",\n".join(batch)
        between = b",\n"
    yield b"]"


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
    return b',\n"%s": [%s]' % (list_name(kind).encode(), inside and b"\n" + inside)

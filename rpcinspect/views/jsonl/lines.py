"""Sessions as JSON Lines: the output contract, schema 1, that other people's scripts rely on.

In: records as they become complete, then the session. Out: one JSON object per line. What a message line
holds of itself is rendered at once and spooled; its index, its ends' names and what it answers are put before
that when the session is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any, BinaryIO

import orjson
from msgspec import UNSET, defstruct
from msgspec.json import Encoder

from rpcinspect.fields.plain import Json, Picked, text
from rpcinspect.fields.session import AtTheEnd, Known
from rpcinspect.fields.table import MESSAGE
from rpcinspect.problems import Problem
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.model import Session, Totals
from rpcinspect.tcp.ranges import CaptureBytes
from rpcinspect.views.jsonl.hashes import HashThreads
from rpcinspect.views.jsonl.message import MessageRenderer, location_json, problem_json
from rpcinspect.views.questions.session import (
    capture_json,
    context_json,
    finding_json,
    pipe_json,
    pipes_of,
    rref_json,
    worker_json,
)
from rpcinspect.views.spool import Spool

if TYPE_CHECKING:
    from rpcinspect.filter.matches import Shown

BATCH = 4000
"""Message lines that are put together at a time."""


class JsonLines:
    """The view: `feed` records in the order in which messages become complete, then `finish` with the session
    gives every line.
    """

    def __init__(
        self,
        spool: BinaryIO,
        source: CaptureBytes,
        *,
        hashes: bool = True,
        beside: HashThreads | None = None,
    ) -> None:
        self._spool = Spool(spool)
        self._beside = beside
        self._renderer = MessageRenderer(source, hashes=hashes, beside=beside)

    def feed(self, records: Sequence[RpcRecord | None]) -> None:
        """Renders some messages; None stands for one that will not be shown."""
        self._spool.extend(self._renderer.tails(records))
        self._put_hashes()

    def _put_hashes(self, *, all_of_them: bool = False) -> None:
        if self._beside is not None:
            for row, mark, digest in self._beside.known(wait=all_of_them):
                self._spool.replace(row, mark, digest)

    def finish(self, session: Session, shown: Shown | None = None) -> Iterator[bytes]:
        """Yields all lines, in the contract's order, in pieces that end with a line; of messages those in
        `shown`."""
        yield lines(head_lines(session))
        for batch in self.batches(session, shown):
            yield b"\n".join((*batch, b""))
        yield lines(tail_lines(session, shown))

    def batches(self, session: Session, shown: Shown | None = None) -> Iterator[list[bytes]]:
        """The objects of messages, some at a time."""
        self._put_hashes(all_of_them=True)
        order = session.order.tolist()
        if shown is not None:
            order = shown.of(order)
        known = AtTheEnd(session)
        for first in range(0, len(order), BATCH):
            rows = order[first : first + BATCH]
            yield message_lines(known.at(rows), self._spool.read(rows))


_HEAD = [field.key for field in MESSAGE if field.in_json]
_Head = defstruct("_Head", [(key, Any, UNSET) for key in _HEAD], tag_field="kind", tag="message", gc=False)
_columns = attrgetter(*_HEAD)
_encode = Encoder().encode


def message_lines(known: Known, tails: Iterable[bytes]) -> list[bytes]:
    """Returns the lines of the chosen messages without line breaks; `tails`: the parts that each record alone
    gives."""
    columns = [repeat(UNSET) if column is None else column for column in _columns(known)]
    heads = map(_encode, map(_Head, *columns))
    return [b",".join((head[:-1], tail)) for head, tail in zip(heads, tails, strict=True)]


def message_line(record: RpcRecord, session: Session, source: CaptureBytes, *, hashes: bool = True) -> bytes:
    """Returns one message's line, as `JsonLines` writes it."""
    tails = MessageRenderer(source, hashes=hashes).tails([record])
    (line,) = message_lines(AtTheEnd(session).at([record.row]), tails)
    return line + b"\n"


def lines(items: Iterator[Json]) -> bytes:
    """Objects as lines."""
    return b"".join([orjson.dumps(item) + b"\n" for item in items])


def head_lines(session: Session) -> Iterator[Json]:
    """What comes before the messages: captures, workers, pipes."""
    yield from map(capture_json, session.captures)
    yield from map(worker_json, session.workers)
    yield from map(pipe_json, pipes_of(session))


def tail_lines(session: Session, shown: Shown | None = None) -> Iterator[Json]:
    """Yields the lines behind the messages: contexts, RRefs and findings, all or those that shown messages
    take part in; then the workers' own logs, and the summary."""
    contexts = session.contexts if shown is None else shown.contexts(session)
    rrefs = session.rrefs if shown is None else shown.rrefs(session)
    findings = session.findings if shown is None else shown.findings(session)
    yield from map(context_json, contexts)
    yield from map(rref_json, rrefs)
    yield from map(finding_json, findings)
    if session.worker_logs is not None:
        from rpcinspect.views.worker_logs import event_json, file_json

        yield from map(file_json, session.worker_logs.files)
        if shown is None:
            yield from map(event_json, session.worker_logs.events)
    summary = summary_json(session.totals, session.problems)
    if shown is not None:
        counts = {"contexts": len(contexts), "rrefs": len(rrefs), "findings": len(findings)}
        whole = (session.contexts, session.rrefs, session.findings)
        summary |= filter_json(shown, counts, dict(zip(counts, map(len, whole), strict=True)))
    yield summary


def filter_json(shown: Shown, counts: Mapping[str, int], of: Mapping[str, int]) -> Json:
    """Returns the line about a filter: how many messages match, how many other things are shown."""
    return {"filter": text(shown.text), "matched": shown.count, "shown": dict(counts), "of": dict(of)}


_bytes_json = Picked(
    "rpc=rpc_bytes tensors=tensor_bytes missing=missing_bytes skipped=skipped_bytes store=store_bytes"
)


def summary_json(totals: Totals, problems: tuple[Problem, ...]) -> Json:
    """The `summary` line; `problem_list` holds the problems that belong to no message."""
    return {
        "kind": "summary",
        "messages": totals.messages,
        "by_type": totals.by_type,
        "problems": totals.problems,
        "bytes": _bytes_json(totals),
        "problem_list": [{**problem_json(p), "location": location_json(p.location)} for p in problems],
    }

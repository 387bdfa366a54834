"""Calls: one row for each request with its answer, who calls whom with what, what came back, and what it was
sent for.

In: records as they become complete, then the session. Out: rows, in the order of time, and their lines of
JSON. What messages say of themselves is rendered at once and spooled; memory holds a few numbers for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO

import orjson
from msgspec import Struct

from rpcinspect.fields.call import answer_json, request_json
from rpcinspect.fields.phrases import error_phrase, packed, printable, shorten
from rpcinspect.fields.plain import Json
from rpcinspect.fields.session import AtTheEnd, failure_json
from rpcinspect.filter.matches import Shown
from rpcinspect.rpc.cache import BoundedCache
from rpcinspect.rpc.callee import Name
from rpcinspect.rpc.command_codec import message_type_of
from rpcinspect.rpc.decode import REPEATING, held_bytes
from rpcinspect.rpc.message import MessageType
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.run.causes import Causes, Doubt
from rpcinspect.session.model import NONE, CallFailure, Session
from rpcinspect.session.provenance import NO_CONTEXT
from rpcinspect.views.columns import Column, json_of
from rpcinspect.views.jsonl.lines import filter_json, lines
from rpcinspect.views.spool import Spool

CACHE_BYTES = 1 << 22
MAX_ERROR = 200
"""Characters of an error in a line for people."""
BATCH = 2000
"""Rows that are put together at a time."""
GRADIENTS, REFERENCE = MessageType.BACKWARD_AUTOGRAD_REQ.name, MessageType.RREF_BACKWARD_REQ.name


class CallTexts:
    """Renders messages as JSON, each once for all messages with the same content."""

    def __init__(self) -> None:
        self._known: BoundedCache[tuple[int, int], tuple[object, object, bytes]] = BoundedCache(CACHE_BYTES)

    def of(self, record: RpcRecord) -> bytes:
        """Returns the JSON of one message."""
        return record.told(self._of)

    def _of(self, record: RpcRecord) -> bytes:
        like = record.like
        key = (id(like.command), id(like.tensors))
        if not record.problems:
            known = self._known.get(key)
            if known is not None:  # the entry holds both objects, so that their ids stay theirs
                return known[2]
        told = orjson.dumps(request_json(record) if record.tp.from_client else answer_json(record))
        if not record.problems and (record.pattern is not None or message_type_of(like.command) in REPEATING):
            self._known.put(key, (like.command, like.tensors, told), len(told) + held_bytes(like))
        return told


def call_text(asked: Json, name: Name | None, context_id: int | None, *, housekeeping: bool) -> str:
    """Returns the call in short: `Head.forward(tensor[8,16])`."""
    told: str = asked["short"]
    if told.startswith("(") and asked["type"].endswith("_CALL"):
        told = f"{name.short if name is not None else asked['function'] or '?'}{told}"
    elif context_id is not None and asked["type"] == GRADIENTS:
        told = f"gradients of context {packed(context_id)}: {told}"
    elif context_id is not None and asked["type"] == REFERENCE:
        told = f"{told} in context {packed(context_id)}"
    elif context_id is not None and housekeeping:
        told = f"{told} context {packed(context_id)}"
    return printable(told)


def outcome(answered: Json, failure: CallFailure | None) -> str:
    """Returns the result in short, or why the caller gave up; empty where neither is known."""
    if not answered:
        return "" if failure is None else f"gave up: {failure.reason}"
    error = answered["error"]
    if error is not None:
        return printable(f"✗ {shorten(error_phrase(error), MAX_ERROR)}")
    short = answered["short"]
    return printable(f"= {short}" if short else "")


class CallRow(Struct, frozen=True, kw_only=True):
    """A request with its answer."""

    request: int
    """Index of the request."""
    answer: int | None
    job: int
    caller: str
    callee: str
    name: Name | None
    """Who is called, as a person says it; None where nobody is."""
    context_id: int | None
    housekeeping: bool
    time_ns: int
    """First byte of the request."""
    end_time_ns: int | None
    """Last byte of the answer."""
    latency_ns: int | None
    parents: tuple[int, ...]
    parent_certain: bool
    doubt: Doubt | None
    failure: CallFailure | None
    asked: dict[str, Any]
    """What the request says, as `fields.call` has it."""
    answered: dict[str, Any]
    """What the answer says; empty without one."""

    @property
    def text(self) -> str:
        return call_text(self.asked, self.name, self.context_id, housekeeping=self.housekeeping)

    @property
    def outcome(self) -> str:
        return outcome(self.answered, self.failure)

    @property
    def failed(self) -> bool:
        """Whether the answer reports an error."""
        return self.answered.get("error") is not None


class CallRows:
    """`feed` every record in the order in which messages become complete; then ask for rows."""

    def __init__(self, spool: BinaryIO) -> None:
        self._spool = Spool(spool)
        self._texts = CallTexts()

    def feed(self, records: Sequence[RpcRecord | None]) -> None:
        """Renders the content of some messages; None stands for one that will not be shown."""
        self._spool.extend([b"" if record is None else self._texts.of(record) for record in records])

    def of(self, session: Session, shown: Shown | None = None) -> OfSession:
        """The calls of a session: all, or those whose request or answer is `shown`."""
        return OfSession(session, self._spool, shown)


class OfSession:
    """The calls of a session."""

    def __init__(self, session: Session, spool: Spool, shown: Shown | None) -> None:
        self._session = session
        self._spool = spool
        self._known = AtTheEnd(session)
        columns = session.messages
        partner, forth = columns.partner, columns.from_client
        self._keeping = keeping = columns.housekeeping()
        picked = b"\1" * len(columns) if shown is None else shown.rows
        requests = [row for row in session.order.tolist() if forth[row]]
        self.rows = [
            row for row in requests if picked[row] or (partner[row] != NONE and picked[partner[row]])
        ]
        """The requests' rows, in the order of time."""
        self.calls = [row for row in self.rows if not keeping[row]]
        """The same without housekeeping."""
        self.all_rows = len(requests)
        self.all_calls = sum(not keeping[row] for row in requests)
        """How many there are, shown or not."""
        there = range(len(columns))
        self.hidden = sum(picked[row] and keeping[row] for row in there)
        """Messages of housekeeping."""
        self.orphans = sum(picked[row] and not forth[row] and partner[row] == NONE for row in there)
        """Answers whose request was not captured."""

    @property
    def causes(self) -> Causes:
        """What each request was sent for."""
        return self._known.causes

    def batches(self, rows: Sequence[int]) -> Iterator[list[CallRow]]:
        """The calls of some requests, in that order, some at a time."""
        for first in range(0, len(rows), BATCH):
            yield self._batch(rows[first : first + BATCH])

    def _batch(self, rows: Sequence[int]) -> list[CallRow]:
        session, spool = self._session, self._spool
        columns, index = session.messages, session.index
        answers = [columns.partner[row] for row in rows]
        there = [row for row in answers if row != NONE]
        told = dict(zip(there, spool.read(there), strict=True))
        found = []
        for row, answer, asked in zip(rows, answers, spool.read([*rows]), strict=True):
            number = int(index[row])
            parents, certain = self.causes.of(number)
            context = session.provenance.context[row]
            found.append(
                CallRow(
                    request=number,
                    answer=None if answer == NONE else int(index[answer]),
                    job=session.jobs[columns.pipe[row]],
                    caller=session.source(row),
                    callee=session.destination(row),
                    name=self._known.names.get(row),
                    context_id=None if context == NO_CONTEXT else context,
                    housekeeping=bool(self._keeping[row]),
                    time_ns=columns.time_ns[row],
                    end_time_ns=None if answer == NONE else columns.end_time_ns[answer],
                    latency_ns=columns.latency_ns(row),
                    parents=parents,
                    parent_certain=certain,
                    doubt=self.causes.doubts.get(number),
                    failure=session.failures.get(row),
                    asked=orjson.loads(asked),
                    answered={} if answer == NONE else orjson.loads(told[answer]),
                )
            )
        return found


def _of_error(part: str) -> Callable[[CallRow], Any]:
    """Gives a part of the error that came back."""
    return lambda row: (row.answered.get("error") or {}).get(part)


CALL = (
    Column("request", "int64"),
    Column("answer", "int64"),
    Column("job", "int32"),
    Column("caller", "text"),
    Column("callee", "text"),
    Column("call", "text", "name.short"),
    Column("method", "text", "name.method"),
    Column("class", "text", "name.cls"),
    Column("function", "text", lambda row: row.asked["function"]),
    Column("args", "list of text", lambda row: row.asked["args"]),
    Column("kwargs", "map", lambda row: row.asked["kwargs"]),
    Column("text", "text"),
    Column("result", "text", lambda row: row.answered.get("result")),
    Column("error", of=lambda row: row.answered.get("error")),
    Column("error_type", "text", _of_error("type"), json=False),
    Column("error_node_id", "int64", _of_error("node_id"), json=False),
    Column("error_text", "text", _of_error("text"), json=False),
    Column("type", "text", lambda row: row.asked["type"]),
    Column("context_id", "int64"),
    Column("housekeeping", "bool"),
    Column("time_ns", "int64"),
    Column("end_time_ns", "int64"),
    Column("latency_ns", "int64"),
    Column("parents", "list of int64"),
    Column("parent_certain", "bool"),
    Column("failure", of=lambda row: None if row.failure is None else failure_json(row.failure)),
)
"""A row for each request with its answer, in JSON and in Parquet."""
call_json = json_of(CALL, "call")


def call_lines(calls: OfSession, shown: Shown | None) -> Iterator[bytes]:
    """The lines of all calls, housekeeping among them, in pieces; then of a filter what it has picked."""
    for batch in calls.batches(calls.rows):
        yield lines(map(call_json, batch))
    if shown is not None:
        yield lines(iter([filter_line(calls, shown)]))


def filter_line(calls: OfSession, shown: Shown) -> Json:
    """What a filter has picked."""
    counts, of = {"calls": len(calls.rows)}, {"calls": calls.all_rows}
    return {"kind": "filter", **filter_json(shown, counts, of), "matched": len(calls.rows)}

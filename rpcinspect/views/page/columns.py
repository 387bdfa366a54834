"""The messages of a run as columns of small numbers: what the rows and the diagram of a page are made of.

In: a run and the indexes to show. Out: a dict for JSON: one list for each column, and the tables of strings
that they point into, each string once. What a column names by another message's index is the distance to it,
0 for none, since that is short.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache, partial
from itertools import count

import orjson

from rpcinspect.fields.phrases import Phrases, end_label, packed, shorten
from rpcinspect.fields.plain import Json, text
from rpcinspect.rpc.command import ExceptionResponse
from rpcinspect.rpc.command_codec import message_type_of
from rpcinspect.rpc.envelope import RpcWithAutograd
from rpcinspect.rpc.message import MessageType, is_request, type_name
from rpcinspect.rpc.questions import failed, function_of, size_of
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.run.causes import Doubt
from rpcinspect.run.exchanges import Exchange
from rpcinspect.run.run import RunModel
from rpcinspect.session.model import NONE, Session
from rpcinspect.session.provenance import NO_CONTEXT
from rpcinspect.views.jsonl.calls import CallTexts, call_text, outcome

KINDS = ("call", "forward", "backward", "housekeeping")
"""What a message is for, its answer likewise: a call, one within an autograd context, a backward pass,
housekeeping: references, contexts, start-up and shutdown."""

REQUEST, FAILED, PROBLEM, OPEN, ASKS, ERROR, CONTROL, NAMED = (1 << bit for bit in range(8))
"""Bits of `flags`. OPEN: a request without an answer; ASKS and ERROR: the fields `request` and `error` of
filters; NAMED: `function` is the field `call`."""

PASSES = frozenset(
    {
        MessageType.BACKWARD_AUTOGRAD_REQ,
        MessageType.BACKWARD_AUTOGRAD_RESP,
        MessageType.RREF_BACKWARD_REQ,
        MessageType.RREF_BACKWARD_RESP,
    }
)
COLUMNS = (
    *("index", "time", "took", "src", "dst", "type", "body", "kind", "flags"),
    *("partner", "latency", "parent", "nested", "context", "nbytes", "function", "edge", "text", "short"),
)
"""`index` and `time` are distances to the message before; `latency` is there where the partner is not shown;
`short` is what `--calls` says of a request or its answer."""
MAX_TOLD = 256
"""Of what messages say, that is kept."""
MAX_TEXT = 300
"""Of what a row says; the details say all of it."""


MAX_PARENTS = 20
"""Of those that a request may have been sent for, the likeliest."""


class WorkerLanes:
    """The workers of a session in a fixed order; two jobs may have workers of the same name."""

    def __init__(self, session: Session) -> None:
        self._session = session
        places = {(w.job, w.name): n for n, w in enumerate(session.workers) if w.name is not None}
        ends = [*zip(session.jobs, session.clients, strict=True)]
        ends += zip(session.jobs, session.servers, strict=True)
        found = list(dict.fromkeys(ends))
        found.sort(key=lambda end: (end[0], places.get(end, len(places))))
        self._number = {end: n for n, end in enumerate(found)}
        several = len({job for job, _ in found}) > 1
        self.labels = [end_label(label) + (f" (job {job})" if several else "") for job, label in found]
        self.names = [text(label) for _, label in found]
        """As filters know them."""
        self.jobs = [job for job, _ in found]

    def of(self, row: int) -> tuple[int, int]:
        """Sender and receiver of a message."""
        session = self._session
        job = session.jobs[session.messages.pipe[row]]
        return self._number[job, session.source(row)], self._number[job, session.destination(row)]

    def number(self, job: int, label: str) -> int | None:
        """The lane of a worker; None of one that no pipe leads to."""
        return self._number.get((job, label))


def columns_of(
    run: RunModel, lanes: WorkerLanes, indexes: Sequence[int], contexts: dict[tuple[int, int], int]
) -> Json:
    """`contexts`: (job, context id) → its place in the page's list of contexts."""
    return _Columns(run, lanes, contexts).json(indexes)


def _doubt(doubt: Doubt) -> list[int]:
    """Whether it may be of the sender's own program, whether of a request that was not captured; of how many
    others, and which."""
    return [doubt.own, doubt.unseen, len(doubt.parents), *doubt.parents[:MAX_PARENTS]]


@lru_cache(MAX_TOLD)
def _loaded(text: bytes) -> Json:
    """What a message says, made once of many that say the same; nobody changes it."""
    told: Json = orjson.loads(text)
    return told


class _Columns:
    def __init__(self, run: RunModel, lanes: WorkerLanes, contexts: dict[tuple[int, int], int]) -> None:
        self._run = run
        self._lanes = lanes
        self._contexts = contexts
        self._phrases = Phrases()
        self._keeping = run.session.messages.housekeeping()
        self._calls: dict[int, Exchange] = {}
        """By the index of the request, and of the answer."""
        for call in run.exchanges.calls:
            self._calls[call.index] = call
            if call.answer is not None:
                self._calls[call.answer] = call
        self._nested = {timing.call.index: timing.nested_ns or 0 for timing in run.latency.timings}
        self._texts = CallTexts()
        self._strings = {
            name: defaultdict[str, int](count().__next__) for name in ("texts", "types", "functions", "ids")
        }
        """Tables of strings, each with its place."""

    def json(self, indexes: Sequence[int]) -> Json:
        times = self._run.session.messages.time_ns
        start = (
            min(times, default=0) if indexes else 0
        )  # of the run, whether its first message is shown or not
        self._shown = frozenset(indexes)
        last_index, last_ns = 0, start
        rows = []
        for index in indexes:
            record = self._run.messages[index]
            begin = times[record.row]
            told = record.told(partial(self._row, index))
            rows.append((index - last_index, begin - last_ns, *told))
            last_index, last_ns = index, begin
        doubts = self._run.causes.doubts
        tables = {name: list(strings) for name, strings in self._strings.items()}
        return {
            "count": len(indexes),
            "start_ns": str(start),
            "kinds": KINDS,
            "lanes": self._lanes.labels,
            "names": self._lanes.names,
            "jobs": self._lanes.jobs,
            "columns": dict(zip(COLUMNS, zip(*rows, strict=True), strict=False)),
            "doubts": {str(index): _doubt(doubts[index]) for index in indexes if index in doubts},
            **tables,
        }

    def _row(self, index: int, record: RpcRecord) -> tuple[int, ...]:
        """The values of a message, from `took` on."""
        session, row = self._run.session, record.row
        columns = session.messages
        call = self._calls.get(index)
        partner = columns.partner[row]
        other = None if partner == NONE else int(session.index[partner])
        named = call is not None and call.name is not None
        function = call.what if call is not None and named else function_of(record)
        parent = self._run.causes.parents.get(index)
        strings = self._strings
        return (
            max(0, columns.end_time_ns[row] - columns.time_ns[row]),
            *self._lanes.of(row),
            strings["types"][type_name(columns.type[row])],
            strings["types"][type_name(message_type_of(record.rpc.command))],
            KINDS.index(self._kind(record, call)),
            self._flags(record, partner) | (NAMED if named else 0),
            0 if other is None else other - index,
            0 if other is None or other in self._shown else columns.latency_ns(row) or 0,
            0 if parent is None else parent - index,
            self._nested.get(index, 0),
            self._context(call) + 1,
            size_of(record),
            0 if function is None else strings["functions"][text(function)] + 1,
            self._edge(record),
            strings["texts"][shorten(self._phrases.phrase(record), MAX_TEXT)],
            strings["texts"][shorten(self._short(index, call), MAX_TEXT)],
        )

    def _short(self, index: int, call: Exchange | None) -> str:
        """What a request calls, with what, or what came back for it."""
        if call is None:
            return ""
        if index != call.index:
            return outcome({} if call.response is None else self._told(call.response), call.failure)
        context = self._run.session.provenance.context[call.request.row]
        asked, within = self._told(call.request), None if context == NO_CONTEXT else context
        return call_text(asked, call.name, within, housekeeping=call.housekeeping)

    def _told(self, record: RpcRecord) -> Json:
        return _loaded(self._texts.of(record))

    def _context(self, call: Exchange | None) -> int:
        """The place of the message's context, an answer's like its request's; -1 for none."""
        if call is None or call.context is None:
            return -1
        return self._contexts.get((call.job, call.context), -1)

    def _edge(self, record: RpcRecord) -> int:
        """The autograd message id of the envelope, 0 for none; 1 more than the place in `ids`."""
        for envelope in record.rpc.envelopes:
            if isinstance(envelope, RpcWithAutograd):
                return self._strings["ids"][packed(envelope.autograd_metadata.autograd_message_id)] + 1
        return 0

    def _flags(self, record: RpcRecord, partner: int) -> int:
        request = bool(self._run.session.messages.from_client[record.row])
        asks = is_request(record.rpc.message.type)
        return (
            (REQUEST if request else 0)
            | (FAILED if failed(record) else 0)
            | (PROBLEM if record.problems else 0)
            | (OPEN if request and partner == NONE and asks else 0)
            | (ASKS if asks else 0)
            | (ERROR if record.facts.failed or isinstance(record.rpc.command, ExceptionResponse) else 0)
            | (CONTROL if self._run.session.messages.control[record.row] else 0)
        )

    def _kind(self, record: RpcRecord, call: Exchange | None) -> str:
        """What a message is for; an answer is for what its request is."""
        if self._keeping[record.row]:
            return "housekeeping"
        kind = call.kind if call is not None else message_type_of(record.rpc.command)
        if kind in PASSES:
            return "backward"
        wrapped = (
            call.wrapped
            if call is not None
            else any(isinstance(envelope, RpcWithAutograd) for envelope in record.rpc.envelopes)
        )
        return "forward" if wrapped else "call"

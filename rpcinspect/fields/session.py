"""What is known of messages beyond what each says itself: who sent it, its number, what answers it.

In: a session, or a decoding that goes on; then the messages that are asked about. Out: columns, with a value
for each of them: None where a message lacks it, a tuple where it has several, `UNSET` where nobody can know
yet. While a decoding goes on, names are those known by now, numbers count completions, and only of answers it
is known what they answer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from typing import Any, TypeAlias

from msgspec import UNSET

from rpcinspect.fields.plain import Picked, text
from rpcinspect.pipeline import Decoding
from rpcinspect.rpc.callee import Name
from rpcinspect.rpc.message import is_request, type_name
from rpcinspect.rpc.questions import KEEPING
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.run.causes import Causes, explain
from rpcinspect.session.callees import names_of
from rpcinspect.session.model import NONE, MessageColumns, MessageHeads, Session, WorkerIdentities

ColumnValues: TypeAlias = Sequence[Any]
EndLabels: TypeAlias = Sequence[tuple[str, str]] | Mapping[int, tuple[str, str]]
"""Labels of server and client, by the number of the pipe."""

MAX_NAMES = 256
"""Of functions and methods that are kept as they are written."""

_name, _is_request = cache(type_name), cache(is_request)


@lru_cache(MAX_NAMES)
def _short(name: Name) -> str:
    return text(name.short)


failure_json = Picked("reason time_ns text")
"""Why the caller of a request gave it up."""


class Known:
    """Columns of the messages that were chosen last, as far as they are known while messages come."""

    rows: Sequence[int] = ()
    """The messages that were chosen."""
    heads: MessageHeads
    start_ns = 0
    """When the first message of all began."""
    logged = False

    def __init__(self, columns: MessageColumns, ends: EndLabels) -> None:
        self._columns = columns
        self._ends = ends

    def column(self, name: str) -> ColumnValues:
        """The column of that name; `UNSET` where there is none."""
        found: ColumnValues | None = getattr(self, name)
        return [UNSET] * len(self.rows) if found is None else found

    @property
    def index(self) -> ColumnValues:
        return self.heads.number

    @property
    def time(self) -> ColumnValues:
        """From the first message's begin to its own."""
        return [time_ns - self.start_ns for time_ns in self.heads.time_ns]

    @property
    def time_ns(self) -> ColumnValues:
        return self.heads.time_ns

    @property
    def end_time_ns(self) -> ColumnValues:
        return self.heads.end_time_ns

    @property
    def pipe(self) -> ColumnValues:
        """Logs know none."""
        return [None] * len(self.rows) if self.logged else self.heads.pipe

    @property
    def src(self) -> ColumnValues:
        ends, heads = self._ends, self.heads
        return [ends[pipe][forth] for pipe, forth in zip(heads.pipe, heads.from_client, strict=True)]

    @property
    def dst(self) -> ColumnValues:
        ends, heads = self._ends, self.heads
        return [ends[pipe][not forth] for pipe, forth in zip(heads.pipe, heads.from_client, strict=True)]

    @property
    def worker(self) -> ColumnValues:
        return [self._ends[pipe] for pipe in self.heads.pipe]

    @property
    def type(self) -> ColumnValues:
        return list(map(_name, self.heads.type))

    @property
    def id(self) -> ColumnValues:
        return self.heads.id

    @property
    def request(self) -> ColumnValues:
        return list(map(_is_request, self.heads.type))

    @property
    def answers(self) -> ColumnValues:
        """The number of the request that it answers."""
        return [None if index == NONE else index for index in self.heads.answers]

    @property
    def latency(self) -> ColumnValues:
        """Of a request that is answered, and of its answer."""
        return list(map(self._columns.latency_ns, self.rows))

    @property
    def control(self) -> ColumnValues:
        return [control != 0 for control in self.heads.control]

    @property
    def housekeeping(self) -> ColumnValues:
        kinds = zip(self.heads.control, self.heads.type, strict=True)
        return [control != 0 or kind in KEEPING for control, kind in kinds]


class AtTheEnd(Known):
    """Columns of a finished session; `at` chooses messages by row."""

    def __init__(self, session: Session) -> None:
        servers, clients = map(text, session.servers), map(text, session.clients)
        super().__init__(session.messages, list(zip(servers, clients, strict=True)))
        self._session = session
        self.logged = session.logged
        self.start_ns = min(session.messages.time_ns, default=0)

    def at(self, rows: Sequence[int]) -> AtTheEnd:
        """Chooses messages by row; returns itself."""
        self.rows, self.heads = rows, self._session.heads(rows)
        return self

    @property
    def job(self) -> ColumnValues:
        return [self._session.jobs[pipe] for pipe in self.heads.pipe]

    @property
    def answered(self) -> ColumnValues:
        """Of a request whether it has an answer."""
        answers = zip(self.heads.from_client, self.heads.answered_by, strict=True)
        return [answer != NONE if forth else None for forth, answer in answers]

    @property
    def answered_by(self) -> ColumnValues:
        return [None if index == NONE else index for index in self.heads.answered_by]

    @property
    def latency_ns(self) -> ColumnValues:
        """Of a request that is answered."""
        answers = zip(self.heads.answered_by, self.heads.latency_ns, strict=True)
        return [None if answer == NONE else latency_ns for answer, latency_ns in answers]

    @property
    def parents(self) -> ColumnValues:
        """The requests that a request was, or may have been, sent for."""
        known, doubts = self.causes.parents, self.causes.doubts
        return [
            (known[index],) if index in known else doubts[index].parents if index in doubts else ()
            for index in self.heads.number
        ]

    @property
    def parent_certain(self) -> ColumnValues:
        doubts = self.causes.doubts
        return [index not in doubts for index in self.heads.number]

    @property
    def call(self) -> ColumnValues:
        """Who is called, as a person says it."""
        return [None if name is None else _short(name) for name in map(self.names.get, self.rows)]

    @property
    def failure(self) -> ColumnValues | None:
        """Why the caller of a request gave it up."""
        failures = self._session.failures
        if not failures:
            return None
        return [failure_json(failures[row]) if row in failures else UNSET for row in self.rows]

    @property
    def finding(self) -> ColumnValues:
        """Codes of those that name it."""
        return [self._codes.get(index, ()) for index in self.heads.number]

    @cached_property
    def causes(self) -> Causes:
        """What each request was sent for."""
        return explain(self._session)

    @cached_property
    def names(self) -> dict[int, Name]:
        """Who is called, by the row of the request."""
        return names_of(self._session)

    @cached_property
    def _codes(self) -> dict[int, tuple[str, ...]]:
        """Returns the codes of findings by message."""
        codes: dict[int, dict[str, None]] = defaultdict(dict)
        for finding in self._session.findings:
            for index in finding.messages:
                codes[index][finding.code] = None
        return {index: tuple(its) for index, its in codes.items()}


class AtEachRow:
    """What a finished session knows of one message after the other."""

    BATCH = 1000
    """Messages of which it is worked out at once."""

    def __init__(self, session: Session, names: Mapping[str, Callable[[Any], Any] | None]) -> None:
        """`names`: the columns that are asked for, and what makes the values of them that are wanted."""
        self._known = AtTheEnd(session)
        self._names = names
        self._count = len(session.messages)
        self._batch = range(0)
        self._values: list[tuple[Any, ...]] = []

    def at(self, row: int) -> tuple[Any, ...]:
        """The values of these columns."""
        if row not in self._batch:
            first = row - row % self.BATCH
            self._batch = range(first, min(first + self.BATCH, self._count))
            self._known.at(self._batch)
            columns = [
                self._known.column(name) if make is None else map(make, self._known.column(name))
                for name, make in self._names.items()
            ]
            self._values = [*zip(*columns, strict=True)]
        return self._values[row - self._batch.start]


class SoFar(Known):
    """Columns during a decoding; `at` chooses the message that came last."""

    job = answered = answered_by = latency_ns = parents = parent_certain = call = failure = finding = None
    """What only the end can tell."""

    def __init__(
        self, decoding: Decoding, *, ends: Callable[[RpcRecord], tuple[str, str]] | None = None
    ) -> None:
        """`ends`: tells the labels of server and client of a message's pipe, for another thread than that of
        the decoding."""
        super().__init__(decoding.builder.columns, {})
        self._decoding = decoding
        self._ends_of = ends or (lambda record: pipe_ends(record, decoding.identities()))

    def at(self, record: RpcRecord) -> SoFar:
        """Chooses the message that came last; returns itself."""
        tp, row, message = record.tp, record.row, record.rpc.message
        pipe, partner, forth = tp.pipe.number, self._columns.partner[row], tp.from_client
        control = is_control(self._decoding, record)
        times = [row], [tp.first_ns], [tp.last_ns], [pipe]
        kinds = [message.type], [message.id], [int(control)], [int(forth)]
        self.heads = MessageHeads(*times, *kinds, [NONE if forth else partner], [NONE], [0])
        self.rows, self.logged, self.start_ns = (row,), tp.pipe.logged, self._columns.time_ns[0]
        server, client = map(text, self._ends_of(record))
        self._ends = {pipe: (server, client)}
        return self


def pipe_ends(record: RpcRecord, identities: WorkerIdentities) -> tuple[str, str]:
    """Labels of server and client of a message's pipe, as far as they are known by now."""
    pipe = record.tp.pipe
    if pipe.number < len(identities.clients):
        return identities.servers[pipe.number], identities.clients[pipe.number]
    return str(pipe.server), pipe.client_name or str(pipe.client)


def is_housekeeping(decoding: Decoding, record: RpcRecord) -> bool:
    """Returns whether a message is housekeeping of the agents, while a decoding goes on."""
    return record.like.message.type in KEEPING or is_control(decoding, record)


def is_control(decoding: Decoding, record: RpcRecord) -> bool:
    """Whether a message is of the agents' own calls, or answers one."""
    columns = decoding.builder.columns
    partner = columns.partner[record.row]
    return bool(columns.control[record.row]) or (partner != NONE and bool(columns.control[partner]))

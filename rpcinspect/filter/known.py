"""What is known of a message beyond what it says itself: who sent it, its number, what answers it.

In: a session, or a decoding that goes on. Out: values by row. While a decoding goes on, names are those known
by now, numbers count completions, and only of answers it is known what they answer.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Protocol

from rpcinspect.pipeline import Decoding
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.model import NONE, MessageColumns, Session
from rpcinspect.views.contract.message import text
from rpcinspect.views.stream import answers_control, ends


class Known(Protocol):
    """What fields ask for; every method gives the values of one."""

    def source(self, row: int) -> tuple[str, ...]:
        """Who sends."""

    def destination(self, row: int) -> tuple[str, ...]:
        """Who receives."""

    def ends(self, row: int) -> tuple[str, ...]:
        """Both."""

    def control(self, row: int) -> tuple[bool, ...]:
        """Whether it is of the agents' own calls."""

    def index(self, row: int) -> tuple[int, ...]:
        """Its number."""

    def time(self, row: int) -> tuple[int, ...]:
        """Nanoseconds from the first message's begin to its own."""

    def answers(self, row: int) -> tuple[int, ...]:
        """The number of the request that it answers."""

    def answered(self, row: int) -> tuple[bool, ...]:
        """Whether a request has an answer."""

    def latency(self, row: int) -> tuple[int, ...]:
        """Nanoseconds from the first byte of a request to the last of its answer, for both."""

    def findings(self, row: int) -> tuple[str, ...]:
        """Codes of the findings that name it."""


class AtTheEnd:
    """Of a session."""

    def __init__(self, session: Session) -> None:
        self._columns = session.messages
        self._clients = [text(label) for label in session.clients]
        self._servers = [text(label) for label in session.servers]
        self._index: list[int] = session.index.tolist()
        self._start_ns = min(session.messages.time_ns, default=0)
        codes: dict[int, dict[str, None]] = defaultdict(dict)
        for finding in session.findings:
            for index in finding.messages:
                codes[index][finding.code] = None
        self._codes = {index: tuple(its) for index, its in codes.items()}

    def source(self, row: int) -> tuple[str, ...]:
        pipe = self._columns.pipe[row]
        return (self._clients[pipe] if self._columns.from_client[row] else self._servers[pipe],)

    def destination(self, row: int) -> tuple[str, ...]:
        pipe = self._columns.pipe[row]
        return (self._servers[pipe] if self._columns.from_client[row] else self._clients[pipe],)

    def ends(self, row: int) -> tuple[str, ...]:
        pipe = self._columns.pipe[row]
        return (self._clients[pipe], self._servers[pipe])

    def control(self, row: int) -> tuple[bool, ...]:
        return (bool(self._columns.control[row]),)

    def index(self, row: int) -> tuple[int, ...]:
        return (self._index[row],)

    def time(self, row: int) -> tuple[int, ...]:
        return (self._columns.time_ns[row] - self._start_ns,)

    def answers(self, row: int) -> tuple[int, ...]:
        partner = self._columns.partner[row]
        return () if partner == NONE or self._columns.from_client[row] else (self._index[partner],)

    def answered(self, row: int) -> tuple[bool, ...]:
        return (self._columns.partner[row] != NONE,) if self._columns.from_client[row] else ()

    def latency(self, row: int) -> tuple[int, ...]:
        return latency(self._columns, row)

    def findings(self, row: int) -> tuple[str, ...]:
        return self._codes.get(self._index[row], ())


class SoFar:
    """Of a decoding that goes on; `at` names the record that rows are asked for."""

    def __init__(self, decoding: Decoding) -> None:
        self._decoding = decoding
        self._columns = decoding.builder.columns
        self._record: RpcRecord | None = None

    def at(self, record: RpcRecord) -> SoFar:
        """The same, for this record."""
        self._record = record
        return self

    def source(self, row: int) -> tuple[str, ...]:
        return self.ends(row)[:1]

    def destination(self, row: int) -> tuple[str, ...]:
        return self.ends(row)[1:]

    def ends(self, row: int) -> tuple[str, ...]:
        assert self._record is not None
        source, destination = ends(self._record, self._decoding.roster())
        return (text(source), text(destination))

    def control(self, row: int) -> tuple[bool, ...]:
        assert self._record is not None
        return (bool(self._columns.control[row]) or answers_control(self._decoding, self._record),)

    def index(self, row: int) -> tuple[int, ...]:
        return (row,)

    def time(self, row: int) -> tuple[int, ...]:
        return (self._columns.time_ns[row] - self._columns.time_ns[0],)

    def answers(self, row: int) -> tuple[int, ...]:
        partner = self._columns.partner[row]
        return () if partner == NONE or self._columns.from_client[row] else (partner,)

    def answered(self, row: int) -> tuple[bool, ...]:
        return ()

    def latency(self, row: int) -> tuple[int, ...]:
        return latency(self._columns, row)

    def findings(self, row: int) -> tuple[str, ...]:
        return ()


def latency(columns: MessageColumns, row: int) -> tuple[int, ...]:
    """From the first byte of a request to the last of its answer."""
    latency_ns = columns.latency_ns(row)
    return () if latency_ns is None else (latency_ns,)

"""Captured messages → exchanges: each request with its answer, its ends and its times.

In: a decoded session and its records in the order of time. Out: an `Exchange` for each request, and the
answers whose request was not captured. What later modules need of a message's content is read off here once.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from rpcinspect.rpc.callee import Name
from rpcinspect.rpc.command_codec import message_type_of
from rpcinspect.rpc.envelope import RpcWithAutograd
from rpcinspect.rpc.message import type_name
from rpcinspect.rpc.questions import context_of, function_of
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.run.names import names_of
from rpcinspect.session.model import NONE, CallFailure, Session


class Exchange(Struct, eq=False, kw_only=True):
    """A request and, where one was captured, its answer. Times are those of the capture, in nanoseconds."""

    index: int
    """Of the request, in the order of time."""
    answer: int | None
    job: int
    caller: str
    callee: str
    kind: int
    """Message type of the command, envelopes off."""
    context: int | None
    """The autograd context that the request belongs to."""
    wrapped: bool
    """The request travels in an autograd envelope."""
    function: str | None
    """As the wire has it."""
    control: bool
    begin_ns: int
    """First byte of the request."""
    arrived_ns: int
    """Last byte of the request."""
    answered_ns: int | None
    """First byte of the answer."""
    end_ns: int | None
    """Last byte of the answer."""
    request: RpcRecord
    response: RpcRecord | None
    failure: CallFailure | None = None
    """Why its caller gave it up, where a log tells; an answer may have come after that."""
    name: Name | None = None
    """Who is called, as a person says it; None where nobody is."""

    @property
    def what(self) -> str:
        """Who is called, else the function, else the kind of message."""
        return self.name.short if self.name is not None else self.function or type_name(self.kind)

    @property
    def latency_ns(self) -> int | None:
        """From the request's first byte to its answer's last."""
        return None if self.end_ns is None else max(0, self.end_ns - self.begin_ns)

    @property
    def gave_up_ns(self) -> int | None:
        """When its caller gave it up."""
        return None if self.failure is None else self.failure.time_ns

    @property
    def type(self) -> str:
        """The outermost type's name, as `decode` shows it."""
        return type_name(self.request.rpc.message.type)


class Orphan(Struct, frozen=True):
    """An answer whose request was not captured."""

    index: int
    job: int
    source: str
    destination: str
    record: RpcRecord


class Exchanges(Struct, frozen=True):
    """All messages of a session."""

    calls: tuple[Exchange, ...]
    """In the order in which they began."""
    orphans: tuple[Orphan, ...]

    def by_index(self) -> dict[int, Exchange]:
        """Calls by the index of the request."""
        return {call.index: call for call in self.calls}


def read_exchanges(session: Session, messages: Sequence[RpcRecord]) -> Exchanges:
    """The exchanges of a session; `messages` in the order of time, so that a place is an index."""
    columns, names = session.messages, names_of(session)
    calls: list[Exchange] = []
    orphans: list[Orphan] = []
    for index, record in enumerate(messages):
        row = record.row
        job = session.jobs[columns.pipe[row]]
        partner = columns.partner[row]
        if not columns.from_client[row]:
            if partner == NONE:
                orphans.append(Orphan(index, job, session.source(row), session.destination(row), record))
            continue
        answer = None if partner == NONE else int(session.index[partner])
        response = None if answer is None else messages[answer]
        calls.append(
            Exchange(
                index=index,
                answer=answer,
                job=job,
                caller=session.source(row),
                callee=session.destination(row),
                kind=message_type_of(record.rpc.command),
                context=context_of(record),
                wrapped=any(isinstance(e, RpcWithAutograd) for e in record.rpc.envelopes),
                function=function_of(record),
                control=bool(columns.control[row]),
                begin_ns=record.tp.first_ns,
                arrived_ns=record.tp.last_ns,
                answered_ns=None if response is None else response.tp.first_ns,
                end_ns=None if response is None else response.tp.last_ns,
                request=record,
                response=response,
                failure=session.failures.get(row),
                name=names.get(row),
            )
        )
    return Exchanges(tuple(calls), tuple(orphans))

"""Captured messages → exchanges: each request with its answer, its ends and its times.

In: a run. Out: an `Exchange` for each request, and the answers whose request was not captured. What later
modules need of a message's content is read off here once; the rest an exchange reads from its messages, or
asks its run, when it is asked for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from rpcinspect.pickles.tree import Value
from rpcinspect.rpc.callee import Name, passed_to
from rpcinspect.rpc.message import type_name
from rpcinspect.rpc.questions import KEEPING, arguments_of, result_of, size_of
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.remote_error import RemoteError, error_of
from rpcinspect.session.callees import names_of
from rpcinspect.session.model import NONE, CallFailure

if TYPE_CHECKING:
    from rpcinspect.run.latency import Timing
    from rpcinspect.run.message import Message
    from rpcinspect.run.run import RunModel


class Exchange(Struct, eq=False, kw_only=True):
    """A request and, where one was captured, its answer. Times are those of the capture, in nanoseconds."""

    run: RunModel
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
    failed: bool = False
    """The answer reports an error."""
    failure: CallFailure | None = None
    """Why its caller gave it up, where a log tells; an answer may have come after that."""
    name: Name | None = None
    """Who is called, as a person says it; None where nobody is."""

    def __repr__(self) -> str:
        return f"Exchange(#{self.index} {self.what} {self.caller} → {self.callee})"

    @property
    def what(self) -> str:
        """Who is called, else the function, else the kind of message."""
        return self.name.short if self.name is not None else self.function or type_name(self.kind)

    @property
    def housekeeping(self) -> bool:
        """Returns whether this is housekeeping of the agents: references, contexts, start-up and shutdown."""
        return self.control or self.kind in KEEPING

    @property
    def latency_ns(self) -> int | None:
        """Returns the time from the request's first byte to the answer's last; None without an answer."""
        return None if self.end_ns is None else max(0, self.end_ns - self.begin_ns)

    @property
    def gave_up_ns(self) -> int | None:
        """Returns when the caller gave the call up; None where it did not, or no log shows it."""
        return None if self.failure is None else self.failure.time_ns

    @property
    def request_bytes(self) -> int:
        """Descriptor, payloads and tensors of the request."""
        return size_of(self.request)

    @property
    def answer_bytes(self) -> int:
        """Returns the bytes of the answer, tensors included; 0 where there is none."""
        return 0 if self.response is None else size_of(self.response)

    @property
    def type(self) -> str:
        """The outermost type's name, as `decode` shows it."""
        return type_name(self.request.rpc.message.type)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The request, and the answer where one was captured."""
        return tuple(self.run.message(i) for i in (self.index, self.answer) if i is not None)

    @property
    def method(self) -> str | None:
        """The method that is called, where the call goes through an RRef or names one."""
        return None if self.name is None else self.name.method

    @property
    def cls(self) -> str | None:
        """Returns the class of the method, where it is known: from the owner of the RRef, else from the call
        that made the object."""
        return None if self.name is None else self.name.cls

    @property
    def arguments(self) -> tuple[Value, Value] | None:
        """What the function is given by place and by name, as inert trees (`pickles.tree`)."""
        return arguments_of(self.request)

    @property
    def passed(self) -> tuple[Value, Value] | None:
        """Returns positional and keyword arguments of the callee: of a method behind one of torch's proxies
        its own."""
        return passed_to(self.request)

    @property
    def result(self) -> Value:
        """What the function returned, as an inert tree; None without an answer, and where it failed."""
        return None if self.response is None or self.error is not None else result_of(self.response)

    @property
    def error(self) -> RemoteError | None:
        """The error that the answer reports."""
        return None if self.response is None else error_of(self.response)

    @property
    def timing(self) -> Timing:
        """Returns the latency and its parts."""
        return self.run.timings[self.index]

    @property
    def parents(self) -> tuple[Exchange, ...]:
        """Returns the requests that may have caused this one, as `Causes` has them: at most one where that is
        certain; else all candidates, the likeliest first, and `parent_certain` is False."""
        return tuple(self.run.calls[index] for index in self.run.causes.of(self.index)[0])

    @property
    def parent_certain(self) -> bool:
        """Whether `parents` is certain: without any, the caller's own program has sent it."""
        return self.run.causes.of(self.index)[1]

    @property
    def children(self) -> tuple[Exchange, ...]:
        """Returns the requests that this one certainly caused, in the order in which they began."""
        return tuple(self.run.calls[index] for index in self.run.causes.children.get(self.index, ()))


class UnmatchedAnswer(Struct, frozen=True):
    """An answer whose request was not captured."""

    index: int
    job: int
    source: str
    destination: str
    record: RpcRecord


class Exchanges(Struct, frozen=True):
    """All messages of a session, requests joined with their answers."""

    calls: tuple[Exchange, ...]
    """In the order in which they began."""
    orphans: tuple[UnmatchedAnswer, ...]

    def by_index(self) -> dict[int, Exchange]:
        """Calls by the index of the request."""
        return {call.index: call for call in self.calls}

    def shown(self, rows: bytes | None) -> Exchanges:
        """Returns those of which a message is shown: `rows` has a 1 for each row that is; None: all."""
        if rows is None:
            return self
        calls = [
            call
            for call in self.calls
            if rows[call.request.row] or (call.response is not None and rows[call.response.row])
        ]
        orphans = [orphan for orphan in self.orphans if rows[orphan.record.row]]
        return Exchanges(tuple(calls), tuple(orphans))


def read_exchanges(run: RunModel) -> Exchanges:
    """The exchanges of a run."""
    session, messages = run.session, run.messages
    columns, names = session.messages, names_of(session)
    calls: list[Exchange] = []
    orphans: list[UnmatchedAnswer] = []
    for index, record in enumerate(messages):
        row = record.row
        job = session.job(row)
        partner = columns.partner[row]
        if not columns.from_client[row]:
            if partner == NONE:
                orphans.append(
                    UnmatchedAnswer(index, job, session.source(row), session.destination(row), record)
                )
            continue
        kind = session.provenance.kind_of(row)
        answer = None if partner == NONE else int(session.index[partner])
        response = None if answer is None else messages[answer]
        calls.append(
            Exchange(
                run=run,
                index=index,
                answer=answer,
                job=job,
                caller=session.source(row),
                callee=session.destination(row),
                kind=kind.type,
                context=session.provenance.context_of(row),
                wrapped=kind.autograd,
                function=kind.function,
                control=bool(columns.control[row]),
                begin_ns=record.tp.first_ns,
                arrived_ns=record.tp.last_ns,
                answered_ns=None if response is None else response.tp.first_ns,
                end_ns=None if response is None else response.tp.last_ns,
                request=record,
                response=response,
                failed=response is not None and session.provenance.kind_of(partner).failed,
                failure=session.failures.get(row),
                name=names.get(row),
            )
        )
    return Exchanges(tuple(calls), tuple(orphans))

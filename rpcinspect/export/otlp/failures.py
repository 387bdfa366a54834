"""How a call failed, as a span says it: its status, `error.type`, and an event with the exception.

In: answers, and calls that their callers gave up. Out: a `SpanFailure`, or None for what did not fail.
"""

from __future__ import annotations

from msgspec import Struct

from rpcinspect.export.otlp.values import attributes, line, nanoseconds, stack
from rpcinspect.fields.plain import Json
from rpcinspect.rpc.message import type_name
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.remote_error import error_of, origin, quoting, readable
from rpcinspect.session.model import CallFailure

ERROR = 2
"""Of enum StatusCode in trace.proto."""


class SpanFailure(Struct, frozen=True, kw_only=True):
    """What a span says of a failure."""

    type: str
    """The class of the exception; without one, the kind of failure."""
    message: str
    time_ns: int
    """When the error was told."""
    exception: str | None = None
    """The class of the exception, where it is known."""
    traceback: str | None = None
    """All that was told."""

    def status(self) -> Json:
        """Returns the status of the span."""
        return {"code": ERROR, "message": line(self.message)}

    def event(self) -> Json:
        """Returns the exception as an event; its traceback keeps its lines."""
        told = attributes({"exception.type": self.exception, "exception.message": self.message})
        if self.traceback is not None:
            told.append({"key": "exception.stacktrace", "value": {"stringValue": stack(self.traceback)}})
        return {"timeUnixNano": nanoseconds(self.time_ns), "name": "exception", "attributes": told}


def failure_in(answer: RpcRecord | None) -> SpanFailure | None:
    """Returns the error that an answer reports."""
    error = None if answer is None else error_of(answer)
    if answer is None or error is None:
        return None
    return SpanFailure(
        type=error.type or type_name(answer.rpc.message.type),
        message=readable((quoting(error.text) or origin(error.text)).cause),
        time_ns=answer.tp.first_ns,
        exception=error.type,
        traceback=error.text,
    )


def failure_at_caller(failure: CallFailure) -> SpanFailure:
    """Returns why a caller gave a call up."""
    return SpanFailure(type=failure.reason, message=failure.text, time_ns=failure.time_ns)

"""What the stages want to know of a message, and a message together with the one that it answers.

In: records as they become complete. Out: a `Note` of each, and an exchange as two notes once both are there.
Only notes of messages without their partner are kept.
"""

from __future__ import annotations

from msgspec import Struct

from rpcinspect.rpc.command_codec import message_type_of
from rpcinspect.rpc.envelope import RpcWithAutograd, RpcWithProfilingReq, RpcWithProfilingResp
from rpcinspect.rpc.message import MessageType, type_name
from rpcinspect.rpc.questions import CALLS, function_of, is_builtin
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.types import ProfilingId
from rpcinspect.session.model import NONE, MessageColumns

MAX_NAME = 200
"""Of a function's name that is kept; captured names may be of any length."""


class Note(Struct, eq=False, gc=False):
    """One message, or all of one pattern."""

    kind: int
    """Message type of the command, envelopes off."""
    builtin: bool
    """It calls an operator."""
    types: tuple[int, ...]
    """Of its envelopes, outermost first."""
    wrapped: bool
    """It has an autograd envelope."""
    grads: bool
    """One of its own tensors requires grad."""
    elsewhere: bool
    """One of its tensors is not on the CPU."""
    failed: bool
    """It is an answer that reports an error."""
    whole: bool
    """All of it was captured and could be read."""
    function: str | None
    profiling: ProfilingId | None
    """That of its profiling envelope."""
    repeats: bool
    """It is that of a pattern."""

    @property
    def what(self) -> str:
        """What it calls, or which kind of message it is."""
        return self.function or type_name(self.kind)


def note_of(record: RpcRecord) -> Note:
    """The note of a record."""
    rpc = record.like
    types: tuple[int, ...] = ()
    wrapped, profiling = False, None
    if rpc.envelopes:
        types = tuple([envelope.message_type for envelope in rpc.envelopes])
        for envelope in rpc.envelopes:
            if type(envelope) is RpcWithAutograd:
                wrapped = True
            elif isinstance(envelope, (RpcWithProfilingReq, RpcWithProfilingResp)):
                profiling = envelope.profiling_id
    grads = elsewhere = False
    for meta in rpc.tensors:
        if meta.requires_grad and meta.part_of is None:
            grads = True
        if meta.device != "cpu":
            elsewhere = True
    command = rpc.command
    kind = message_type_of(command)
    function = function_of(record) if kind in CALLS else None
    return Note(
        kind,
        function is not None and is_builtin(command),
        types,
        wrapped,
        grads,
        elsewhere,
        record.facts.failed or kind == MessageType.EXCEPTION,
        not record.problems,
        function if function is None or len(function) <= MAX_NAME else function[:MAX_NAME],
        profiling,
        record.pattern is not None,
    )


class Pairs:
    """Requests and answers, brought together."""

    def __init__(self, columns: MessageColumns) -> None:
        """`columns` of the session's builder, which has paired the rows."""
        self._columns = columns
        self._waiting: dict[int, Note] = {}
        """By row."""

    def join(self, row: int, partner: int, note: Note) -> Note | None:
        """The note of the message in the partner's row, if this one completes the two."""
        other = None if partner == NONE else self._waiting.pop(partner, None)
        if other is None:
            self._waiting[row] = note
        return other

    def unanswered(self) -> list[tuple[int, Note]]:
        """Requests without an answer, and their rows."""
        forth = self._columns.from_client
        return [(row, note) for row, note in self._waiting.items() if forth[row]]

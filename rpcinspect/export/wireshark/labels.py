"""What Wireshark is told of a message: its facts, and one line of them.

In: a finished session, then its messages in the order of completion. Out: a label of each, whose texts are
printable and short, whatever was captured.
"""

from __future__ import annotations

from msgspec import Struct

from rpcinspect.fields.message import MessageValues, Reader
from rpcinspect.fields.phrases import duration, error_phrase, packed, printable, shorten
from rpcinspect.fields.session import AtEachRow
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.callees import names_of
from rpcinspect.session.model import NONE, Session
from rpcinspect.tcp.ranges import CaptureBytes

MAX_TEXT = 200
"""Characters of a name or an error."""


class MessageLabel(Struct, frozen=True, kw_only=True):
    """A message in Wireshark; None stands for what it lacks."""

    index: int
    type: str
    request: bool
    source: str
    destination: str
    function: str | None
    """As the wire has it; of an answer that of its request."""
    call: str | None
    """Who is called, as a person says it; likewise."""
    partner: int | None
    """Index of the answer of a request, of the request of an answer."""
    parent: int | None
    """Index of the request that it was certainly sent for."""
    latency_ns: int | None
    """From the request's first byte to its answer's last, for both."""
    context: str | None
    error: str | None
    findings: tuple[str, ...]
    tensors: int
    housekeeping: bool

    @property
    def line(self) -> str:
        """Returns the message in one line."""
        words = f"#{self.index} {self.type} {self.source} → {self.destination}"
        name = self.call or self.function
        if name is not None:
            words += f" {name}" if self.function in (None, name) else f" {name} ({self.function})"
        if self.partner is not None:
            took = "" if self.latency_ns is None else f" after {duration(self.latency_ns)}"
            words += f", {'answered by' if self.request else 'answers'} #{self.partner}{took}"
        parts = [
            "" if self.context is None else f"ctx {self.context}",
            "" if self.error is None else f"✗ {self.error}",
            *self.findings,
        ]
        return ", ".join([words, *filter(None, parts)])


KNOWN = (
    *("index", "request", "src", "dst", "parents", "parent_certain", "latency", "finding", "housekeeping"),
)
"""What the session knows of each message."""


class MessageLabels:
    """Makes labels of the messages of a session."""

    def __init__(self, session: Session, source: CaptureBytes) -> None:
        self._session = session
        self._known = AtEachRow(session, dict.fromkeys(KNOWN))
        self._names = names_of(session)
        self._reader = Reader(source, hashes=False)
        self._functions: dict[int, str] = {}
        """Of requests whose answer has not come yet, by row."""

    def of(self, record: RpcRecord) -> MessageLabel:
        """Returns the label of the next message."""
        return record.told(self._label)

    def _label(self, record: RpcRecord) -> MessageLabel:
        row = record.row
        known = dict(zip(KNOWN, self._known.at(row), strict=True))
        message = MessageValues(record, self._reader)
        partner = self._session.messages.partner[row]
        function, asked = message.function, row
        if not record.tp.from_client:
            function, asked = (
                (None, row) if partner == NONE else (self._functions.pop(partner, None), partner)
            )
        elif function is not None and partner != NONE:
            self._functions[row] = function
        call = self._names.get(asked)
        parents = known["parents"]
        context = next(iter(message.contexts), None)
        error = message.body.get("error")
        return MessageLabel(
            index=known["index"],
            type=message.type,
            request=known["request"],
            source=_short(known["src"]),
            destination=_short(known["dst"]),
            function=None if function is None else _short(function),
            call=None if call is None else _short(call.short),
            partner=None if partner == NONE else int(self._session.index[partner]),
            parent=parents[0] if parents and known["parent_certain"] else None,
            latency_ns=known["latency"],
            context=None if context is None else packed(context),
            error=_short(error_phrase(error)) if error else None,
            findings=known["finding"],
            tensors=message.tensor_count,
            housekeeping=known["housekeeping"],
        )


def _short(text: str) -> str:
    return shorten(printable(text[: MAX_TEXT + 1]), MAX_TEXT)

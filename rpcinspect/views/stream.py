"""Messages as they become complete, for captures that are still being made: table lines and JSON lines.

In: records in the order of completion, and the decoding for what is known by then. Out: a line for each.
Indexes count completions and hold only within this output; names are those known at that moment.
"""

from __future__ import annotations

import orjson
from rich.console import Console

from rpcinspect.pipeline import Decoding
from rpcinspect.rpc.message import is_request, type_name
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.model import NONE, Session
from rpcinspect.session.names import Roster
from rpcinspect.views.contract.jsonl import KEEPING, head_lines, lines, tail_lines
from rpcinspect.views.contract.message import text
from rpcinspect.views.contract.message_line import MessageRenderer
from rpcinspect.views.phrases import Phrases
from rpcinspect.views.shown import Shown
from rpcinspect.views.text.table import Layout, Row, end_label, failed, line_width, write_line

ENDS_WIDTH = 25
"""Of two names of usual length; longer ones push the columns to the right."""


class JsonStream:
    """The contract's `--stream`: message lines first, everything else at the end."""

    def __init__(self, decoding: Decoding, *, hashes: bool) -> None:
        self._decoding = decoding
        self._renderer = MessageRenderer(decoding.bytes, hashes=hashes)

    def line(self, record: RpcRecord) -> bytes:
        """A message's line."""
        decoding, tp, message = self._decoding, record.tp, record.rpc.message
        source, destination = ends(record, decoding.roster())
        partner = decoding.builder.columns.partner[record.row]
        control = bool(decoding.builder.columns.control[record.row]) or answers_control(decoding, record)
        head = {
            "kind": "message",
            "index": record.row,
            "time_ns": tp.first_ns,
            "end_time_ns": tp.last_ns,
            "pipe": None if tp.pipe.logged else tp.pipe.number,
            "src": text(source),
            "dst": text(destination),
            "type": type_name(message.type),
            "id": message.id,
            "request": is_request(message.type),
            "answers": None if partner == NONE or tp.from_client else partner,
            "housekeeping": control or message.type in KEEPING,
            "control": control,
        }
        return orjson.dumps(head)[:-1] + b"," + self._renderer.tail(record) + b"\n"

    def rest(self, session: Session, shown: Shown | None = None) -> bytes:
        """Captures, workers, pipes, contexts, RRefs, findings and the summary of a session in order of
        completion.
        """
        return lines(head_lines(session)) + lines(tail_lines(session, shown))


class TableStream:
    """Table lines one by one."""

    def __init__(self, decoding: Decoding, console: Console, *, control: bool) -> None:
        self._decoding = decoding
        self._console = console
        self._control = control
        self._layout = Layout(width=line_width(console), ends_width=ENDS_WIDTH)
        self._begun = False
        self._phrases = Phrases()

    def show(self, record: RpcRecord) -> None:
        """Prints a message's line."""
        decoding, tp = self._decoding, record.tp
        columns = decoding.builder.columns
        if not self._begun:
            self._begun = True
            write_line(self._console, self._layout.header(), "bold")
        control = bool(columns.control[record.row]) or answers_control(decoding, record)
        if control and not self._control:
            return
        source, destination = ends(record, decoding.roster())
        partner = columns.partner[record.row]
        answers = None if partner == NONE or tp.from_client else partner
        row = Row(
            record.row,
            (tp.first_ns - columns.time_ns[0]) / 1e9,
            end_label(source),
            end_label(destination),
            type_name(record.rpc.message.type),
            answers,
            None if answers is None else columns.latency_ns(record.row),
            self._phrases.phrase(record),
            control,
            failed(record),
        )
        write_line(self._console, self._layout.line(row), row.style)
        self._console.file.flush()


def ends(record: RpcRecord, roster: Roster) -> tuple[str, str]:
    """Labels of sender and receiver, as far as they are known by now."""
    pipe = record.tp.pipe
    if pipe.number < len(roster.clients):
        client, server = roster.clients[pipe.number], roster.servers[pipe.number]
    else:
        client, server = pipe.client_name or str(pipe.client), str(pipe.server)
    return (client, server) if record.tp.from_client else (server, client)


def answers_control(decoding: Decoding, record: RpcRecord) -> bool:
    columns = decoding.builder.columns
    partner = columns.partner[record.row]
    return partner != NONE and bool(columns.control[partner])

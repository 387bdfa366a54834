"""Messages as they become complete, for captures that are still being made: table lines and JSON lines.

In: records in the order of completion, and the decoding for what is known by then. Out: a line for each.
Indexes count completions and hold only within this output; names are those known at that moment.
"""

from __future__ import annotations

from rpcinspect.fields.phrases import Phrases, end_label
from rpcinspect.fields.session import SoFar, is_housekeeping, pipe_ends
from rpcinspect.filter.matches import Shown
from rpcinspect.pipeline import Decoding
from rpcinspect.rpc.message import type_name
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.model import NONE, Session
from rpcinspect.views.jsonl.lines import head_lines, lines, message_lines, tail_lines
from rpcinspect.views.jsonl.message import MessageRenderer
from rpcinspect.views.text.console import TextConsole
from rpcinspect.views.text.table import Layout, MessageRow, failed, line_width, write_line

ENDS_WIDTH = 25
"""Of two names of usual length; longer ones push the columns to the right."""


class JsonStream:
    """The contract's `--stream`: message lines first, everything else at the end."""

    def __init__(self, decoding: Decoding, *, hashes: bool) -> None:
        self._known = SoFar(decoding)
        self._renderer = MessageRenderer(decoding.bytes, hashes=hashes)

    def line(self, record: RpcRecord) -> bytes:
        """A message's line."""
        (line,) = message_lines(self._known.at(record), self._renderer.tails((record,)))
        return line + b"\n"

    def rest(self, session: Session, shown: Shown | None = None) -> bytes:
        """Captures, workers, pipes, contexts, RRefs, findings and the summary of a session in order of
        completion.
        """
        return lines(head_lines(session)) + lines(tail_lines(session, shown))


class TableStream:
    """Prints the table line by line."""

    def __init__(self, decoding: Decoding, console: TextConsole, *, show_all: bool) -> None:
        self._decoding = decoding
        self._console = console
        self._show_all = show_all
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
        keeping = is_housekeeping(decoding, record)
        if keeping and not self._show_all:
            return
        ends = pipe_ends(record, decoding.identities())
        source, destination = ends[tp.from_client], ends[not tp.from_client]
        partner = columns.partner[record.row]
        answers = None if partner == NONE or tp.from_client else partner
        row = MessageRow(
            record.row,
            (tp.first_ns - columns.time_ns[0]) / 1e9,
            end_label(source),
            end_label(destination),
            type_name(record.rpc.message.type),
            answers,
            None if answers is None else columns.latency_ns(record.row),
            self._phrases.phrase(record),
            keeping,
            failed(record),
        )
        write_line(self._console, self._layout.line(row), row.style)
        self._console.file.flush()

"""Messages as they become complete, for captures that are still being made: table lines and JSON lines.

In: records in the order of completion, and the decoding for what is known by then. Out: a line for each.
Indexes count completions and hold only within this output; names are those known at that moment.
"""

from __future__ import annotations

from rpcinspect.fields.phrases import Phrases
from rpcinspect.fields.session import SoFar
from rpcinspect.filter.matches import Shown
from rpcinspect.pipeline import Decoding
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.model import Session
from rpcinspect.views.jsonl.lines import head_lines, lines, message_lines, tail_lines
from rpcinspect.views.jsonl.message import MessageRenderer
from rpcinspect.views.text.console import TextConsole
from rpcinspect.views.text.table import Layout, failed, line_width, message_rows, write_line

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
        self._known = SoFar(decoding)
        self._console = console
        self._show_all = show_all
        self._layout = Layout(width=line_width(console), ends_width=ENDS_WIDTH)
        self._begun = False
        self._phrases = Phrases()

    def show(self, record: RpcRecord) -> None:
        """Prints a message's line."""
        if not self._begun:
            self._begun = True
            write_line(self._console, self._layout.header(), "bold")
        known = self._known.at(record)
        if known.housekeeping[0] and not self._show_all:
            return
        (row,) = message_rows(known, [(failed(record), self._phrases.phrase(record))])
        write_line(self._console, self._layout.line(row), row.style)
        self._console.file.flush()

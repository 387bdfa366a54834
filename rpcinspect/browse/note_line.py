"""The line with the note on the message that is shown; hidden where that has none.

In: the row of a message, and the marks. Out: a widget.
"""

from __future__ import annotations

from collections.abc import Mapping

from rich.text import Text
from textual.widgets import Static

from rpcinspect.browse.growing_run import GrowingRun
from rpcinspect.fields.phrases import printable

MAX_SHOWN = 2000
"""Characters of a note."""


class NoteLine(Static):
    """A note, in a few lines at most."""

    DEFAULT_CSS = """
    NoteLine { height: auto; max-height: 4; display: none; padding: 0 1;
        background: $warning-muted; color: $text; }
    NoteLine.shown { display: block; }
    """

    def __init__(self) -> None:
        super().__init__(markup=False)

    def show(self, row: int | None, marks: Mapping[int, str], reading: GrowingRun) -> None:
        """Shows the note on a message."""
        note = "" if row is None else marks.get(row, "")
        self.set_class(bool(note), "shown")
        if note and row is not None:
            more = "…" if len(note) > MAX_SHOWN else ""
            self.update(Text(f"note on #{reading.number(row)}: {printable(note[:MAX_SHOWN])}{more}"))

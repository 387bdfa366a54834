"""What is shown of marks: the marked messages as a list to choose from, and the note on one of them.

In: the marks, and a capture that is being read. Out: numbers of messages; a window that asks for one of them;
a line for a note.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.text import Text
from textual.widgets import Static

from rpcinspect.browse.growing_run import GrowingRun
from rpcinspect.browse.lines import ListLine
from rpcinspect.browse.screens import Chooser
from rpcinspect.fields.phrases import counted, printable, shorten

NO_MARKS = "nothing is marked: m marks a message, c keeps a note on it"
MAX_LISTED = 2000
MAX_SHOWN = 300
"""Characters of a note that stand in a line of the list."""
MAX_NOTE_LINE = 2000
"""Characters of a note that stand below the panes."""


def marked_numbers(reading: GrowingRun, marks: Iterable[int]) -> list[int]:
    """Returns the numbers of marked messages, in order."""
    return sorted(map(reading.number, marks))


def mark_chooser(reading: GrowingRun, marks: Mapping[int, str], numbers: Sequence[int]) -> Chooser:
    """Returns a window that asks which of these messages to go to."""
    listed = numbers[:MAX_LISTED]
    more = f" (the first {len(listed):,})" if len(listed) < len(numbers) else ""
    title = f"{counted(len(numbers), 'marked message')}{more}: enter goes there"
    return Chooser(title, [_line(reading, marks, number) for number in listed])


def _line(reading: GrowingRun, marks: Mapping[int, str], number: int) -> ListLine:
    """Returns a message in a line, with its note first: that is what people look for."""
    row = reading.row_of(number)
    assert row is not None
    note = shorten(printable(marks[row][: MAX_SHOWN + 1]), MAX_SHOWN)
    return ListLine(f"#{number}  {f'“{note}”  ' if note else ''}{reading.told(row)}")


class NoteLine(Static):
    """The note on the message that is shown, in a few lines at most; hidden where that has none."""

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
            more = "…" if len(note) > MAX_NOTE_LINE else ""
            self.update(Text(f"note on #{reading.number(row)}: {printable(note[:MAX_NOTE_LINE])}{more}"))

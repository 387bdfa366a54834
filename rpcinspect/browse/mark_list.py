"""The marked messages in the order of time, and as a list to choose from.

In: the marks, and a capture that is being read. Out: numbers of messages; a window that asks for one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rpcinspect.browse.growing_run import GrowingRun
from rpcinspect.browse.lines import ListLine
from rpcinspect.browse.screens import Chooser
from rpcinspect.fields.phrases import counted, printable, shorten

NO_MARKS = "nothing is marked: m marks a message, c keeps a note on it"
MAX_LISTED = 2000
MAX_SHOWN = 300
"""Characters of a note that stand in a line."""


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
    source, destination = reading.ends(row)
    told = f"{source} → {destination}  {reading.texts([row])[0]}"
    return ListLine(f"#{number}  {f'“{note}”  ' if note else ''}{told}")

"""Answers of questions as a list: the tables and sentences of the commands, and what each line names.

In: parts, as `views.questions` has them. Out: lines on demand; of each the messages that it names, by what
they are to it. A table is as wide as it must be, and is shifted sideways where the list is narrower.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct
from rich.cells import cell_len
from rich.text import Text

from rpcinspect.browse.lines import LineLook, ListLine
from rpcinspect.fields.phrases import shorten
from rpcinspect.views.columns import Cell, Links, Table
from rpcinspect.views.text.columns import BETWEEN, Part, cell_text

NAMED = re.compile(r"#(\d{1,18})\b")
MAX_CELL = 120
MAX_TARGETS = 200
LOOKS: dict[str, LineLook] = {
    "bad": "bad",
    "odd": "odd",
    "red": "bad",
    "yellow": "odd",
    "dim": "dim",
    "bold": "title",
}


class Destination(Struct, frozen=True):
    """A message that something leads to."""

    message: int
    """Its index."""
    text: str
    """What it is to that, in words."""


class _Row(Struct, frozen=True):
    text: str
    look: LineLook = ""
    links: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """Of cells that name messages: the title of the column, and these."""
    item: int | None = None
    """Which row of a table it is."""


class PartLines:
    """Lines of an answer."""

    def __init__(self, parts: Iterable[Part], messages: int) -> None:
        """`messages`: how many the run has: what is named beyond is no message."""
        self._messages = messages
        self._rows = [row for part in parts for row in _rows_of(part)]

    def __len__(self) -> int:
        return len(self._rows)

    def header(self, width: int) -> str:
        """There is none: tables have their own."""
        return ""

    def line(self, at: int, width: int) -> ListLine:
        """Returns a line."""
        row = self._rows[at]
        return ListLine(row.text, row.look)

    def item(self, at: int) -> int | None:
        """Returns which row of its table a line is."""
        return self._rows[at].item

    def targets(self, at: int) -> list[Destination]:
        """Returns the messages that a line names."""
        row = self._rows[at]
        found = [Destination(one, f"{title} #{one}") for title, those in row.links for one in those]
        if not found:
            found = [Destination(int(one), f"#{one}") for one in NAMED.findall(row.text)]
        return [one for one in found if 0 <= one.message < self._messages][:MAX_TARGETS]

    def texts(self, ats: Sequence[int]) -> list[str]:
        """Returns what is searched of some lines."""
        return [self._rows[at].text for at in ats]


def _rows_of(part: Part) -> Iterable[_Row]:
    if isinstance(part, Table):
        return _table_rows(part)
    if isinstance(part, Text):
        look = LOOKS.get(str(part.style).rpartition(" ")[2], "")
        return [_Row(line, look if not at else "") for at, line in enumerate(part.plain.split("\n"))]
    lines: Iterable[tuple[str, str]] = part(None) if callable(part) else (part,)
    return [_Row(line, LOOKS.get(style.rpartition(" ")[2], "")) for line, style in lines]


def _table_rows(table: Table) -> Iterable[_Row]:
    titles = [column.title for column in table.columns]
    texts = [[shorten(cell_text(cell), MAX_CELL) for cell in row] for row in table.rows]
    widths = [max(map(cell_len, column)) for column in zip(titles, *texts, strict=True)]
    right = [column.right for column in table.columns]
    yield _Row(_joined(titles, widths, right), "title")
    for at, (row, cells, style) in enumerate(zip(table.rows, texts, table.styles, strict=True)):
        yield _Row(_joined(cells, widths, right), LOOKS.get(style, ""), _links(titles, row), at)
    if table.left_out:
        yield _Row(f"{table.left_out:,} more are left out", "dim")


def _links(titles: Sequence[str], row: Sequence[Cell]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple(
        (title, tuple(cell.messages))
        for title, cell in zip(titles, row, strict=True)
        if isinstance(cell, Links) and cell.messages
    )


def _joined(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = []
    for cell, width, to_right in zip(cells, widths, right, strict=True):
        space = " " * (width - cell_len(cell))
        padded.append(space + cell if to_right else cell + space)
    return (" " * BETWEEN).join(padded).rstrip()

"""Answers of questions as a list: the tables and sentences of the commands, and what each line names.

In: parts, as `views.questions` has them. Out: lines on demand; of each the messages that it names, by what
they are to it. A table is as wide as it must be, and is shifted sideways where the list is narrower; a
sentence goes on in the next line.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence

from msgspec import Struct
from rich.cells import cell_len

from rpcinspect.browse.lines import MAX_LINE, LineLook, LineSource, ListLine
from rpcinspect.fields.phrases import shorten
from rpcinspect.views.columns import Cell, Links, Table
from rpcinspect.views.text.columns import Part, cell_text, table_lines
from rpcinspect.views.text.console import StyledText

NAMED = re.compile(r"(?<!\w)#(\d{1,18})\b")
"""A message; `tensor#0` is none."""
MAX_CELL = 120
MAX_TARGETS = 200
LOOKS: dict[str, LineLook] = {
    "red": "bad",
    "yellow": "odd",
    "dim": "dim",
    "bold": "title",
}


class Destination(Struct, frozen=True):
    """A message that something leads to."""

    message: int
    """Its index."""
    text: str = ""
    """What it is to that, in words, where there is more to say than its number."""


class _Row(Struct, frozen=True):
    """A row of a table, or a line beside tables, whatever its length."""

    text: str
    look: LineLook = ""
    links: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """Of cells that name messages: the title of the column, and these."""
    item: int | None = None
    """Which row of a table it is."""
    wraps: bool = False
    """Whether it is a sentence."""


class _Piece(Struct, frozen=True):
    """What of a row stands in one line of the list: of a table's row all, of a sentence what has room."""

    row: _Row
    text: str
    begins: bool
    """Whether it is the first of its row: that line is found by the whole text."""


class PartLines(LineSource):
    """Lines of an answer."""

    def __init__(self, parts: Iterable[Part], messages: int) -> None:
        """`messages`: how many the run has: what is named beyond is no message."""
        self._messages = messages
        self._rows = [row for part in parts for row in _rows_of(part)]
        self._width = 0
        self._pieces: list[_Piece] = []
        self._lay(MAX_LINE)

    def _lay(self, width: int) -> None:
        self._width = width
        self._pieces = [piece for row in self._rows for piece in _pieces_of(row, width)]

    def __len__(self) -> int:
        return len(self._pieces)

    def header(self, width: int) -> str:
        """Lays sentences out for a list so wide; there is no header: tables have their own."""
        if width != self._width:
            self._lay(width)
        return ""

    def line(self, at: int, width: int) -> ListLine:
        """Returns a line as it was laid out: a row of a table, or a piece of a sentence."""
        piece = self._pieces[at]
        return ListLine(piece.text, piece.row.look)

    def item(self, at: int) -> int | None:
        """Returns which row of its table a line is."""
        return self._pieces[at].row.item

    def targets(self, at: int) -> list[Destination]:
        """Returns the messages that a line names, each once."""
        row = self._pieces[at].row
        found = [Destination(one, title) for title, those in row.links for one in those]
        if not found:
            found = [Destination(int(one)) for one in NAMED.findall(row.text)]
        return [one for one in dict.fromkeys(found) if 0 <= one.message < self._messages][:MAX_TARGETS]

    def texts(self, ats: Sequence[int]) -> list[str]:
        """Returns what is searched of some lines: all of a sentence where it begins."""
        pieces = [self._pieces[at] for at in ats]
        return [piece.row.text if piece.begins else "" for piece in pieces]


def _pieces_of(row: _Row, width: int) -> list[_Piece]:
    inner = max(1, width - 1)  # a mark stands before each line
    if not row.wraps or cell_len(row.text[:MAX_LINE]) <= inner:
        return [_Piece(row, row.text, True)]
    indent = " " * min(inner // 2, len(row.text) - len(row.text.lstrip()) + 2)
    lines = textwrap.wrap(row.text[:MAX_LINE], inner, subsequent_indent=indent)
    return [_Piece(row, line, not at) for at, line in enumerate(lines)]


def _rows_of(part: Part) -> Iterable[_Row]:
    if isinstance(part, Table):
        return _table_rows(part)
    if isinstance(part, StyledText):
        look = LOOKS.get(str(part.style).rpartition(" ")[2], "")
        lines = part.plain.split("\n")
        return [_Row(line, look if not at else "", wraps=True) for at, line in enumerate(lines)]
    laid = callable(part)
    found: Iterable[tuple[str, str]] = part(None) if callable(part) else (part,)
    return [_Row(line, LOOKS.get(style.rpartition(" ")[2], ""), wraps=not laid) for line, style in found]


def _table_rows(table: Table) -> Iterable[_Row]:
    titles = [column.title for column in table.columns]
    texts = [[shorten(cell_text(cell), MAX_CELL) for cell in row] for row in table.rows]
    (header, _), *lines = table_lines(Table(table.columns, texts, table.styles))
    yield _Row(header, "title")
    for at, ((line, style), row) in enumerate(zip(lines, table.rows, strict=True)):
        yield _Row(line, LOOKS.get(style, ""), _links(titles, row), at)
    if table.left_out:
        yield _Row(f"{table.left_out:,} more are left out", "dim")


def _links(titles: Sequence[str], row: Sequence[Cell]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple(
        (title, tuple(cell.messages))
        for title, cell in zip(titles, row, strict=True)
        if isinstance(cell, Links) and cell.messages
    )

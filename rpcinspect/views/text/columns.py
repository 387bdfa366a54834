"""Tables as text: a header, and rows in columns as wide as they must be; and how lines are printed.

In: a `Table`. Out: lines with their styles; the last column ends where it ends. What a terminal has no room
for beside the others stands below them, so that no column is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

from rich.cells import cell_len

from rpcinspect.fields.phrases import indexes, shorten_middle
from rpcinspect.views.columns import Cell, Table
from rpcinspect.views.text.console import StyledText, TextConsole
from rpcinspect.views.text.table import cut_line, line_width, pad, write_line

Line: TypeAlias = tuple[str, str]
"""Text and style."""
Part: TypeAlias = Line | StyledText | Table | Callable[[int | None], Iterable[Line]]
"""A line, a text of several styles, a table, or what lays lines out for a width."""
LEAST, BESIDE = 18, 28
"""Cells left of the column that gives way: so few where all columns then have room; else so many."""
BETWEEN = 2
"""Cells between columns."""
MAX_LINKS = 6
"""Messages that a cell names."""
STYLES = {"": "", "bad": "red", "odd": "yellow"}


def table_lines(table: Table, width: int | None = None) -> Iterator[Line]:
    """Yields lines for a terminal of `width` cells: columns without room follow below, beside the first once
    more; then those without any content are left out."""
    header = [column.title for column in table.columns]
    texts = [[cell if isinstance(cell, str) else cell_text(cell) for cell in row] for row in table.rows]
    rows = [header, *(texts if width is None else _narrowed(table, header, texts, width))]
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    styles = ["bold", *(STYLES[style] for style in table.styles)]
    right = [column.right for column in table.columns]
    shown = [*range(len(header))]
    if width is not None and sum(widths) + BETWEEN * (len(widths) - 1) > width:
        shown = [at for at in shown if not at or any(row[at] for row in rows[1:])]
    for number, block in enumerate(_blocks(widths, shown, width)):
        if number:
            yield "", ""
        for row, style in zip(rows, styles, strict=True):
            cells = (_aligned(row[at], widths[at], right[at]) for at in block)
            yield cut_line((" " * BETWEEN).join(cells).rstrip(), width), style


def cell_text(cell: Cell) -> str:
    """Returns a cell as text: messages that it names by their numbers."""
    if isinstance(cell, str):
        return cell
    return f"{cell.text} {indexes(cell.messages, MAX_LINKS)}".strip()


def _aligned(cell: str, width: int, right: bool) -> str:
    return " " * (width - cell_len(cell)) + cell if right else pad(cell, width)


def _narrowed(
    table: Table, header: Sequence[str], rows: Sequence[list[str]], width: int
) -> Sequence[Sequence[str]]:
    """The rows with the cells that give way cut in their middle."""
    at = next((at for at, column in enumerate(table.columns) if column.gives_way), 0)
    widths = [max(map(cell_len, column)) for column in zip(header, *rows, strict=True)]
    room = width - sum(widths) + widths[at] - BETWEEN * (len(widths) - 1)
    room = room if room >= LEAST else BESIDE
    return [(*row[:at], shorten_middle(row[at], room), *row[at + 1 :]) for row in rows]


def _blocks(widths: Sequence[int], shown: Sequence[int], width: int | None) -> Iterator[list[int]]:
    """Which of the shown columns stand beside each other."""
    block, taken = [0], widths[0]
    for at in shown[1:]:
        if width is not None and taken + BETWEEN + widths[at] > width and len(block) > 1:
            yield block
            block, taken = [0], widths[0]
        block.append(at)
        taken += BETWEEN + widths[at]
    yield block


def show_lines(parts: Iterable[Part], console: TextConsole) -> None:
    """Prints parts; a sentence that is longer than a terminal is wide takes several lines."""
    width = line_width(console)
    for part in parts:
        if isinstance(part, StyledText):
            console.print(part, soft_wrap=width is None)
            continue
        for line, style in _lines(part, width):
            if width is None or cell_len(line) <= width:
                write_line(console, line, style)
            else:
                for part_of_it in _wrapped(line, width, console):
                    write_line(console, part_of_it, style)


def _lines(part: Line | Table | Callable[[int | None], Iterable[Line]], width: int | None) -> Iterable[Line]:
    if isinstance(part, Table):
        return table_lines(part, width)
    return part(width) if callable(part) else (part,)


def _wrapped(line: str, width: int, console: TextConsole) -> Iterator[str]:
    """A sentence in lines that begin below its first word, but for the first."""
    begin = " " * (len(line) - len(line.lstrip()))
    from rich.console import Console
    from rich.text import Text

    assert isinstance(console, Console)  # others have no edge
    within = Text(line.strip()).wrap(console, max(1, width - len(begin)))
    return (begin + one.plain.rstrip() for one in within)

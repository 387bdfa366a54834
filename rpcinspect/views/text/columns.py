"""Small tables of text: a header, and rows in columns as wide as they must be; and how lines are printed.

In: cells of printable text. Out: lines with their styles; the last column ends where it ends. Numbers stand
to the right. What a terminal has no room for beside the others stands below them, so that no column is lost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import TypeAlias

from msgspec import Struct
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from rpcinspect.fields.phrases import shorten_middle
from rpcinspect.views.text.table import cut_line, line_width, pad, write_line

Line: TypeAlias = tuple[str, str]
"""Text and style."""
LEAST, BESIDE = 18, 28
"""Cells left of the column that gives way: so few where all columns then have room; else so many."""
BETWEEN = 2
"""Cells between columns."""


class Columns(Struct, frozen=True):
    """A header, whose style is `head`, then rows in theirs."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Collection[int] = ()
    """The columns that stand to the right."""
    gives_way: int = 0
    """The column whose texts are cut in their middle where lines would be too wide."""
    head: str = "bold"
    styles: Iterable[str] = ()

    def lines(self, width: int | None = None) -> Iterator[Line]:
        """For a terminal of `width` cells: columns without room follow below, beside the first once more."""
        rows = self.rows if width is None else self._narrowed(width)
        widths = [max(map(cell_len, column)) for column in zip(self.header, *rows, strict=True)]
        styles = [self.head, *(style for _, style in zip(rows, chain(self.styles, repeat("")), strict=False))]
        for number, block in enumerate(_blocks(widths, width)):
            if number:
                yield "", ""
            for row, style in zip((self.header, *rows), styles, strict=True):
                cells = (self._aligned(row[at], at, widths[at]) for at in block)
                yield cut_line((" " * BETWEEN).join(cells).rstrip(), width), style

    def _aligned(self, cell: str, at: int, width: int) -> str:
        return " " * (width - cell_len(cell)) + cell if at in self.right else pad(cell, width)

    def _narrowed(self, width: int) -> Sequence[Sequence[str]]:
        at = self.gives_way
        widths = [max(map(cell_len, column)) for column in zip(self.header, *self.rows, strict=True)]
        room = width - sum(widths) + widths[at] - BETWEEN * (len(widths) - 1)
        room = room if room >= LEAST else BESIDE
        return [(*row[:at], shorten_middle(row[at], room), *row[at + 1 :]) for row in self.rows]


def _blocks(widths: Sequence[int], width: int | None) -> Iterator[list[int]]:
    """Which columns stand beside each other."""
    block, taken = [0], widths[0]
    for at in range(1, len(widths)):
        if width is not None and taken + BETWEEN + widths[at] > width and len(block) > 1:
            yield block
            block, taken = [0], widths[0]
        block.append(at)
        taken += BETWEEN + widths[at]
    yield block


def show_lines(parts: Iterable[Line | Columns], console: Console) -> None:
    """Prints lines and tables; a sentence that is longer than a terminal is wide takes several lines."""
    width = line_width(console)
    for part in parts:
        for line, style in part.lines(width) if isinstance(part, Columns) else (part,):
            if width is None or cell_len(line) <= width:
                write_line(console, line, style)
            else:
                for part_of_it in _wrapped(line, width, console):
                    write_line(console, part_of_it, style)


def _wrapped(line: str, width: int, console: Console) -> Iterator[str]:
    """A sentence in lines that begin below its first word, but for the first."""
    begin = " " * (len(line) - len(line.lstrip()))
    within = Text(line.strip()).wrap(console, max(1, width - len(begin)))
    return (begin + one.plain.rstrip() for one in within)

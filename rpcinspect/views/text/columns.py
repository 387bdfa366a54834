"""Small tables of text: a header, and rows in columns as wide as they must be; and how lines are printed.

In: cells of printable text. Out: lines with their styles; the last column ends where it ends. Numbers stand
to the right.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import TypeAlias

from rich.cells import cell_len
from rich.console import Console

from rpcinspect.views.phrases import shorten_middle
from rpcinspect.views.text.table import cut_line, line_width, pad, write_line

Line: TypeAlias = tuple[str, str]
"""Text and style."""
LEAST = 28
"""Cells of the first column that are left where there is no room."""


def show_lines(lines: Iterable[Line], console: Console) -> None:
    """Prints lines, each cut at a terminal's edge."""
    width = line_width(console)
    for line, style in lines:
        write_line(console, cut_line(line, width), style)


def columns(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Collection[int] = (),
    width: int | None = None,
    *,
    head: str = "bold",
    styles: Iterable[str] = (),
) -> Iterator[Line]:
    """The header, whose style is `head`, then the rows in theirs; `right` are the columns that stand to the
    right. Where lines would be wider than `width`, what is in the first column is cut in its middle, since it
    says what the others are of.
    """
    if width is not None:
        rows = _narrowed(header, rows, width)
    widths = [max(map(cell_len, column)) for column in zip(header, *rows, strict=True)]
    for row, style in zip((header, *rows), chain((head,), styles, repeat("")), strict=False):
        cells = [
            " " * (width - cell_len(cell)) + cell if number in right else pad(cell, width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip(), style


def _narrowed(header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Sequence[Sequence[str]]:
    widths = [max(map(cell_len, column)) for column in zip(header, *rows, strict=True)]
    room = max(LEAST, width - sum(widths[1:]) - 2 * len(widths[1:]))
    return [(shorten_middle(first, room), *others) for first, *others in rows]

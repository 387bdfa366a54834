"""Small tables of text: a header, and rows in columns as wide as they must be.

In: cells of printable text. Out: lines; the last column ends where it ends. Numbers stand to the right.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from rich.cells import cell_len

from rpcinspect.views.phrases import shorten_middle
from rpcinspect.views.text.table import pad

LEAST = 28
"""Cells of the first column that are left where there is no room."""


def columns(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Collection[int] = (),
    width: int | None = None,
) -> Iterator[str]:
    """The header, then the rows; `right` are the columns that stand to the right. Where lines would be wider
    than `width`, what is in the first column is cut in its middle, since it says what the others are of.
    """
    if width is not None:
        rows = _narrowed(header, rows, width)
    widths = [max(map(cell_len, column)) for column in zip(header, *rows, strict=True)]
    for row in (header, *rows):
        cells = [
            " " * (width - cell_len(cell)) + cell if number in right else pad(cell, width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def _narrowed(header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Sequence[Sequence[str]]:
    widths = [max(map(cell_len, column)) for column in zip(header, *rows, strict=True)]
    room = max(LEAST, width - sum(widths[1:]) - 2 * len(widths[1:]))
    return [(shorten_middle(first, room), *others) for first, *others in rows]

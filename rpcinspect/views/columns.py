"""Small tables of text: a header, and rows in columns as wide as they must be.

In: cells of printable text. Out: lines; the last column ends where it ends. Numbers stand to the right.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from rich.cells import cell_len

from rpcinspect.views.table import pad


def columns(
    header: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = ()
) -> Iterator[str]:
    """The header, then the rows; `right` are the columns that stand to the right."""
    widths = [max(map(cell_len, column)) for column in zip(header, *rows, strict=True)]
    for row in (header, *rows):
        cells = [
            " " * (width - cell_len(cell)) + cell if number in right else pad(cell, width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()

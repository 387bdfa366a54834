"""What `--fields` shows: every field with its kind, what it is and an example; then the values of each kind.

In: nothing. Out: lines of printable text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rpcinspect.fields.kinds import KINDS
from rpcinspect.fields.table import ALIASES, FIELDS


def field_lines() -> Iterator[str]:
    """Line by line."""
    names = {field.name: field.name for field in FIELDS}
    for alias, name in ALIASES.items():
        names[name] += f", {alias}"
    yield from _columns(
        ("field", "kind", "what it is", "example"),
        [(names[field.name], field.kind.name, field.about, field.example) for field in FIELDS],
    )
    yield ""
    kinds = {(kind.name, kind.unit, " ".join(sorted(kind.operators))) for kind in KINDS}
    yield from _columns(("kind", "values", "operators"), sorted(kinds))


def _columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for row in (header, *rows):
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()

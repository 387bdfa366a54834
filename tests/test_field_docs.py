"""The listing of columns in docs/parquet.md is that of the table of fields."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rpcinspect.fields.field import Field
from rpcinspect.fields.table import MESSAGE, TENSOR
from tests.places import ROOT


def in_tables(fields: Sequence[Field]) -> Iterator[str]:
    """Rows of docs/parquet.md."""
    for field in fields:
        abouts = (
            [field.about]
            if len(field.columns) < 2
            else [f"{field.about}: who made it", "and its number there"]
        )
        for (name, cells), about in zip(field.columns.items(), abouts, strict=False):
            yield f"| `{name}` | {cells} | {about} |"


def test_tables() -> None:
    page = (ROOT / "docs" / "parquet.md").read_text(encoding="utf-8")
    assert "\n".join(["|---|---|---|", *in_tables(MESSAGE)]) + "\n\n" in page
    assert "\n".join(in_tables(TENSOR)) + "\n\n" in page

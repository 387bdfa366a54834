"""The listings of fields in docs/filter.md and docs/parquet.md are those of the table of fields."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rpcinspect.fields.field import Field
from rpcinspect.fields.table import ALIASES, FIELDS, MESSAGE, TENSOR
from tests.places import ROOT

OTHER_NAMES = {name: alias for alias, name in ALIASES.items()}


def in_filters() -> Iterator[str]:
    """Rows of docs/filter.md."""
    for field in FIELDS:
        other = OTHER_NAMES.get(field.name)
        names = f"`{field.name}`" + (f", `{other}`" if other else "")
        yield f"| {names} | {field.kind.name} | {field.about} | `{field.example}` |"


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


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def test_filters() -> None:
    assert "\n".join(["|---|---|---|---|", *in_filters()]) in page("filter.md")


def test_tables() -> None:
    assert "\n".join(["|---|---|---|", *in_tables(MESSAGE)]) + "\n\n" in page("parquet.md")
    assert "\n".join(in_tables(TENSOR)) + "\n\n" in page("parquet.md")

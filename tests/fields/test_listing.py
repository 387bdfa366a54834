"""`--fields` names every field and every kind."""

from __future__ import annotations

from rpcinspect.fields.kinds import DURATIONS, KINDS, SIZES
from rpcinspect.fields.table import ALIASES, FIELDS, field_lines


def test_every_field_kind_and_unit_is_listed() -> None:
    lines = list(field_lines())
    for field in FIELDS:
        (line,) = [
            line for line in lines if line.split(" ")[0].rstrip(",") == field.name and field.about in line
        ]
        assert field.kind.name in line
        assert line.endswith(field.example)
    page = "\n".join(lines)
    assert all(alias in page for alias in ALIASES)
    assert all(kind.unit in page for kind in KINDS)
    units = page[page.index("\n\n") :].split()
    assert {unit for unit in (*SIZES, *DURATIONS) if unit not in ("", "µs")} <= {u.strip(",") for u in units}

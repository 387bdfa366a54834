"""The table of fields: each has one source, an example that is a filter, and a name that can be written."""

from __future__ import annotations

import pytest

from rpcinspect.filter.expression import leaves
from rpcinspect.filter.fields import ALIASES, BY_NAME, FIELDS, Field
from rpcinspect.filter.grammar import parse


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
def test_a_field(field: Field) -> None:
    assert (field.said is None) != (field.known is None)
    assert field.streams or field.known is not None
    assert field in [leaf.field for leaf in leaves(parse(field.example))]
    assert parse(field.name)


def test_names_are_unique() -> None:
    assert len({field.name for field in FIELDS}) == len(FIELDS)
    assert not set(ALIASES) & {field.name for field in FIELDS}
    assert BY_NAME["function"] is BY_NAME["fn"]

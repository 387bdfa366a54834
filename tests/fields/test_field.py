"""A field: what it is called where, and its values."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rpcinspect.fields.field import Field, OfPlace, OfTensor, Seen, To, several
from rpcinspect.fields.kinds import FLAG, NUMBER, PAIR, TEXT


@pytest.mark.parametrize(
    ("field", "columns"),
    [
        (Field("error.text", TEXT, ""), {"error_text": "text"}),
        (Field("kwargs", TEXT, "", cells="map"), {"kwargs": "map"}),
        (Field("rref_id", PAIR, ""), {"rref_created_on": "int64", "rref_local_id": "int64"}),
        (Field("fn", TEXT, "", "== f", to=To.FILTER), {}),
        (Field("arg", TEXT, "", plural=True), {"args": "list of text"}),
        (OfPlace("packet", NUMBER, ""), {"location_packet": "int64"}),
        (OfTensor("offset", NUMBER, "", renamed="storage_offset"), {"storage_offset": "int64"}),
    ],
    ids=lambda value: value.name if isinstance(value, Field) else "",
)
def test_columns(field: Field, columns: dict[str, str]) -> None:
    assert field.columns == columns


def test_names_and_examples() -> None:
    assert OfTensor("dim", NUMBER, "", "== 0").example == "tensor.dim == 0"
    assert Field("error", FLAG, "", "").example == "error"


def test_values() -> None:
    message: Any = SimpleNamespace(
        tp=SimpleNamespace(flow="\udcff"), tensors=[SimpleNamespace(a=1), SimpleNamespace(a=None)]
    )
    assert Field("flow", TEXT, "", of="tp.flow").values(message) == ("\\xff",)
    assert OfTensor("a", NUMBER, "").values(message) == (1,)
    assert [several(value) for value in (None, (), (1, 2), 0, False)] == [(), (), (1, 2), (0,), (False,)]


def test_what_is_late() -> None:
    assert Seen("index", NUMBER, "").late
    assert not Seen("pipe", NUMBER, "", of="pipe").late
    assert not Field("pipe", NUMBER, "").late

"""Columns, each said once: what JSON, Parquet and people get of them."""

from __future__ import annotations

from msgspec import Struct

from rpcinspect.views.columns import Column, Links, cells_of, json_of, table


class Call(Struct):
    name: str
    took_ns: int | None
    parents: tuple[int, ...] = ()
    job: int = 0


COLUMNS = (
    Column("name", "text", title="function"),
    Column("job", "int32", title="job", unless="same", json=False),
    Column("took", "int64", "took_ns", "took", lambda ns: f"{ns} ns", right=True),
    Column("parents", title="for", words=Links),
    Column("count", "int64", lambda call: len(call.parents), renamed="parent_count"),
    Column(title="note", cell=lambda call, known: known.get(call.name, ""), unless="empty"),
)
CALLS = (Call("f", 3, (1, 2)), Call("g\x1b\udcff", None))


def test_json_has_what_has_a_key_and_parquet_what_has_a_type() -> None:
    lines = list(map(json_of(COLUMNS, "call"), CALLS))
    assert lines[0] == {"kind": "call", "name": "f", "took": 3, "parents": [1, 2], "count": 2}
    assert lines[1]["name"] == "g\x1b\\xff"
    assert json_of(COLUMNS)(CALLS[1]) == {"name": "g\x1b\\xff", "took": None, "parents": [], "count": 0}
    assert cells_of(COLUMNS)(CALLS[0]) == {"name": "f", "job": 0, "took": 3, "parent_count": 2}


def test_people_see_what_has_a_title_and_something_to_say() -> None:
    one = table(COLUMNS, CALLS, {})
    assert [column.title for column in one.columns] == ["function", "took", "for"]
    assert one.rows == [["f", "3 ns", Links((1, 2))], ["g\\x1b\\xff", "", Links(())]]
    several = table(COLUMNS, (*CALLS, Call("h", 1, (), 1)), {"g\x1b\udcff": "slow"})
    assert [column.title for column in several.columns] == ["function", "job", "took", "for", "note"]


def test_what_is_too_much_is_counted() -> None:
    cut = table(COLUMNS, CALLS * 3, {}, most=4, style=lambda call: "bad" if call.took_ns is None else "")
    assert (len(cut.rows), cut.left_out) == (4, 2)
    assert cut.styles == ["", "bad", "", "bad"]

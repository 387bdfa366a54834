"""Small tables: aligned by what a terminal shows, not by characters."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich.cells import cell_len

from rpcinspect.views.text.columns import Columns


def columns(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Collection[int] = (),
    width: int | None = None,
) -> list[str]:
    """The lines without their styles."""
    return [line for line, _ in Columns(header, rows, right).lines(width)]


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    head, *rows = columns(
        ("a", "count", "rest"), [("x", "1", "last"), ("long name", "1,000", "")], right=(1,)
    )
    assert head == "a          count  rest"
    assert rows == ["x              1  last", "long name  1,000"]


def test_wide_characters_take_two_cells() -> None:
    lines = list(columns(("name", "x"), [("訓練", "1"), ("abc", "2")]))
    assert {cell_len(line) for line in lines} == {7}


def test_names_give_way_to_numbers_on_a_narrow_terminal() -> None:
    long = "rpc_sync#module.function(worker0 -> worker1)#remote_op: aten::mul"
    rows = [(long, "1,000", "12 ms"), ("short", "1", "3 µs")]
    head, first, second = columns(("name", "count", "took"), rows, right=(1, 2), width=58)
    assert cell_len(first) == 58
    assert first.startswith("rpc_sync")
    assert first.endswith("remote_op: aten::mul  1,000  12 ms")
    assert second.split() == ["short", "1", "3", "µs"]
    assert cell_len(head) == 58
    assert list(columns(("name", "count", "took"), rows, right=(1, 2), width=580))[1].startswith(long)


def test_columns_without_room_follow_below_beside_the_first() -> None:
    long = "a name of some length, longer than there is room"
    rows = [(long, "1,000", "12 ms", "3 ms"), ("short", "1", "3 µs", "1 µs")]
    header = ("name", "count", "took in all", "on the wire")
    told = columns(header, rows, right=(1, 2, 3), width=48)
    assert [line.rsplit("  ")[-1].strip() for line in told] == [
        *("took in all", "12 ms", "3 µs", ""),
        *("on the wire", "3 ms", "1 µs"),
    ]
    assert told[1].startswith("a name")
    assert told[5].startswith("a name")
    assert max(map(cell_len, told)) == 48
    told = columns(header, rows, right=(1, 2, 3), width=51)
    assert len(told) == 3  # cut a little more, all have room
    assert told[1].split()[-5:] == ["1,000", "12", "ms", "3", "ms"]


def test_another_column_than_the_first_may_give_way() -> None:
    table = Columns(("#", "what", "count"), [("1", "a text of more than twenty cells", "7")], gives_way=1)
    (_, _), (line, _) = table.lines(30)
    assert line.startswith("1  a text")
    assert line.endswith("  7")
    assert cell_len(line) <= 30


def test_without_rows_there_is_a_header() -> None:
    assert list(columns(("a", "b"), [])) == ["a  b"]


def test_the_header_and_each_row_have_a_style() -> None:
    found = Columns(("a", "b"), [("1", "2"), ("3", "4")], head="bold red", styles=("", "dim"))
    assert list(found.lines()) == [("a  b", "bold red"), ("1  2", ""), ("3  4", "dim")]
    assert [style for _, style in Columns(("a",), [("1",), ("2",)]).lines()] == ["bold", "", ""]

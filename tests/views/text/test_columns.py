"""Small tables: aligned by what a terminal shows, not by characters."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import itemgetter

from rich.cells import cell_len

from rpcinspect.views.columns import Cell, Column, Links, Table, table
from rpcinspect.views.text.columns import table_lines


def made(
    header: Sequence[str], rows: Sequence[Sequence[Cell]], right: Collection[int] = (), gives_way: int = 0
) -> Table:
    """A table of cells."""
    columns = [
        Column(title=title, of=itemgetter(at), words=same, right=at in right, gives_way=at == gives_way)
        for at, title in enumerate(header)
    ]
    return table(columns, rows, style=lambda row: "bad" if row[0] == "3" else "")


def same(cell: Cell) -> Cell:
    return cell


def columns(
    header: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    right: Collection[int] = (),
    width: int | None = None,
) -> list[str]:
    """The lines without their styles."""
    return [line for line, _ in table_lines(made(header, rows, right), width)]


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


def test_columns_without_content_are_left_out_where_there_is_no_room() -> None:
    rows = [("one name", "", "first", ""), ("another", "", "second", "")]
    header = ("name", "unanswered requests", "place", "left")
    assert columns(header, rows)[0] == "name      unanswered requests  place   left"
    assert columns(header, rows, width=40) == ["name      place", "one name  first", "another   second"]


def test_another_column_than_the_first_may_give_way() -> None:
    one = made(("#", "what", "count"), [("1", "a text of more than twenty cells", "7")], gives_way=1)
    (_, _), (line, _) = table_lines(one, 30)
    assert line.startswith("1  a text")
    assert line.endswith("  7")
    assert cell_len(line) <= 30


def test_without_rows_there_is_a_header() -> None:
    assert list(columns(("a", "b"), [])) == ["a  b"]


def test_the_header_and_each_row_have_a_style() -> None:
    found = made(("a", "b"), [("1", "2"), ("3", "4")])
    assert list(table_lines(found)) == [("a  b", "bold"), ("1  2", ""), ("3  4", "red")]


def test_messages_are_named_up_to_a_few() -> None:
    rows = [("x", Links((3,), "made by")), ("y", Links(range(9)))]
    assert columns(("a", "b"), rows)[1:] == ["x  made by #3", "y  #0, #1, #2, #3, #4, #5 and 3 more"]

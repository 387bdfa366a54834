"""Printed lines, kept for pages."""

from __future__ import annotations

import pytest
from rich.console import Console
from rich.text import Text

from rpcinspect.agents.printed import MAX_LINE, Abandoned, PrintedLines


def test_lines_come_back_in_pages_that_have_room_for_them() -> None:
    def show(console: Console) -> None:
        console.print(Text("one [bold]"))
        console.file.write("two\x1b\nth")
        console.file.write("ree\n\n" + "x" * (MAX_LINE + 5))

    with PrintedLines(show, lambda: False) as lines:
        assert lines.count == 6
        assert lines.page(0, 30) == ["one [bold]", "two\\x1b"]
        assert lines.page(2, 10_000) == ["three", "", "x" * MAX_LINE, "… xxxxx"]
        assert lines.page(4, 10) == ["x" * MAX_LINE]
        assert lines.page(6, 10) == []


def test_nothing_is_printed_for_nobody() -> None:
    printed: list[int] = []

    def show(console: Console) -> None:
        for number in range(9):
            console.file.write("line\n")
            printed.append(number)

    with pytest.raises(Abandoned):
        PrintedLines(show, lambda: len(printed) > 2)
    assert printed == [0, 1, 2]

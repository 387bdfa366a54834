"""Messages of two runs as lines."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from rpcinspect.browse.lines import ListLine
from rpcinspect.browse.pair_lines import PairLines
from rpcinspect.equality.rules import Rules
from tests.browse.paired import compared
from tests.cli.runner import visible
from tests.diff.stories import Story

WIDTH = 110


def story(*results: int, name: str = "app.f") -> Story:
    """Calls with the numbers 0, 1 and so on, and what they gave."""
    made = Story()
    for number, result in enumerate(results):
        made.ask(name, number, result)
    return made


def all_lines(lines: PairLines, width: int = WIDTH) -> list[ListLine]:
    return [lines.line(at, width) for at in range(len(lines))]


def halves(line: ListLine) -> tuple[str, str]:
    a, _, b = line.text.partition("│")
    return a.strip(), b.strip()


def test_both_messages_stand_in_one_line() -> None:
    lines = all_lines(PairLines(compared(story(1), story(2)), beside=True))
    assert [line.mark for line in lines] == [" ", "!"]
    assert [halves(line) for line in lines] == [
        ("w0 → w1       0    0.000000  app.f(0)", "0    0.000000  app.f(0)"),
        ("w1 → w0       1    0.000000  #0 = 1", "1    0.000000  #0 = 2"),
    ]
    assert [line.look for line in lines] == ["", "bad"]


def test_a_message_that_one_run_lacks_leaves_a_gap() -> None:
    longer, shorter = story(1, 2), story(1)
    for pair, mark, gap in (((longer, shorter), "<", 1), ((shorter, longer), ">", 0)):
        lines = all_lines(PairLines(compared(*pair), beside=True))
        assert [line.mark for line in lines] == [" ", " ", mark, mark]
        assert [halves(line)[gap].rpartition("w1")[2].strip() for line in lines[2:-1]] == [""]
        assert "app.f(1)" in halves(lines[2])[1 - gap]


def test_one_below_the_other_where_there_is_no_room() -> None:
    lines = PairLines(compared(story(1, 2), story(1, 3)), beside=False)
    told = all_lines(lines, 60)
    assert [line.text.split() for line in told] == [
        ["=", "0", "0.000000", "w0", "→", "w1", "app.f(0)"],
        ["=", "1", "0.000000", "w1", "→", "w0", "#0", "=", "1"],
        ["=", "2", "0.000000", "w0", "→", "w1", "app.f(1)"],
        ["a", "3", "0.000000", "w1", "→", "w0", "#2", "=", "2"],
        ["b", "3", "0.000000", "#2", "=", "3"],
    ]
    assert [line.mark for line in told] == [" ", " ", " ", "!", " "]
    assert [lines.place(at) for at in range(5)] == [0, 1, 2, 3, 3]
    assert [lines.line_of(place) for place in range(4)] == [0, 1, 2, 3]


def test_both_numbers_of_a_message_that_is_the_same() -> None:
    """Where there is one column for it, and b had another call before."""
    b = Story()
    b.ask("app.g", 9)
    b.ask("app.f", 0, 1)
    told = all_lines(PairLines(compared(story(1), b), beside=False), 60)
    assert [line.text.split()[:2] for line in told] == [["b", "0"], ["b", "1"], ["=", "0/2"], ["=", "1/3"]]


@pytest.mark.parametrize("beside", [True, False])
@pytest.mark.parametrize("width", [40, 80, 110, 300])
def test_columns_stand_below_their_titles(beside: bool, width: int) -> None:
    lines = PairLines(compared(story(1, 2), story(1, 3)), beside=beside)
    header = lines.header(width)
    for line in all_lines(lines, width):
        assert cell_len(line.text.partition("│")[0]) <= width or not beside
        if beside:
            assert f" {line.text}".index("│") == header.index("│")


def test_differences_alone() -> None:
    lines = PairLines(compared(story(1, 2, 3), story(1, 9, 3)), beside=True, differing=True)
    assert [lines.place(at) for at in range(len(lines))] == [3]
    assert lines.shows(3)
    assert not lines.shows(2)
    assert len(PairLines(compared(story(1), story(1)), beside=True, differing=True)) == 0


def test_housekeeping_is_shown_where_it_differs_or_is_asked_for() -> None:
    a, b = Story(), Story()
    a.iteration(1)
    b.iteration(1)
    same = compared(a, b)
    assert len(PairLines(same, beside=True)) < len(PairLines(same, beside=True, every=True))
    assert len(PairLines(same, beside=True, every=True)) == len(same.comparison.messages)
    b.iteration(2)
    other = PairLines(compared(a, b), beside=True)
    told = [line.mark for line in all_lines(other)]
    assert told.count(">") == compared(a, b).comparison.different


def test_what_does_not_count_has_a_mark_of_its_own() -> None:
    a, b = Story(), Story()
    a.ask("app.f", 0, 1, takes=10)
    b.ask("app.f", 0, 1, takes=9_000_000)
    lines = all_lines(PairLines(compared(a, b), beside=True))
    assert [(line.mark, line.look) for line in lines] == [("~", "dim"), (" ", "")]


def test_what_is_ignored_is_no_difference() -> None:
    pair = compared(story(1, 2), story(1), Rules(ignore=frozenset({"missing"})))
    assert [line.mark for line in all_lines(PairLines(pair, beside=True))] == [" "] * 4


def test_captured_text_is_inert() -> None:
    name = "app.\x1b[31mf\u202e[bold]x"
    pair = compared(story(1, name=name), story(2, name=name))
    for beside in (True, False):
        lines = PairLines(pair, beside=beside)
        text = "\n".join(line.text for line in all_lines(lines, 300))
        assert visible(text)
        assert "[bold]x" in text
        assert r"\x1b[31m" in text


def test_text_is_found_in_either_run() -> None:
    lines = PairLines(compared(story(1234), story(5678)), beside=True)
    assert ["1234" in text for text in lines.texts([0, 1])] == [False, True]
    assert ["5678" in text for text in lines.texts([0, 1])] == [False, True]


def test_only_lines_on_the_screen_are_made() -> None:
    a, b = Story(), Story()
    for number in range(3000):
        a.ask("app.f", number, 1)
        b.ask("app.f", number, 1)
    pair = compared(a, b)
    assert not pair.housekeeping.any()
    read: list[int] = []

    class Watched(list):  # type: ignore[type-arg]
        """Messages that say which of them were looked at."""

        def __getitem__(self, index: int) -> object:  # type: ignore[override]
            read.append(index)
            return super().__getitem__(index)

    for run in pair.runs:
        run.messages = Watched(run.messages)
    for beside in (True, False):
        lines = PairLines(pair, beside=beside)
        for at in range(2000, 2030):
            lines.line(at, WIDTH)
        assert set(read) == set(range(2000, 2030))

"""What is said of one message of two runs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from rpcinspect.browse.pair_details import PairDetails, wrapped
from rpcinspect.rpc.command import PythonResp
from rpcinspect.views.diff.table import show_diff
from tests.browse.paired import compared
from tests.cli.runner import visible
from tests.diff.stories import FAILURE, Story
from tests.views.opened import file_console


def story(result: int, *, more: int = 0, name: str = "app.f") -> Story:
    """A call, then others whose arguments follow from what it gave."""
    made = Story()
    made.ask(name, 1, result)
    for n in range(more):
        made.ask("app.tell", 1000 * result + n)
    return made


def texts(details: PairDetails, width: int = 200) -> list[str]:
    return [details.line(at, width).text for at in range(len(details))]


def words(lines: list[str]) -> str:
    return " ".join(" ".join(lines).split())


def test_the_first_difference_is_told_as_diff_tells_it() -> None:
    pair = compared(story(1, more=1), story(2, more=1))
    told = texts(PairDetails(pair, 1, 200))
    console, out = file_console()
    show_diff(pair.comparison, pair.runs, console)
    diff = out.getvalue().splitlines()
    assert told[0] == diff[diff.index("") + 1]
    assert told[1] == "  value  1 → 2"
    assert [line for line in diff if line.startswith("likely ")] == [told[2]]
    assert told[3] in diff


def test_facts_of_both_stand_beside_each_other() -> None:
    details = PairDetails(compared(story(1), story(2)), 1, 120)
    lines = [details.line(at, 120) for at in range(len(details))]
    start = next(at for at, line in enumerate(lines) if "a #1" in line.text)
    facts = [tuple(part.strip() for part in line.text.split("│")) for line in lines[start:]]
    assert facts[0] == ("a #1", "b #1")
    assert facts[1] == ("value  1", "2")
    assert ("type   PYTHON_RET", "PYTHON_RET") in facts
    assert [line.mark for line in lines[start:]].count("!") == 1
    assert (lines[start + 1].mark, lines[start + 1].look) == ("!", "changed")


def test_facts_of_both_stand_below_each_other_where_there_is_no_room() -> None:
    details = PairDetails(compared(story(1), story(2)), 1, 60)
    told = [line.strip() for line in texts(details)]
    at = told.index("value")
    assert told[at - 1 : at + 3] == ["a #1 and b #1", "value", "a 1", "b 2"]
    assert "type: PYTHON_RET" in told
    assert details.line(at, 60).mark == "!"


def test_a_difference_leads_to_the_one_that_it_follows_from() -> None:
    pair = compared(story(1, more=1), story(2, more=1))
    details = PairDetails(pair, 2, 200)
    targets = {details.target(at): texts(details)[at] for at in range(len(details))}
    assert targets[1].startswith("follows from #1, w1 → w0, PYTHON_RET answers #0 app.f")
    assert set(targets) == {None, 1}


def test_a_message_that_one_run_lacks() -> None:
    longer, shorter = story(1, more=1), story(1)
    for pair, lacks, has in (((longer, shorter), "b", "a"), ((shorter, longer), "a", "b")):
        told = texts(PairDetails(compared(*pair), 2, 120))
        assert f"{has} #2, which {lacks} lacks" in told
        assert " args[0]: 1000" in told
        assert f"({lacks} lacks the message)" in words(told)


def test_an_error_of_several_lines() -> None:
    b = Story()
    b.ask("app.f", 1, PythonResp(FAILURE))
    told = words(texts(PairDetails(compared(story(1), b), 1, 120)))
    assert "first difference: #1" in told
    assert "oh no" in told


def test_a_message_in_which_nothing_differs() -> None:
    told = texts(PairDetails(compared(story(1), story(2)), 0, 120))
    assert told[:2] == ["#0, w0 → w1, PYTHON_CALL app.f", "  no difference"]


def test_a_difference_that_does_not_count() -> None:
    a, b = Story(), Story()
    a.ask("app.f", 0, 1, takes=10)
    b.ask("app.f", 0, 1, takes=9_000_000)
    told = texts(PairDetails(compared(a, b), 0, 120))
    assert told[1] == "  latency  10 ns → 9 ms"
    assert told[2] == "  nothing of it makes the runs different"


def test_without_a_place_the_summary_of_diff_is_shown() -> None:
    assert "the same: 2 messages of both runs" in texts(PairDetails(compared(story(1), story(1)), None, 120))
    other = PairDetails(compared(story(1), story(2)), None, 120)
    assert "different: 1 of 2 messages" in texts(other)
    assert {other.target(at) for at in range(len(other))} == {None, 1}
    b = Story()
    b.ask("app.g", 2)
    unrelated = compared(story(1), b)
    assert "unrelated: the two runs share no similar call" in texts(PairDetails(unrelated, None, 120))


@pytest.mark.parametrize("width", [21, 40, 80, 120, 300])
def test_lines_fit(width: int) -> None:
    pair = compared(story(1, more=1), story(2, more=1))
    for place in (None, *range(len(pair.comparison.messages))):
        for line in texts(PairDetails(pair, place, width), width):
            assert cell_len(line) < width


def test_captured_text_is_inert() -> None:
    name = "app.\x1b[31mf\u202e[bold]x" + "y" * 50_000
    pair = compared(story(1, name=name), story(2, name=name))
    for width in (60, 120):
        details = [PairDetails(pair, place, width) for place in (None, 0, 1)]
        text = "\n".join(line for one in details for line in texts(one))
        assert visible(text)
        assert "[bold]x" in text
        assert len(text) < 60_000


@given(st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "Zs"))), st.integers(2, 40))
def test_wrapping_loses_nothing_but_spaces(text: str, width: int) -> None:
    lines = wrapped(text, width)
    whole = "".join("".join(lines).split())
    if lines[-1] == "…":
        assert "".join(text.split()).startswith(whole[:-1])
    else:
        assert whole == "".join(text.split())
    assert all(cell_len(line) <= width for line in lines)

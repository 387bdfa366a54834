"""Comparisons for people."""

from __future__ import annotations

from rpcinspect.diff.compare import compare_runs
from rpcinspect.equality.rules import Rules
from rpcinspect.views.diff.table import show_diff
from tests.cli.runner import visible
from tests.diff.stories import Story
from tests.views.opened import file_console


def shown(a: Story, b: Story, *, show_all: bool = False, **rules: bool) -> list[str]:
    runs = a.opened(), b.opened()
    comparison = compare_runs(*runs, Rules(**rules))  # type: ignore[arg-type]
    console, out = file_console()
    show_diff(comparison, runs, console, show_all=show_all)
    assert visible(out.getvalue())
    return out.getvalue().splitlines()


def story(result: int, *, more: int = 0, name: str = "app.f") -> Story:
    made = Story()
    made.ask(name, 1, result)
    for n in range(more):
        made.ask("app.tell", 1000 * result + n)
    return made


def test_the_same() -> None:
    assert shown(story(1), story(1))[2:] == ["the same: 2 messages of both runs"]


def test_the_first_difference_in_full() -> None:
    likely = "app.f changed, uses other state, or is random"
    assert shown(story(1, more=1), story(2, more=1))[2:] == [
        "different: 2 of 4 messages",
        "",
        "first difference: #1, w1 → w0, PYTHON_RET answers #0 app.f",
        "  a #1  = 1",
        "  b #1  = 2",
        "  value  1 → 2",
        f"likely function: w1 gives a different result for the same call: {likely}",
        "1 other message is different: it follows from this one",
        "differences: 1 value, 1 argument",
        "--all lists all 2 differences",
    ]


def test_a_message_that_one_run_lacks() -> None:
    lines = shown(story(1), story(1, more=1))
    assert "first difference: b#2, w0 → w1, PYTHON_CALL app.tell" in lines
    assert "  extra  (a lacks the message)" in lines


def test_all() -> None:
    lines = shown(story(1, more=2), story(2, more=2), show_all=True)
    assert lines[0] == "      #1  w1 → w0  PYTHON_RET app.f  value  1 → 2"
    assert lines[1].endswith("argument  args[0]  1000 → 2000  follows #1")
    assert lines.index("") == 3


def test_it_is_a_screen_or_less_however_much_differs() -> None:
    assert len(shown(story(1, more=500), story(2, more=400))) <= 24


def test_order_is_information() -> None:
    a, b = Story(), Story()
    for made, order in ((a, (1, 2)), (b, (2, 1))):
        for argument in order:
            made.ask(f"app.f{argument}", argument)
    lines = shown(a, b)
    assert lines[2] == "the same: 4 messages of both runs"
    assert lines[3].startswith("not counted: a#0/b#2 w0 → w1 app.f1  reordered  (2 calls come in ")
    assert shown(a, b, strict=True)[2] == "different: 1 of 4 messages"


def test_notes() -> None:
    a, b = Story(), Story()
    a.ask("app.f", callee=1)
    b.ask("app.f", callee=2)
    assert "note: if w1 of a is w2 of b, --rename w1=w2 says so" in shown(a, b)

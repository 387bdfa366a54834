"""Rows and folds of two runs: nothing is lost on the way, whatever there is no room for is counted."""

from __future__ import annotations

from collections import Counter

import pytest

from rpcinspect.diff.compare import compare_runs
from rpcinspect.diff.model import Comparison
from rpcinspect.equality.rules import Rules
from rpcinspect.views.diff.rows import MIN_FOLDED, Differing, DiffRows, rows_of
from tests.diff.stories import Story


def compared(a: Story, b: Story, max_rows: int = 1000, **rules: object) -> tuple[Comparison, DiffRows]:
    runs = a.opened(), b.opened()
    comparison = compare_runs(*runs, Rules(**rules))  # type: ignore[arg-type]
    return comparison, rows_of(comparison, runs, max_rows)


def story(*results: int, more: int = 0) -> Story:
    made = Story()
    for result in results:
        made.ask("app.f", 1, result)
    for n in range(more):
        made.ask("app.tell", n)
    return made


def codes_in(text: str | None) -> Counter[str]:
    """`3 value, 1 ulp` → counts."""
    pairs = [part.split(" ") for part in text.split(", ")] if text else []
    return Counter({code: int(count.replace(",", "")) for count, code in pairs})


def check_nothing_is_lost(comparison: Comparison, rows: DiffRows) -> None:
    """Every message is in a row or a fold, in order; every difference is shown or counted."""
    place = 0
    found: Counter[str] = Counter()
    for item in rows.items:
        if item.folded:
            assert item.count == len(item.rows) + item.left_out
            found += codes_in(item.codes)
            place += item.count
        else:
            assert item.place == place
            found += Counter(line.code for line in item.lines) + codes_in(item.more)
            place += 1
    assert place == len(comparison.messages)
    assert found == comparison.counts
    hidden = sum((codes_in(item.codes) for item in rows.items if item.folded), Counter())
    assert codes_in(rows.hidden_codes) == hidden
    assert rows.shown == len(rows.by_place())


def test_rows_stand_between_folds() -> None:
    comparison, rows = compared(story(1, 2, 3, more=5), story(1, 9, 3, more=5))
    check_nothing_is_lost(comparison, rows)
    before, row, after = rows.items
    assert before.folded
    assert isinstance(row, Differing)
    assert after.folded
    assert (before.count, before.first, before.last, before.codes) == (3, "#0", "#2", None)
    assert (row.place, row.kind, row.brief.function) == (3, "parts", "app.f")
    assert row.answers is not None
    assert (row.answers.text, row.answers.anchor) == ("#2", None)
    assert row.a is not None
    assert row.b is not None
    assert (row.a.text, row.b.text) == ("= 2", "= 9")
    (line,) = row.lines
    assert (line.code, line.path, line.values, line.counts) == ("value", "", ("2", "9"), True)
    assert after.count == 12


def test_what_follows_is_linked() -> None:
    a, b = Story(), Story()
    for made, result in ((a, 1), (b, 2)):
        made.ask("app.f", 1, result)
        made.ask("app.tell", result)
    _, rows = compared(a, b)
    row = rows.by_place()[2]
    assert row.kind == "follows"
    assert row.cause is not None
    assert (row.cause.text, row.cause.anchor) == ("#1", "m1")


@pytest.mark.parametrize("turned", [False, True])
def test_a_gap_where_a_run_has_no_message(turned: bool) -> None:
    stories = [story(1), story(1, more=1)]
    comparison, rows = compared(*(stories[::-1] if turned else stories))
    check_nothing_is_lost(comparison, rows)
    row = rows.by_place()[2]
    gap, there = (row.b, row.a) if turned else (row.a, row.b)
    assert gap is None
    assert there is not None
    (line,) = row.lines
    assert (line.code, line.values) == ("missing" if turned else "extra", None)
    assert line.notes == ("b lacks the message" if turned else "a lacks the message",)


def test_a_latency_has_units() -> None:
    a, b = Story(), Story()
    for made, takes in ((a, 2_000_000), (b, 9_000_000)):
        for _ in range(3):
            made.ask("app.f", 1, 1, takes=takes)
    _, rows = compared(a, b)
    (line,) = rows.by_place()[0].lines
    assert (line.code, line.path, line.values) == ("latency", "median", ("2 ms", "9 ms"))


def test_what_does_not_count_gives_way() -> None:
    a, b = Story(), Story()
    for made, order in ((a, (1, 2)), (b, (2, 1))):
        for argument in order:
            made.ask(f"app.f{argument}", argument)
        for n in range(6):
            made.ask("app.g", n, n if made is a else n + 1)
    comparison, rows = compared(a, b)
    check_nothing_is_lost(comparison, rows)
    assert rows.by_place()[0].kind == "information"
    comparison, rows = compared(a, b, max_rows=3)
    check_nothing_is_lost(comparison, rows)
    assert [row.kind for row in rows.by_place().values()] == ["parts"] * 3
    assert rows.hidden == len({found.message for found in comparison.found}) - 3
    comparison, rows = compared(a, b, strict=True)
    assert rows.by_place()[0].kind == "order"


def test_the_first_difference_has_a_row_in_any_case() -> None:
    comparison, rows = compared(story(*range(20)), story(*range(1, 21)), max_rows=0)
    check_nothing_is_lost(comparison, rows)
    assert comparison.first is not None
    assert list(rows.by_place()) == [comparison.found[comparison.first.found].message]


def test_folds_are_bounded() -> None:
    comparison, rows = compared(story(1, more=1500), story(1, more=1500))
    check_nothing_is_lost(comparison, rows)
    (fold,) = rows.items
    assert fold.folded
    assert MIN_FOLDED < len(fold.rows) < fold.count == 3002

"""What the views of a comparison have in common."""

from __future__ import annotations

from rpcinspect.equality.difference import CODES
from rpcinspect.views.diff_words import MEANINGS, numbers, verdict_line
from tests.diff.stories import Story, diff


def test_every_code_has_a_meaning() -> None:
    assert MEANINGS.keys() == CODES


def test_numbers_and_verdict() -> None:
    a, b = Story(), Story()
    a.ask("app.f")
    b.ask("app.f")
    assert verdict_line(diff(a, b)) == "the same: 2 messages of both runs"
    b.ask("app.more")
    comparison = diff(a, b)
    assert verdict_line(comparison) == "different: 2 of 4 messages"
    assert [numbers(message) for message in comparison.messages] == ["#0", "#1", "b#2", "b#3"]
    assert numbers(diff(b, a).messages[2]) == "a#2"
    assert verdict_line(diff(Story(), Story())) == "the same: neither run has a message"

"""What the views of a comparison have in common."""

from __future__ import annotations

import pytest

from rpcinspect.equality.rules import Rules
from rpcinspect.views.diff.words import MEANINGS, following, numbers, tolerance, verdict_line
from tests.diff.stories import Story, diff
from tests.equality.codes import CODES


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
    b = Story()
    b.ask("app.other", 5)
    assert verdict_line(diff(a, b)) == "unrelated: the two runs share no similar call"


@pytest.mark.parametrize(
    ("more", "alike", "told"),
    [
        (0, False, "no other message is different"),
        (1, False, "1 other message is different: it follows from this one"),
        (2, False, "2 other messages are different: all follow from this one"),
        (1, True, "2 other messages are different: 1 follows from this one, 1 differs in the same way"),
    ],
)
def test_what_follows(more: int, alike: bool, told: str) -> None:
    stories = []
    for result in (1, 2):
        made = Story()
        made.ask("app.f", 1, result, caller=0, callee=0)
        if alike:
            made.ask("app.f", 1, result, caller=1, callee=1)
        for n in range(more):
            made.ask("app.tell", 10 * result + n, caller=0, callee=2)
        stories.append(made)
    assert following(diff(*stories)) == told


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        (Rules(), None),
        (Rules(by_dtype=True), "floats may differ as much as torch.testing allows"),
        (Rules(rtol=0.5), "floats may differ by torch's atol + 0.5 × the smaller of the two"),
        (Rules(rtol=0.5, atol=0.0), "floats may differ by 0 + 0.5 × the smaller of the two"),
    ],
)
def test_tolerances(rules: Rules, told: str | None) -> None:
    assert tolerance(rules) == told

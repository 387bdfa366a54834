"""Calls that are made once more."""

from __future__ import annotations

from rpcinspect.diff.repeated import repeated
from tests.diff.stories import Story


def asked(*arguments: int, context: int | None = None) -> Story:
    story = Story()
    for argument in arguments:
        story.ask("app.f", argument, context=context)
    return story


def test_before_or_after_the_one_that_has_a_partner() -> None:
    run = asked(1, 2, 2, 2, 3).run()
    assert repeated(run, {0, 4, 8}) == {2, 6}


def test_not_where_something_else_was_said_between() -> None:
    run = asked(2, 1, 2).run()
    assert repeated(run, {0, 2}) == set()


def test_not_in_another_context() -> None:
    story = asked(1, context=0)
    story.ask("app.f", 1, context=1)
    assert repeated(story.run(), {0}) == set()


def test_nothing_where_all_have_partners() -> None:
    assert repeated(asked(1, 1).run(), {0, 2}) == set()

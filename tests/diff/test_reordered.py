"""Calls that have changed places: only where they have an order at all."""

from __future__ import annotations

from rpcinspect.diff.align import align_runs
from rpcinspect.diff.order import changed_places, repeated
from tests.diff.stories import Story


def moved(a: Story, b: Story) -> list[list[tuple[int, int]]]:
    runs = a.run(), b.run()
    return changed_places(*runs, align_runs(*runs).pairs)


def sequence(*order: int, gap: int = 12) -> Story:
    story = Story()
    for n, argument in enumerate(order):
        story.ask("app.f", argument, at=n * gap)
    return story


def test_one_after_the_other() -> None:
    assert moved(sequence(1, 2, 3), sequence(1, 2, 3)) == []
    assert moved(sequence(1, 2, 3, 4), sequence(1, 3, 2, 4)) == [[(2, 4), (4, 2)]]


def test_overlapping_calls_have_no_order() -> None:
    assert moved(sequence(1, 2, 3, 4, gap=4), sequence(1, 3, 2, 4, gap=4)) == []
    assert moved(sequence(1, 2, 3, 4, gap=4), sequence(1, 3, 2, 4)) == []
    assert moved(sequence(1, 2, 3, 4), sequence(1, 3, 2, 4, gap=4)) == []


def test_groups_are_as_small_as_can_be_and_the_same_the_other_way_round() -> None:
    a, b = sequence(1, 2, 3, 4, 5, 6), sequence(2, 1, 3, 6, 4, 5)
    found = moved(a, b)
    assert [len(group) for group in found] == [2, 3]
    back = [sorted((j, i) for j, i in group) for group in moved(b, a)]
    assert sorted(back) == sorted(sorted((b, a) for a, b in group) for group in found)


def test_calls_of_two_workers_have_no_order() -> None:
    stories = []
    for order in ((0, 1), (1, 0)):
        story = Story()
        for caller in order:
            story.ask("app.f", caller, caller=caller, callee=2)
        stories.append(story)
    assert moved(*stories) == []


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

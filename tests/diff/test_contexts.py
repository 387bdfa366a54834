"""Which autograd context is which: by what all their calls say, whatever their ids and order."""

from __future__ import annotations

from collections.abc import Sequence

from rpcinspect.diff.contexts import ContextGroups, match_contexts
from rpcinspect.diff.keys import Keys
from tests.diff.stories import Story

Context = tuple[int, Sequence[int], int]
"""Its id, the arguments of its calls, when it begins."""


def story(*contexts: Context) -> Story:
    made = Story()
    for number, arguments, at in contexts:
        for n, argument in enumerate(arguments):
            made.ask("app.f", argument, at=at + 12 * n, context=number)
    return made


def matched(a: Story, b: Story) -> dict[int, int]:
    """Context of the first run → that of the second."""
    groups = [ContextGroups(run, Keys(run)) for run in (a.run(), b.run())]
    match_contexts(*groups)
    others = {number: context for (_, context), number in groups[1].numbers.items()}
    return {context: others[number] for (_, context), number in groups[0].numbers.items()}


def test_by_what_they_say() -> None:
    a = story((0, (1, 2), 0), (1, (3, 4), 50), (2, (5, 6), 100))
    b = story((7, (5, 6), 0), (8, (1, 2), 50), (9, (3, 4), 100))
    assert matched(a, b) == {0: 8, 1: 9, 2: 7}
    assert matched(b, a) == {8: 0, 9: 1, 7: 2}


def test_calls_of_a_context_may_come_in_any_order() -> None:
    assert matched(story((0, (1, 2), 0), (1, (2, 2), 50)), story((0, (2, 2), 0), (1, (2, 1), 50))) == {
        0: 1,
        1: 0,
    }


def test_one_call_is_another() -> None:
    a = story((0, (1, 2, 3), 0), (1, (4, 5, 6), 50))
    b = story((5, (4, 5, 9), 0), (6, (1, 2, 3), 50))
    assert matched(a, b) == {0: 6, 1: 5}


def test_an_iteration_more() -> None:
    a = story((0, (1, 2), 0), (1, (3, 4), 50))
    b = story((0, (9, 8), 0), (1, (1, 2), 50), (2, (3, 4), 100))
    assert matched(a, b) == {0: 1, 1: 2}
    assert matched(b, a) == {1: 0, 2: 1}


def test_equal_ones_have_their_order() -> None:
    a = story((0, (1,), 0), (1, (1,), 50))
    b = story((4, (1,), 0), (3, (1,), 50))
    assert matched(a, b) == {0: 4, 1: 3}


def test_nothing_in_common_but_the_order() -> None:
    assert matched(story((0, (1,), 0), (1, (2,), 50)), story((0, (3,), 0), (1, (4,), 50))) == {0: 0, 1: 1}


def test_those_of_other_workers_are_others() -> None:
    a, b = Story(), Story()
    a.ask("app.f", 1, context=0)
    b.ask("app.f", 1, context=0, caller=2)
    assert matched(a, b) == {}

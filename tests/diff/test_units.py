"""Units: contexts, and calls of a worker's own with what they caused."""

from __future__ import annotations

from rpcinspect.diff.units import units_of
from tests.diff.stories import Story


def test_a_context_is_a_unit_and_so_is_a_call_outside() -> None:
    story = Story()
    story.iteration(1)
    story.ask("app.f")
    story.ask("app.f")
    story.iteration(2)
    units = units_of(story.run())
    assert [len(unit.calls) for unit in units] == [2, 1, 1, 2]
    assert [len(unit.others) for unit in units] == [2, 0, 0, 2]
    assert {unit.owner for unit in units} == {"w0"}


def test_what_is_sent_while_serving_belongs_to_what_is_served() -> None:
    story = Story()
    story.ask("app.outer", takes=50, at=0)
    story.ask("app.inner", caller=1, callee=2, at=10)
    (unit,) = units_of(story.run())
    assert len(unit.calls) == 2


def test_a_context_inside_a_call_is_a_unit_inside_it() -> None:
    story = Story()
    story.ask("app.train", takes=90, at=0)
    story.ask("app.inner", caller=1, callee=2, at=10, context=1 << 48)
    outer, inner = units_of(story.run())
    assert (outer.parent, inner.parent) == (None, outer.calls[0])
    assert inner.owner == "w1"


def test_looks() -> None:
    story = Story()
    story.iteration(1)
    story.iteration(1)
    story.iteration(2)
    run = story.run()
    one, same, other = units_of(run)
    assert one.said(run) == same.said(run) != other.said(run)
    assert one.shape(run) == other.shape(run)
    assert one.begin(run) != other.begin(run)
    assert one.kind(run) == other.kind(run)


def test_only_gradients_have_no_first_call() -> None:
    story = Story()
    story.iteration(1, calls=0)
    (unit,) = units_of(story.run())
    assert (unit.first(), unit.kind(story.run()), unit.begin(story.run())) == (None, None, None)

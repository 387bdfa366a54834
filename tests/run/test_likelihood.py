"""Which of several possible causes is taken, where one must be."""

from __future__ import annotations

from rpcinspect.run.causes import Doubt
from tests.replayer.talks import Workers
from tests.run.told import ask


def doubt(workers: Workers, index: int) -> Doubt:
    return workers.run().causes.doubts[index]


def two(end: int) -> Workers:
    """w1 serves two requests, answered at 40 and 60, and calls w2 until then."""
    workers = Workers(3)
    workers.call(0, 1, 10, 60, "app.a")
    workers.call(2, 1, 12, 40, "app.a")
    workers.call(1, 2, 20, end, "app.b")
    return workers


def test_what_waited_comes_first() -> None:
    assert doubt(two(50), 2).parents == (0, 1)


def test_what_came_last_comes_first_among_those_that_waited() -> None:
    assert doubt(two(30), 2).parents == (1, 0)


def test_what_nobody_waited_for_is_rather_its_senders_own() -> None:
    assert doubt(two(90), 2).decided is None


def test_what_has_the_calls_values_comes_first() -> None:
    workers = Workers(3)
    ask(workers, (0, 1), (10, 60), "a", 5)
    ask(workers, (2, 1), (12, 70), "a", 6)
    ask(workers, (1, 2), (20, 30), "b", 5)
    assert doubt(workers, 2).parents == (0, 1)


def test_a_driver_that_serves_is_taken_for_nested() -> None:
    """w1 acts of its own, and once while it serves w0."""
    workers = Workers(3)
    workers.call(1, 2, 1, 5, "app.own")
    workers.call(0, 1, 10, 60, "app.a")
    workers.call(1, 2, 20, 50, "app.b")
    assert doubt(workers, 3).decided == 2


def test_what_looks_like_calls_of_its_own_elsewhere_is_its_own() -> None:
    workers = Workers(3)
    workers.call(0, 2, 1, 5, "app.own")
    workers.call(1, 2, 6, 9, "app.own")
    workers.call(0, 1, 10, 60, "app.served")
    workers.call(1, 2, 20, 50, "app.own")
    (only,) = workers.run().causes.doubts.values()
    assert only.decided is None
    assert only.own_likely


def test_calls_that_all_fall_into_others_are_judged_by_those_that_end_later() -> None:
    """Everybody calls everybody; one call happens to end before what is served."""
    workers = Workers(3)
    workers.call(2, 0, 5, 15, "app.begin")
    workers.call(0, 1, 10, 100, "app.train")
    workers.call(1, 2, 20, 130, "app.train")
    workers.call(2, 0, 30, 120, "app.train")
    causes = workers.run().causes
    assert causes.decided().parents == {}
    assert [one.decided for one in causes.doubts.values()] == [None, None, None]

"""Which calls a worker waited for."""

from __future__ import annotations

from rpcinspect.checks.turns import Turn, chains, paced, turns, what_of
from rpcinspect.session.model import NONE
from tests.replayer.talks import Workers


def of(workers: Workers, caller: str = "w0") -> list[Turn]:
    session = workers.finish()
    rows = range(len(session.messages))
    return turns(session, set(rows)).get((0, caller), [])


def test_a_loop_of_calls_is_one_chain() -> None:
    workers = Workers(3)
    for number, callee in enumerate((1, 2, 1)):
        workers.call(0, callee, number * 100, number * 100 + 90)
    first, second, third = of(workers)
    assert (first.goes_on, second.goes_on, third.goes_on) == (True, True, False)
    assert (first.after, second.after, third.after) == (NONE, first.row, second.row)
    assert list(chains([first, second, third])) == [[first, second, third]]


def test_a_chain_at_a_pace_of_its_own_is_none() -> None:
    """The same calls, sent every 100 ns, and each sent 5 ns after the answer before."""
    for keeps_pace in (True, False):
        workers, at = Workers(2), 0
        for took in (85, 95, 90, 83, 97, 88, 92):
            workers.call(0, 1, at, at + took)
            at += 100 if keeps_pace else took + 5
        its = of(workers)
        assert all(turn.goes_on for turn in its[:-1])
        assert paced(its[:-1]) == keeps_pace
        assert bool(list(chains(its))) == (not keeps_pace)


def test_whoever_works_in_between_ends_a_chain() -> None:
    workers = Workers(2)
    workers.call(0, 1, 0, 90)
    workers.call(0, 1, 190, 280)
    its = of(workers)
    assert [turn.goes_on for turn in its] == [False, False]
    assert list(chains(its)) == []


def test_calls_that_overlap_are_no_turns() -> None:
    workers = Workers(3)
    workers.call(0, 1, 0, 90)
    workers.call(0, 2, 10, 100)
    assert of(workers) == []


def test_a_caller_that_serves_somebody_meanwhile_may_have_two_threads() -> None:
    workers = Workers(3)
    workers.call(0, 1, 0, 90)
    workers.call(2, 0, 50, 300)
    workers.call(0, 2, 100, 190)
    assert [turn.after for turn in of(workers)] == [NONE]


def test_an_answer_may_come_next() -> None:
    """A worker that waits for a call in a function answers after it."""
    workers = Workers(3)
    workers.call(2, 0, 0, 110)
    workers.call(0, 1, 10, 100)
    [turn] = of(workers)
    assert turn.goes_on


def test_calls_that_are_not_wanted_end_a_chain() -> None:
    workers = Workers(2)
    for number in range(3):
        workers.call(0, 1, number * 100, number * 100 + 90)
    session = workers.finish()
    wanted = {row for row in range(len(session.messages)) if session.index[row] != 2}
    its = turns(session, wanted)[0, "w0"]
    assert len(its) == 2
    assert list(chains(its)) == []


def test_names() -> None:
    workers = Workers(2)
    workers.call(0, 1, 0, 90, "app.f")
    workers.call(0, 1, 100, 190, "aten::add")
    session = workers.finish()
    assert [what_of(session, row) for row in (0, 2)] == ["app.f", "aten::add"]

"""What a time is of a run, and whether it is much."""

from __future__ import annotations

from rpcinspect.checks.costs import Shares
from tests.replayer.talks import Workers

MS = 1_000_000


def of(run_ms: int) -> Shares:
    workers = Workers(2)
    workers.call(0, 1, 0, run_ms * MS)
    return Shares(workers.finish())


def test_a_twentieth_of_the_run_is_much() -> None:
    shares = of(1000)
    assert shares.worth_telling(0, 51 * MS)
    assert not shares.worth_telling(0, 49 * MS)
    assert shares.of(0, 250 * MS) == "25 % of the run"


def test_what_is_short_is_never_much() -> None:
    assert not of(15).worth_telling(0, 9 * MS)
    assert of(15).worth_telling(0, 10 * MS)


def test_no_messages() -> None:
    assert not Shares(Workers(1).finish()).worth_telling(0, 0)

"""Ids and device maps of a session's workers, from what a capture tells."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rpcinspect.errors import ReplayError
from rpcinspect.replay.planning.roster import worker_ids
from rpcinspect.replay.planning.sessions import Cast
from rpcinspect.run.run import Run
from tests.replay.talks import Workers
from tests.session.records import entry

CAST = Cast(0, ("w0",), ("w1", "w2"), "a test")


def test_workers_without_an_id_get_free_ones() -> None:
    workers = Workers(3)
    workers.call(0, 1, 0, 10)
    session, _ = workers.heard()
    ids = worker_ids(session, CAST, workers.calls())
    assert set(ids) == {"w0", "w1", "w2"}
    assert sorted(ids.values()) == [0, 1, 2]


def test_ids_are_learned_from_the_envelopes_of_requests_and_answers() -> None:
    workers = Workers(3)
    workers.call(1, 2, 0, 10, context=(1 << 48, 1), grads=(1, 1))
    session, _ = workers.heard()
    assert worker_ids(session, CAST, workers.calls()) == {"w0": 0, "w1": 1, "w2": 2}


def test_the_store_tells_ids() -> None:
    workers = Workers(2)
    workers.call(0, 1, 0, 10)
    session = workers.finish(entry("names/5", "w0"), entry("names/3", "w1"))
    calls = Run(session, workers.records).exchanges.calls
    assert worker_ids(session, Cast(0, ("w0",), ("w1",), ""), calls) == {"w0": 5, "w1": 3}


def test_free_ids_are_none_of_the_captured_ones() -> None:
    workers = Workers(3)
    workers.call(0, 1, 0, 10)
    session = workers.finish(entry("names/0", "w2"))
    calls = Run(session, workers.records).exchanges.calls
    ids = worker_ids(session, CAST, calls)
    assert ids["w2"] == 0
    assert sorted(ids.values()) == [0, 1, 2]


def test_two_workers_with_one_id_can_not_be_played() -> None:
    """They would be one worker for the live ones."""
    workers = Workers(3)
    workers.call(0, 1, 0, 10)
    session = workers.finish(entry("names/4", "w0"), entry("names/7", "w1"))
    twins = replace(session, workers=tuple(replace(worker, id=4) for worker in session.workers))
    with pytest.raises(ReplayError, match=r"have the same id 4: w0, w1"):
        worker_ids(twins, Cast(0, ("w0",), ("w1",), ""), workers.calls())


def test_other_jobs_tell_nothing() -> None:
    workers = Workers(2)
    workers.call(0, 1, 0, 10)
    session = workers.finish(entry("names/5", "w0"), entry("names/3", "w1"))
    ids = worker_ids(session, Cast(1, ("w0",), ("w1",), ""), ())
    assert ids == {"w0": 0, "w1": 1}

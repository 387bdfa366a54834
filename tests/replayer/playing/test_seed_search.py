"""Seeds that are looked for: found where a job's workers were seeded, and never where nothing is random.

The truth of `draws` is in captures/common.py, which seeds every worker with 1000 and its rank.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rpcinspect.replayer.options import ReplayOptions
from rpcinspect.replayer.playing.outcome import SessionOutcome, StepOutcome
from rpcinspect.replayer.playing.seed_search import search
from rpcinspect.replayer.workers.seeds import Seeds
from rpcinspect.replayer.workers.workers import Workers
from rpcinspect.run.run import RunModel
from tests.replayer.outcomes import planned, session_of
from tests.replayer.test_replayer import replayed
from tests.truth import capture_of, workload

pytestmark = pytest.mark.usefixtures("nothing_left")


def truth(name: str, function: str) -> list[int]:
    """Requests of a job that call a function."""
    return [call.request["index"] for call in workload(name).calls() if call.event["function"] == function]


def test_each_worker_has_its_own(workers: Workers) -> None:
    outcome, made = replayed(
        capture_of("draws"), options=ReplayOptions(search_seeds=range(1000, 1004)), workers=workers
    )
    (found,) = outcome.searches
    assert {one.worker: one.seed for one in found.found} == {"worker1": 1001, "worker2": 1002}
    explains = {one.worker: set(one.explains) for one in found.found}
    assert explains["worker2"] == set(truth("draws", "draws.draw"))
    assert explains["worker1"] > set(truth("draws", "draws.mask"))  # and the gradient behind it
    assert (found.tried, found.missing, found.failure) == (3, {}, None)
    assert made.verdict == "identical"


def test_no_seed_explains_another_program(workers: Workers) -> None:
    """The captured mask had a generator of its own, seeded by what the job did then and does not do now."""
    outcome, made = replayed(
        capture_of("pairs/dropout_seed"),
        options=ReplayOptions(search_seeds=range(1100, 1102), seeds=Seeds(everybody=5)),
        workers=workers,
    )
    (found,) = outcome.searches
    assert (found.found, found.tried) == ((), 2)
    assert "worker1" in found.missing
    assert made.verdict == "different"


def test_nothing_to_look_for(workers: Workers) -> None:
    outcome, made = replayed(
        capture_of("basic_chain"), options=ReplayOptions(search_seeds=range(100)), workers=workers
    )
    (found,) = outcome.searches
    assert (found.found, found.tried, found.missing) == ((), 0, {})
    assert made.verdict == "identical"


# --- made up workers: what they answer to a seed ---


class Scripted:
    """`draws`, in which a seed decides whether the first draw of worker2 is as captured."""

    def __init__(self, alike: Callable[[int | None, int], bool]) -> None:
        """`alike`: of the seed, and how often it was played before."""
        self._plan = planned("draws.pcap.gz").sessions[0]
        self._alike = alike
        self.played: list[int | None] = []
        (self.message, *_) = truth("draws", "draws.draw")
        with RunModel.open([str(capture_of("draws"))]) as opened:
            self.calls = opened.calls

    def __call__(self, seeds: Seeds, done: Callable[[StepOutcome], None]) -> SessionOutcome:
        seed = seeds.of("worker2")
        same = self._alike(seed, self.played.count(seed))
        self.played.append(seed)
        return session_of(self._plan, {} if same else {self.message: {"result": "different"}})


def only_three(seed: int | None, before: int) -> bool:
    return seed == 3


def test_a_seed_is_tried_again() -> None:
    trial = Scripted(only_three)
    found = search(0, range(10), Seeds(), trial, trial.calls)
    assert [(one.worker, one.seed, one.explains) for one in found.found] == [("worker2", 3, (trial.message,))]
    assert (found.tried, trial.played) == (4, [None, 0, 1, 2, 3, 3, None])


def test_what_comes_again_only_once_is_not_believed() -> None:
    trial = Scripted(lambda seed, before: seed == 3 and not before)
    found = search(0, range(10), Seeds(), trial, trial.calls)
    assert (found.found, found.missing) == ((), {"worker2": trial.message})


def test_what_comes_without_it_too_is_not_believed() -> None:
    trial = Scripted(lambda seed, before: seed == 3 or before > 0)
    found = search(0, range(10), Seeds(), trial, trial.calls)
    assert (found.found, found.missing) == ((), {"worker2": trial.message})


def test_a_seed_that_the_user_gave_is_kept() -> None:
    trial = Scripted(only_three)
    found = search(0, range(10), Seeds(own={"worker2": 4}), trial, trial.calls)
    assert (found.found, found.missing, trial.played) == ((), {}, [4])


def test_the_time_is_bounded() -> None:
    trial = Scripted(only_three)
    found = search(0, range(10), Seeds(), trial, trial.calls, max_s=-1.0)
    assert (found.tried, found.out_of_time, found.missing) == (0, True, {"worker2": trial.message})

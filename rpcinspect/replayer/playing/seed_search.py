"""Looks for the seed under which the random numbers of live workers come as captured.

In: a session, a way to play it with given seeds, the seeds to try. Out: which worker has which seed, and what
that explains. Each try has fresh live workers that are seeded before the first request reaches them, so it
finds the seed of a worker whose own program drew nothing between seeding and serving.

A worker is told by the first message of its own that is not as captured, and by itself: jobs often seed with
a number that depends on the rank. A seed is believed only if the message is as captured a second time with
it, and not without it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct, field

from rpcinspect.replayer.playing.outcome import FoundSeed, SeedSearch, SessionOutcome, StepOutcome
from rpcinspect.replayer.workers.seeds import Seeds
from rpcinspect.run.exchanges import Exchange

MAX_SEARCH_S = 600.0
"""Of one session."""

Done = Callable[[StepOutcome], None]
Play = Callable[[Seeds, Done], SessionOutcome]
"""Plays a session with these seeds; calls back with each step that came to its end, and ends early where that
raises `EnoughError`."""


class EnoughError(Exception):
    """Ends a try early: all that it is made for is known."""


def search(
    number: int,
    tries: range,
    given: Seeds,
    play: Play,
    calls: Mapping[int, Exchange],
    *,
    max_s: float = MAX_SEARCH_S,
) -> SeedSearch:
    """The search for session `number`. Workers to which the user gave a seed of their own keep it."""
    began = time.monotonic()
    base = play(given, _to_the_end)
    first = {worker: message for worker, message in _first(base, calls).items() if worker not in given.own}
    search_ = _Search(tries, given, play, first, began + max_s)
    if base.failure is None:
        search_.run()
    explained = search_.explained(base, calls) if search_.found else {}
    found = tuple(
        FoundSeed(worker=worker, seed=seed, explains=tuple(explained[worker]))
        for worker, seed in search_.found.items()
        if first[worker] in explained.get(worker, ())
    )
    return SeedSearch(
        session=number,
        tries=tries,
        tried=search_.tried,
        wall_s=time.monotonic() - began,
        found=found,
        missing={w: message for w, message in first.items() if w not in [one.worker for one in found]},
        out_of_time=search_.out_of_time,
        failure=base.failure,
    )


class _Search(Struct):
    """Tries one seed after the other, for all workers that have none yet."""

    tries: range
    given: Seeds
    play: Play
    first: Mapping[str, int]
    deadline: float
    found: dict[str, int] = field(default_factory=dict)
    tried: int = 0
    out_of_time: bool = False

    def run(self) -> None:
        """What a worker sends may depend on what another one drew: those are looked at again once the
        other's seed is known."""
        known = -1
        while known < len(self.found) < len(self.first) and not self.out_of_time:
            known = len(self.found)
            self._pass()

    def _pass(self) -> None:
        for seed in self.tries:
            wanted = {worker: m for worker, m in self.first.items() if worker not in self.found}
            if not wanted:
                return
            if time.monotonic() > self.deadline:
                self.out_of_time = True
                return
            outcome = self._play(dict.fromkeys(wanted, seed) | self.found, _until(wanted.values()))
            self.tried += 1
            results = {one.step.message: one.result for one in outcome.steps}
            self.found |= {w: seed for w, message in wanted.items() if results.get(message) == "identical"}

    def _play(self, own: Mapping[str, int], done: Done) -> SessionOutcome:
        return self.play(Seeds(everybody=self.given.everybody, own={**self.given.own, **own}), done)

    def explained(self, base: SessionOutcome, calls: Mapping[int, Exchange]) -> dict[str, list[int]]:
        """Returns worker → requests that differed, and are identical a second time with the seeds that were
        found, and not without."""
        with_, without = self._play(self.found, _to_the_end), self._play({}, _to_the_end)
        again = {one.step.message for one in with_.steps if one.result == "identical"}
        other = {one.step.message for one in without.steps if one.result != "identical"}
        explained: dict[str, list[int]] = {}
        for one in _different(base):
            if one.step.message in again & other:
                explained.setdefault(sender_of(one, calls), []).append(one.step.message)
        return explained


def _to_the_end(outcome: StepOutcome) -> None:
    """Lets a session be played to its end."""


def _until(messages: Iterable[int]) -> Done:
    """Ends a session once all these requests have a result."""
    left = set(messages)

    def done(outcome: StepOutcome) -> None:
        left.discard(outcome.step.message)
        if not left:
            raise EnoughError

    return done


def _first(outcome: SessionOutcome, calls: Mapping[int, Exchange]) -> dict[str, int]:
    """Returns live worker → request with the first message of its own that is not as captured."""
    found: dict[str, tuple[int, int]] = {}
    for one in _different(outcome):
        call = calls[one.step.message]
        moment = call.begin_ns if one.step.action == "answer" else call.end_ns or call.begin_ns
        worker = sender_of(one, calls)
        found[worker] = min(found.get(worker, (moment, call.index)), (moment, call.index))
    return {worker: message for worker, (_, message) in found.items()}


def _different(outcome: SessionOutcome) -> Sequence[StepOutcome]:
    return [one for one in outcome.steps if one.result == "different"]


def sender_of(one: StepOutcome, calls: Mapping[int, Exchange]) -> str:
    """The live worker that made what was compared: an answer, or a request."""
    call = calls[one.step.message]
    return call.caller if one.step.action == "answer" else call.callee

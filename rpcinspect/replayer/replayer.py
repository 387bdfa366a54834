"""A whole replay: every session of a plan, each against fresh live workers; and nothing left behind.

In: an open session, a plan whose names the gate has passed, options. Out: a `ReplayOutcome`. Starts the
processes of live workers and ends all of them, whatever happens; what can't go on becomes the failure of its
session, and the next one begins.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from rpcinspect.errors import ReplayError
from rpcinspect.replayer.options import ReplayOptions
from rpcinspect.replayer.peers.traffic_pcap import TrafficRecorder
from rpcinspect.replayer.planning.model import Plan, PlannedSession
from rpcinspect.replayer.playing.attach import check
from rpcinspect.replayer.playing.debug_relay import DebugRelay
from rpcinspect.replayer.playing.debugging import Debugging
from rpcinspect.replayer.playing.outcome import (
    ReplayOutcome,
    SeedSearch,
    SessionOutcome,
    StepOutcome,
    TrafficRecording,
)
from rpcinspect.replayer.playing.seed_search import EnoughError, search
from rpcinspect.replayer.playing.stops import Stops
from rpcinspect.replayer.requirements import check_gpus, check_names, with_modules
from rpcinspect.replayer.session_run import SessionRun, SharedState
from rpcinspect.replayer.workers.parent_process import Waiting
from rpcinspect.replayer.workers.seeds import Seeds
from rpcinspect.replayer.workers.workers import Workers
from rpcinspect.run.run import RunModel
from rpcinspect.signals import never_lost

StepProgress = Callable[[int, int], None]
"""Called with the steps that are done and the steps that there are, skips left out."""


@never_lost()
def replay(
    opened: RunModel,
    plan: Plan,
    options: ReplayOptions,
    *,
    progress: StepProgress = lambda done, steps: None,
    waiting: Waiting = lambda what, seconds: None,
    tell: Callable[[str], None] = lambda line: None,
    workers: Workers | None = None,
) -> ReplayOutcome:
    """Carries out a plan. `workers`: the parent process of live workers, if there is one already; it has its
    own options, imports nothing more, and stays. Of a plan with names that nobody allowed nothing is run.
    `waiting` is called each second in which nothing comes, `tell` before all else with what will fail.

    Raises `ReplayError` where nothing could be started: torch is absent or too old, or what the user or a
    captured request names can't be imported; `OutputError` where the recording can't be written at all.
    Ctrl-C ends it early: what was done until then is in the outcome.
    """
    began = time.monotonic()
    runs: list[tuple[SessionOutcome, ...]] = []
    interrupted = False
    replayer = _Replayer(opened, plan, options, progress, waiting)
    debugging = replayer.shared.debugging
    recorder = TrafficRecorder(options.record) if replayer.count and options.record is not None else None
    if replayer.count and not plan.refused:
        replayer.check()
        with recorder or contextlib.nullcontext(), contextlib.ExitStack() as stack:
            if debugging is not None and options.terminal is not None:
                replayer.shared.relay = stack.enter_context(DebugRelay(options.terminal))
            if workers is None and options.join is None:
                started = Workers(with_modules(options.workers, plan), options.show, waiting, options.parent)
                workers = stack.enter_context(started)
                lacking = check_names(plan, opened.calls, workers)
                plan = replace(plan, notes=(*plan.notes, *lacking))
                for line in lacking:
                    tell(line)
            if options.devices.kind == "cuda" and workers is not None:
                check_gpus(options.devices, opened.calls, workers)
            interrupted = workers is not None and not replayer.search(workers)
            for _ in range(0 if interrupted else options.repeat):
                outcomes: list[SessionOutcome] = []
                try:
                    for planned in plan.sessions:
                        outcomes.append(replayer.play(planned, workers, recorder))
                except _Interrupted as error:
                    outcomes.append(error.outcome)
                    interrupted = True
                except KeyboardInterrupt:  # between two sessions
                    interrupted = True
                runs.append(tuple(outcomes))
                if interrupted:
                    break
    return ReplayOutcome(
        plan=plan,
        searches=tuple(replayer.searches),
        runs=tuple(runs),
        engine=options.engine,
        device=options.devices.kind,
        wall_s=time.monotonic() - began,
        captured_wall_s=replayer.captured_wall_s,
        interrupted=interrupted,
        missed_stops=() if debugging is None else tuple(sorted(debugging.missed)),
        recording=None
        if recorder is None
        else TrafficRecording(path=recorder.path, failure=recorder.failure),
    )


class _Interrupted(Exception):
    """Ctrl-C during a session, with what was done until then; it never leaves this module."""

    def __init__(self, outcome: SessionOutcome) -> None:
        super().__init__()
        self.outcome = outcome


class _Replayer:
    """Plays the sessions of a replay, and keeps what they have in common."""

    def __init__(
        self,
        opened: RunModel,
        plan: Plan,
        options: ReplayOptions,
        progress: StepProgress,
        waiting: Waiting,
    ) -> None:
        self.shared = SharedState(opened, options, waiting)
        self._plan = plan
        self._options = options
        self._progress = progress
        self._calls = opened.calls
        self.count = sum(session.count("send") for session in plan.sessions)
        self._all = options.repeat * sum(s.count("send") + s.count("answer") for s in plan.sessions)
        self._done = 0
        self.searches: list[SeedSearch] = []
        self._seeds: dict[int, Seeds] = {}
        """Of each session that was searched for seeds."""
        if options.debug is not None and options.terminal is not None:
            stops = Stops.read(options.debug.stop_at, self._calls)
            stops.check(plan.sessions, self._calls)
            self.shared.debugging = Debugging(options.debug, stops, options.terminal.say)
        moments = [call.begin_ns for call in self._calls.values()]
        moments += [call.end_ns for call in self._calls.values() if call.end_ns is not None]
        self.captured_wall_s = (max(moments) - min(moments)) / 1e9 if moments else 0.0

    def check(self) -> None:
        """Whether all sessions can be played in the group that is to be joined; `ReplayError` if not."""
        if self._options.join is not None:
            played = [planned for planned in self._plan.sessions if planned.count("send")]
            check([SessionRun(self.shared, planned).inputs() for planned in played], self._options.join)

    def play(
        self, planned: PlannedSession, workers: Workers | None, tap: TrafficRecorder | None
    ) -> SessionOutcome:
        """Plays a session, from the start of its live workers to their end; without `workers`, in the joined
        group."""
        if not planned.count("send"):
            return SessionRun(self.shared, planned).outcome(None)
        seeds = self._seeds.get(planned.number, self._options.seeds)
        return self._play(planned, workers, seeds, self._tick, tap=tap)

    def search(self, workers: Workers) -> bool:
        """Looks for seeds, session by session, if that is asked for; False: it was interrupted."""
        tries, given = self._options.search_seeds, self._options.seeds
        for planned in self._plan.sessions:
            if tries is not None and planned.count("send"):
                play = partial(self._play, planned, workers, tap=None, mute=True)
                try:
                    found = search(planned.number, tries, given, play, self._calls)
                except _Interrupted:
                    return False
                self.searches.append(found)
                self._seeds[planned.number] = found.seeds(given)
        return True

    def _play(
        self,
        planned: PlannedSession,
        workers: Workers | None,
        seeds: Seeds,
        done: Callable[[StepOutcome], None],
        *,
        tap: TrafficRecorder | None,
        mute: bool = False,
    ) -> SessionOutcome:
        run = SessionRun(self.shared, planned, seeds, done, tap, mute)
        try:
            if workers is not None:
                run.go(workers)
            else:
                run.join()
        except KeyboardInterrupt:
            raise _Interrupted(run.outcome("it was interrupted")) from None
        except ReplayError as error:
            return run.outcome(str(error))
        except EnoughError:
            pass
        return run.outcome(None)

    def _tick(self, outcome: StepOutcome) -> None:
        self._done += 1
        self._progress(self._done, self._all)

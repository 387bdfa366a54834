"""How processes end in a session: those of played workers where they did in the capture, and whether a live
worker's was to end.

In: the session's progress, and which processes have ended. Out: what that means for requests on their way,
and whether the session can go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

from rpcinspect.replayer.peers.loop import PipeLost
from rpcinspect.replayer.planning.model import Step
from rpcinspect.replayer.playing.outcome import Result
from rpcinspect.replayer.playing.progress import SessionProgress
from rpcinspect.replayer.playing.timeouts import QUIET_S
from rpcinspect.replayer.workers.process_exit import EarlyExit

GRACE_S = 1.0
"""How long is waited, in a whole session, to learn how processes have ended with which pipes were lost."""

EndedProcesses: TypeAlias = Callable[[float, int], Sequence[EarlyExit]]
"""Returns how processes have ended; may wait so many seconds for one more than that many."""


class ProcessEnds:
    """The ends of a session's processes."""

    def __init__(self, progress: SessionProgress, ended: EndedProcesses) -> None:
        """`ended` returns which processes have ended, in order."""
        planned = progress.inputs.planned
        self._progress = progress
        self._ended = ended
        self.to_come = [one for one in planned.endings if one.worker in planned.cast.roles]
        """Of played workers' processes."""
        self._of_live = {one.worker: one for one in planned.endings if one.worker in planned.cast.live}
        """Live worker → where its process ended in the capture."""
        self._as_captured: dict[str, str] = {}
        """Live worker → how its process ended here, of those that ended where they did in the capture."""
        self._grace_s = GRACE_S
        self._gone: dict[str, str] = {}
        """Worker → how its process ended, of those with which something was lost."""

    def end_next(self, quiet_s: float) -> None:
        """Lets a played worker end where its process did in the capture. What it was asked before may not
        come: the plan does not always know."""
        progress, ending = self._progress, self.to_come[0]
        came = all(index in progress.outcomes for index in ending.unanswered)
        if not progress.schedule.reached(ending) or not (came or quiet_s >= QUIET_S):
            return
        del self.to_come[0]
        peer = progress.peers[ending.worker]
        if not peer.end(reset=ending.reset):
            return
        for key in [key for key in progress.sent if key[0] == peer.name]:
            sent = progress.sent.pop(key)
            same = sent.call.response is None
            text = f"{ending.worker} ended before an answer came"
            result: Result = "identical" if same else "unanswered"
            progress.give_up(sent.step, result, f"as in the capture, {text}" if same else text)

    def first(self, wait_s: float = 0.0) -> EarlyExit | None:
        """The process that has ended although it did not in the capture, if one has; of several the first."""
        ended = self._progress.with_last(self._ended(wait_s, len(self._as_captured)))
        return next((one for one in ended if not self._is_as_captured(one)), None)

    def _is_as_captured(self, ended: EarlyExit) -> bool:
        """Returns whether a live worker's process has ended where it did in the capture: before it gave the
        same answers."""
        worker = ended.worker or ""
        ending = self._of_live.get(worker)
        if worker in self._as_captured or ending is None or ended.no_memory:
            return worker in self._as_captured
        owed = [sent.call for sent in self._progress.sent.values() if sent.step.to == worker]
        there = any(call.index in ending.unanswered for call in owed)
        there = there or self._progress.schedule.reached(ending)
        if there and all(call.response is None for call in owed):
            self._as_captured[worker] = ended.text
        return worker in self._as_captured

    def end_if_killed(self) -> None:
        """Everything has come to its end; what ends by itself then may have been asked to, but not by a
        signal."""
        ended = self.first()
        if ended is not None and (ended.exit.signal is not None or self._gone):
            self._progress.end(ended.text)

    def lost(self, event: PipeLost) -> bool:
        """Gives up what was sent over a pipe that is lost; returns whether anything was."""
        sent = self._progress.sent
        keys = [(event.peer, number) for number in event.unanswered if (event.peer, number) in sent]
        text = f"the pipe to {event.other} was lost: {event.reason}"
        if keys and event.other not in self._as_captured and (ended := self._ended_meanwhile()) is not None:
            text = ended.text if ended.worker in (event.other, event.peer) else f"{text}; {ended.text}"
        for step in [sent.pop(key).step for key in keys]:
            if not self.lost_as_captured(step):
                self._progress.give_up(step, "failed", text)
        return bool(keys)

    def lost_as_captured(self, step: Step) -> bool:
        """Gives up a request to a live worker that is gone, as it was in the capture, where no answer came
        either; returns whether that is so."""
        how = self._as_captured.get(step.to)
        same = how is not None and self._progress.call(step).response is None
        if same:
            self._progress.give_up(step, "identical", f"as in the capture, no answer came: {how}")
        return same

    def why_gone(self, step: Step) -> str | None:
        """Returns how a process has ended that a request needs; None: nothing is known of that."""
        return self._gone.get(step.to) or self._gone.get(step.role) or self._as_captured.get(step.to)

    def _ended_meanwhile(self) -> EarlyExit | None:
        """The process that has ended, if that is why a pipe was lost; sockets are closed before it is known
        how their process ended."""
        began = time.monotonic()
        found = self.first(self._grace_s)
        self._grace_s = max(self._grace_s - (time.monotonic() - began), 0.0)
        if found is not None:
            self._gone[found.worker or ""] = found.text
        return found

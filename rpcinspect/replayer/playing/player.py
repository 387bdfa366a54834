"""One session of a replay: sends what is planned, answers live workers from the capture, compares.

In: a planned session, its captured messages, and peers that are members of the live workers' group. Out:
what came of each step, and of each request of live workers. One thread, one loop of events; the schedule says
what may be sent, `sending` sends it, `receiving` takes what comes, `process_ends` knows who is gone. Nothing
that live workers send is executed or trusted; whatever they do, it ends in finite time, unless the user holds
one of them in a debugger.

May assume that the gate has passed everything that the plan sends and gives as an answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from rpcinspect.replayer.peers.loop import Handle, Loop
from rpcinspect.replayer.playing.debugging import Wait
from rpcinspect.replayer.playing.process_ends import EndedProcesses, ProcessEnds
from rpcinspect.replayer.playing.progress import SessionProgress
from rpcinspect.replayer.playing.receiving import Receiver
from rpcinspect.replayer.playing.sending import Sender

TICK_S = 0.05
SHORTEST_TICK_S = 0.01
"""How often something is done about what does not come; more often when it could have come just now."""
LAST_S = 0.05
"""How long is listened after the last step: what live workers sent before their last answers may come later,
over pipes of its own."""

TELL_S = 1.0
"""How often it is told for what a session waits."""


class Player:
    """Plays one session: call `run` once; `progress` has what came of it."""

    def __init__(
        self,
        progress: SessionProgress,
        loop: Loop,
        handle: Handle,
        *,
        clean_up: Callable[[int], None] = lambda context: None,
        ended: EndedProcesses = lambda seconds, known: (),
    ) -> None:
        """`handle` gets each event first; `ended` returns which processes have ended, in order; `clean_up` is
        called with a context before it is cleaned up."""
        self.progress = progress
        self._ends = ProcessEnds(progress, ended)
        self._sender = Sender(progress, self._ends, loop, handle, clean_up, self._wait_for)
        self._receiver = Receiver(progress, self._ends, self._sender, handle)
        self._loop = loop
        self._schedule = progress.schedule
        self._renewed = 0.0
        """When it was looked last at what live workers wait for."""
        self._told_s = 0.0
        """How long nothing had come when that was told last."""
        self.wall_s = 0.0
        """From the beginning to the last message, without the time in which a live worker was held."""
        self._began = self._quiet_since = 0.0
        self._looked = 0.0
        """When it was looked last whether one is held."""

    # --- the loop -------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Plays until everything is sent and answered, or given up. `KeyboardInterrupt` passes through."""
        self._began = self._quiet_since = self._looked = time.monotonic()
        while True:
            held, now = self._held(), time.monotonic()
            due = list(self._schedule.ready(now, now - self._quiet_since, answers_only=held))
            for one in due:
                self._sender.send(one.step)
            if due:
                self._note_progress()
            elif self._ends.to_come:
                self._ends.end_next(now - self._quiet_since)
            over = self._schedule.empty and not self.progress.sent and not held
            if over and not due and now - self._quiet_since >= LAST_S:
                self._ends.end_if_killed()
                return
            quiet_s = 0.0 if due else now - self._quiet_since
            wake = self._schedule.wake_in(now, quiet_s)
            tick = LAST_S - quiet_s if over else min(max(quiet_s / 2, SHORTEST_TICK_S), TICK_S)
            events = self._loop.wait(tick if wake is None or held else min(wake, TICK_S))
            self._renew(now)
            progress = [self._receiver.take(event) for event in events]
            if any(progress):
                self._note_progress()
            elif not (due or over) and (ended := self._ends.first()) is not None:
                self.progress.end(ended.text)
                return
            elif not due and wake is None and not held:
                self._give_up_silent(time.monotonic() - self._quiet_since)
            if not held:
                self._tell_waiting(time.monotonic() - self._quiet_since)

    def _note_progress(self) -> None:
        """Something was sent, or has come."""
        self._quiet_since = time.monotonic()
        self._told_s = 0.0
        self.wall_s = self._quiet_since - self._began

    def _held(self) -> bool:
        """Returns whether no request is to be sent, since a live worker holds, or will soon; while it does,
        time stands still. What it asks for meanwhile may need requests to be answered."""
        before, self._looked = self._looked, time.monotonic()
        debugger = self.progress.debugger
        if debugger is None:
            return False
        if debugger.holds:
            passed = self._looked - before
            self._began += passed
            self._quiet_since += passed
            for key, sent in self.progress.sent.items():
                sent.at += passed
                self.progress.renew(key)
        return debugger.is_to_hold and not self.progress.asked

    def _wait_for(self, over: Wait) -> None:
        """Goes on with all but requests until something is over."""
        while not over(SHORTEST_TICK_S):
            self._held()
            now = time.monotonic()
            for due in list(self._schedule.ready(now, answers_only=True)):
                self._sender.send(due.step)
            for event in self._loop.wait(0.0):
                self._receiver.take(event)

    # --- what does not come ---------------------------------------------------------------------------------

    def _tell_waiting(self, quiet_s: float) -> None:
        """Tells each second for what the session waits."""
        if quiet_s < self._told_s + TELL_S:
            return
        self._told_s = quiet_s
        sent = next(iter(self.progress.sent.values()), None)
        awaited = next(iter([*self._schedule.awaited(), *sorted(self._schedule.unasked)]), None)
        if sent is not None:
            call, quiet_s = sent.call, time.monotonic() - sent.at
            called = f" ({call.function})" if call.function is not None else ""
            what = f"{call.callee} to answer #{call.index}{called}"
        elif awaited in self.progress.steps:
            what = f"{self.progress.steps[awaited].sender} to send #{awaited}"
        else:
            what = "the time of the next message"
        self.progress.inputs.waiting(what, quiet_s)

    def _give_up_silent(self, quiet_s: float) -> None:
        """Gives up requests of live workers that should have come by now, after a while without events."""
        unasked = self._schedule.unasked
        awaited = self._schedule.awaited()
        for index in awaited or ([] if self.progress.sent else sorted(unasked)):
            if index in unasked and quiet_s >= self.progress.timeouts.for_request(index):
                self.progress.timeouts.missed(index)
                self._schedule.arrived(index)
        on_their_way = {sent.call.answer for sent in self.progress.sent.values()}
        if awaited and awaited[0] not in unasked | on_their_way:
            # Where clocks jump, a request may have been sent, by the capture, after its own answer.
            self._schedule.arrived(awaited[0])

    def _renew(self, now: float) -> None:
        """The time of a request stands still while the live worker waits for an answer of ours to go on, as
        far as that answer came first in the capture: then no two wait for each other."""
        if now < self._renewed + TICK_S or self.progress.timeouts.bounded:
            return
        self._renewed = now
        for asked in self.progress.asked:
            given_ns = self.progress.inputs.calls[asked].answered_ns
            causes = self._causes(asked) if given_ns is not None else set()
            for key, sent in self.progress.sent.items():
                call = sent.call
                if call.index in causes and (call.answered_ns or 0) > (given_ns or 0):
                    self.progress.renew(key)

    def _causes(self, index: int) -> set[int]:
        """The requests that may have made a worker send this one, those behind these, and so on."""
        found: set[int] = set()
        left = [index]
        while left:
            step = self.progress.steps.get(left.pop())
            new = set(step.causes) - found if step is not None else set()
            found |= new
            left += new
        return found

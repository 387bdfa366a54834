"""One session of a replay: sends what is planned, answers live workers from the capture, compares.

In: a planned session, its captured messages, and peers that are members of the live workers' group. Out:
what came of each step, and of each request of live workers. One thread, one loop of events; the schedule says
what may be sent, `Expected` which captured request a live one repeats, `translate` which ids have other
numbers here. Nothing that live workers send is executed or trusted; whatever they do, it ends in finite time,
unless the user holds one of them in a debugger.

May assume that the gate has passed everything that the plan sends and gives as an answer. Longer than other
modules: each event of the one loop may change what all others wait for.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import asdict, replace

from rpcinspect.equality.ids import WORKER
from rpcinspect.equality.messages import compare_messages
from rpcinspect.errors import ReplayError
from rpcinspect.replayer.peers.loop import (
    Handle,
    Loop,
    NotSent,
    PeerEvent,
    PipeLost,
    RequestArrived,
    ResponseArrived,
    Unanswered,
)
from rpcinspect.replayer.planning.model import Step
from rpcinspect.replayer.planning.steps import NO_ANSWER
from rpcinspect.replayer.playing.debugging import SessionDebugger, Wait
from rpcinspect.replayer.playing.expectations import (
    NEEDS_WHAT_IS_LACKING,
    UnmadeRRefs,
    as_answered,
    judged,
    lacks_answer,
    may_come,
)
from rpcinspect.replayer.playing.inputs import PlayedWorker, SessionInputs
from rpcinspect.replayer.playing.matching import Expected
from rpcinspect.replayer.playing.outcome import (
    AMBIGUOUS,
    AMBIGUOUS_SENDER,
    InboundOutcome,
    MessageOutcome,
    Result,
    StepOutcome,
)
from rpcinspect.replayer.playing.rref_substitutes import load
from rpcinspect.replayer.playing.schedule import DueMessage, Schedule
from rpcinspect.replayer.playing.timeouts import QUIET_S, Timeouts
from rpcinspect.replayer.playing.translate import (
    LiveMessage,
    LiveRecords,
    learn_own_edge,
    learn_own_fork,
    learn_sent,
    translate,
)
from rpcinspect.replayer.playing.uncaptured import (
    Leftovers,
    acknowledgement,
    receipt,
    refusal,
    refused_here,
    too_much,
)
from rpcinspect.replayer.workers.process_exit import EarlyExit
from rpcinspect.rpc.message import MessageType, RpcMessage, type_name
from rpcinspect.rpc.questions import HOUSEKEEPING
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.run.exchanges import Exchange

TICK_S = 0.05
SHORTEST_TICK_S = 0.01
"""How often something is done about what does not come; more often when it could have come just now."""
LAST_S = 0.05
"""How long is listened after the last step: what live workers sent before their last answers may come later,
over pipes of its own."""

TELL_S = 1.0
"""How often it is told for what a session waits."""
GRACE_S = 1.0
"""How long is waited, in a whole session, to learn how processes have ended with which pipes were lost."""


EndedProcesses: TypeAlias = Callable[[float, int], Sequence[EarlyExit]]
"""Returns how processes have ended; may wait so many seconds for one more than that many."""


class _Sent(Struct):
    """A request that is on its way."""

    step: Step
    call: Exchange
    at: float
    """Monotonic seconds."""


class Player:
    """Plays one session; call `run` once, then `outcomes`."""

    def __init__(
        self,
        inputs: SessionInputs,
        loop: Loop,
        peers: Mapping[str, PlayedWorker],
        handle: Handle,
        timeouts: Timeouts,
        *,
        speed: float | None = None,
        debugger: SessionDebugger | None = None,
        clean_up: Callable[[int], None] = lambda context: None,
        ended: EndedProcesses = lambda seconds, known: (),
        done: Callable[[StepOutcome], None] = lambda outcome: None,
    ) -> None:
        """`peers` by the worker that they play; `handle` gets each event first; `ended` returns which
        processes have ended, in order; `clean_up` is called with a context before it is cleaned up, `done`
        with each finished step."""
        self._inputs = inputs
        self._loop = loop
        self._peers = peers
        self._roles = {peer.name: role for role, peer in peers.items()}
        self._handle = handle
        self._timeouts = timeouts
        self._ended = ended
        self._done = done
        self._debugger = debugger
        self._clean_up = clean_up
        planned, calls = inputs.planned, inputs.calls
        self._schedule = Schedule(planned, calls, speed=speed, stubborn=timeouts.stubborn)
        self._ids = inputs.ids
        joined = inputs.ids_in_group
        self._live_ids = frozenset([joined[name] for name in planned.cast.live if name in joined])
        for name, worker_id in inputs.ids_in_group.items():
            self._ids.carried(WORKER, inputs.worker_ids[name], worker_id)
        to_itself = [step for step in planned.steps if step.action == "send" and step.role == step.to]
        for number, step in enumerate(to_itself):  # others may use its object before it is sent
            learn_own_fork(calls[step.message].request, self._ids, number)
            if step.role in inputs.programs:
                learn_own_edge(calls[step.message].request, self._ids)
        asked, spare = may_come(planned, calls)
        played = [inputs.worker_ids[role] for role in planned.cast.roles if role in inputs.worker_ids]
        self._expected = Expected(asked, inputs.read, inputs.rules, self._ids, played, spare)
        self._refused_lacking = False
        """Whether a live worker was refused something for which the recording lacks the answer."""
        self._steps = {step.message: step for step in planned.steps}
        self._loads = list(planned.loads)
        """What is still to be put into objects of live workers."""
        self._live = LiveRecords()
        self.leftovers = Leftovers(self._ids, inputs.ids_in_group)
        self._sent: dict[tuple[str, int], _Sent] = {}
        """(peer, message id) → request without an answer."""
        self._requests: dict[int, RequestArrived] = {}
        """Captured request → the live one that repeats it and is not answered yet."""
        self._outcomes: dict[int, StepOutcome] = {}
        self._last: dict[str, int] = {}
        """Worker → index of the message that it got last."""
        self._renewed = 0.0
        """When it was looked last at what live workers wait for."""
        self._told_s = 0.0
        """How long nothing had come when that was told last."""
        self._endings = [one for one in planned.endings if one.worker in planned.cast.roles]
        """Of played workers' processes, those to come."""
        self._live_endings = {one.worker: one for one in planned.endings if one.worker in planned.cast.live}
        """Live worker → where its process ended in the capture."""
        self._ended_as_captured: dict[str, str] = {}
        """Live worker → how its process ended here, of those that ended where they did in the capture."""
        self._unmade = UnmadeRRefs()
        self._grace_s = GRACE_S
        self._gone: dict[str, str] = {}
        """Worker → how its process ended, of those with which something was lost."""
        self.inbound: list[InboundOutcome] = []
        self.failure: str | None = None
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
                self._send(one)
            if due:
                self._note_progress()
            elif self._endings:
                self._end_worker(now - self._quiet_since)
            over = self._schedule.empty and not self._sent and not held
            if over and not due and now - self._quiet_since >= LAST_S:
                self._end_if_killed()
                return
            quiet_s = 0.0 if due else now - self._quiet_since
            wake = self._schedule.wake_in(now, quiet_s)
            tick = LAST_S - quiet_s if over else min(max(quiet_s / 2, SHORTEST_TICK_S), TICK_S)
            events = self._loop.wait(tick if wake is None or held else min(wake, TICK_S))
            self._renew(now)
            progress = [self._take(event) for event in events]
            if any(progress):
                self._note_progress()
            elif not (due or over) and (ended := self._first_ended()) is not None:
                self._end(ended.text)
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
        if self._debugger is None:
            return False
        if self._debugger.holds:
            passed = self._looked - before
            self._began += passed
            self._quiet_since += passed
            for (name, message_id), sent in self._sent.items():
                sent.at += passed
                self._peers[self._role(name)].renew(message_id)
        return self._debugger.is_to_hold and not self._requests

    def _wait_for(self, over: Wait) -> None:
        """Goes on with all but requests until something is over."""
        while not over(SHORTEST_TICK_S):
            self._held()
            now = time.monotonic()
            for due in list(self._schedule.ready(now, answers_only=True)):
                self._send(due)
            for event in self._loop.wait(0.0):
                self._take(event)

    def _end_worker(self, quiet_s: float) -> None:
        """Lets a played worker end where its process did in the capture. What it was asked before may not
        come: the plan does not always know."""
        ending = self._endings[0]
        came = all(index in self._outcomes for index in ending.unanswered)
        if not self._schedule.reached(ending) or not (came or quiet_s >= QUIET_S):
            return
        del self._endings[0]
        peer = self._peers[ending.worker]
        if not peer.end(reset=ending.reset):
            return
        for key in [key for key in self._sent if key[0] == peer.name]:
            sent = self._sent.pop(key)
            same = sent.call.response is None
            text = f"{ending.worker} ended before an answer came"
            result: Result = "identical" if same else "unanswered"
            self._give_up(sent.step, result, f"as in the capture, {text}" if same else text)

    def _tell_waiting(self, quiet_s: float) -> None:
        """Tells each second for what the session waits."""
        if quiet_s < self._told_s + TELL_S:
            return
        self._told_s = quiet_s
        on_their_way = next(iter(self._sent.values()), None)
        awaited = next(iter([*self._schedule.awaited(), *sorted(self._schedule.unasked)]), None)
        if on_their_way is not None:
            call = on_their_way.call
            called = f" ({call.function})" if call.function is not None else ""
            self._inputs.waiting(
                f"{call.callee} to answer #{call.index}{called}", time.monotonic() - on_their_way.at
            )
        elif awaited in self._steps:
            self._inputs.waiting(f"{self._steps[awaited].sender} to send #{awaited}", quiet_s)
        else:
            self._inputs.waiting("the time of the next message", quiet_s)

    def _give_up_silent(self, quiet_s: float) -> None:
        """Gives up requests of live workers that should have come by now, after a while without events."""
        unasked = self._schedule.unasked
        awaited = self._schedule.awaited()
        for index in awaited or ([] if self._sent else sorted(unasked)):
            if index in unasked and quiet_s >= self._timeouts.for_request(index):
                self._timeouts.missed(index)
                self._schedule.arrived(index)
        on_their_way = {sent.call.answer for sent in self._sent.values()}
        if awaited and awaited[0] not in unasked | on_their_way:
            # Where clocks jump, a request may have been sent, by the capture, after its own answer.
            self._schedule.arrived(awaited[0])

    def _renew(self, now: float) -> None:
        """The time of a request stands still while the live worker waits for an answer of ours to go on, as
        far as that answer came first in the capture: then no two wait for each other."""
        if now < self._renewed + TICK_S or self._timeouts.bounded:
            return
        self._renewed = now
        for asked in self._requests:
            given_ns = self._inputs.calls[asked].answered_ns
            causes = self._causes(asked) if given_ns is not None else set()
            for (name, message_id), sent in self._sent.items():
                call = sent.call
                if call.index in causes and (call.answered_ns or 0) > (given_ns or 0):
                    self._peers[self._role(name)].renew(message_id)

    def _causes(self, index: int) -> set[int]:
        """The requests that may have made a worker send this one, those behind these, and so on."""
        found: set[int] = set()
        left = [index]
        while left:
            step = self._steps.get(left.pop())
            new = set(step.causes) - found if step is not None else set()
            found |= new
            left += new
        return found

    def _first_ended(self, wait_s: float = 0.0) -> EarlyExit | None:
        """The process that has ended although it did not in the capture, if one has; of several the first."""
        ended = self.with_last(self._ended(wait_s, len(self._ended_as_captured)))
        return next((one for one in ended if not self._is_as_captured(one)), None)

    def _is_as_captured(self, ended: EarlyExit) -> bool:
        """Returns whether a live worker's process has ended where it did in the capture: before it gave the
        same answers."""
        worker = ended.worker or ""
        ending = self._live_endings.get(worker)
        if worker in self._ended_as_captured or ending is None or ended.no_memory:
            return worker in self._ended_as_captured
        owed = [sent.call for sent in self._sent.values() if sent.step.to == worker]
        there = any(call.index in ending.unanswered for call in owed) or self._schedule.reached(ending)
        if there and all(call.response is None for call in owed):
            self._ended_as_captured[worker] = ended.text
        return worker in self._ended_as_captured

    def with_last(self, ended: Iterable[EarlyExit]) -> tuple[EarlyExit, ...]:
        """Adds the message that each process got last."""
        return tuple(replace(one, last_message=self._last.get(one.worker or "")) for one in ended)

    def _end_if_killed(self) -> None:
        """Everything has come to its end; what ends by itself then may have been asked to, but not by a
        signal."""
        ended = self._first_ended()
        if ended is not None and (ended.exit.signal is not None or self._gone):
            self._end(ended.text)

    def _end(self, reason: str) -> None:
        """A live worker is gone: the session can't go on."""
        self.failure = reason
        for sent in self._sent.values():
            self._finish(StepOutcome(step=sent.step, result="failed", text=reason))
        self._sent.clear()

    def outcomes(self) -> tuple[StepOutcome, ...]:
        """Returns the outcome of each step of the plan, in its order."""
        steps = self._inputs.planned.steps
        return tuple(self._outcomes.get(step.message) or self._unfinished(step) for step in steps)

    def _unfinished(self, step: Step) -> StepOutcome:
        if step.action == "skip":
            return StepOutcome(step=step, result=None)
        if step.action == "send" or self.failure is not None:
            return StepOutcome(step=step, result="failed", text=self.failure or "it was never sent")
        if self._call(step).kind in HOUSEKEEPING:
            text = "the live worker did not send it: its program does not decide when RRefs are deleted"
            return StepOutcome(step=step, result=None, text=text)
        if step.doubt:
            return StepOutcome(step=step, result=None, text=AMBIGUOUS)
        return StepOutcome(step=step, result="unanswered", text=f"{step.to} never sent it")

    def _call(self, step: Step) -> Exchange:
        return self._inputs.calls[step.message]

    def _finish(self, outcome: StepOutcome) -> None:
        self._outcomes[outcome.step.message] = outcome
        self._done(outcome)

    # --- sending --------------------------------------------------------------------------------------------

    def _send(self, due: DueMessage) -> None:
        if due.step.action == "send":
            self._send_request(due.step)
        elif due.step.action == "answer":
            self._give(due.step, self._requests.pop(due.step.message))

    def _load(self, owner: str) -> None:
        """Puts values into objects of a live worker that it has by now."""
        due = [one for one in self._loads if one.owner == owner and self._is_over(one.after)]
        for one in due:
            self._loads.remove(one)
            peer = next(iter(self._peers.values()))
            load(self._inputs, one, self._loop, peer, self._handle)

    def _is_over(self, request: int | None) -> bool:
        return request is None or request in self._outcomes

    def _send_request(self, step: Step) -> None:
        self._load(step.to)
        call = self._call(step)
        peer = self._peers[step.role]
        if self._is_lost_as_captured(step):
            return
        gone = self._gone.get(step.to) or self._gone.get(step.role) or self._ended_as_captured.get(step.to)
        if gone is not None:
            self._give_up(step, "failed", f"not sent: {gone}")
            return
        if (reason := self._unmade.reason(call)) is not None:
            self._give_up(step, "failed", f"not sent: {reason}")
            return
        try:
            sender = self._inputs.programs.get(step.role)
            message = translate(call.request, self._ids, self._live_ids, sender)
            storages = self._inputs.storages(call.request)
            if call.kind == MessageType.CLEANUP_AUTOGRAD_CONTEXT_REQ and call.context is not None:
                self._clean_up(call.context)
            if self._debugger is not None:
                self._wait_for(self._debugger.before(step, call, message, storages))
            message_id = peer.send(
                self._inputs.live_name(step.to),
                message,
                storages,
                timeout_s=self._timeouts.for_answer(call),
            )
        except ReplayError as error:
            self._give_up(step, "failed", f"not sent: {self._not_told(call) or error}")
            return
        learn_sent(call.request, self._ids)
        self.leftovers.sent(step.role, step.to, call.request)
        self._sent[peer.name, message_id] = _Sent(step, call, time.monotonic())
        self._last[step.to] = self._last[step.role] = step.message
        if step.message in self._inputs.early and call.answer is not None:
            self._schedule.arrived(call.answer)

    def _not_told(self, call: Exchange) -> str | None:
        """Returns which answer in the context of a call did not come as captured: it may have brought ids."""
        missing = [
            one.step.message
            for one in self._outcomes.values()
            if one.step.action == "send"
            and one.result in ("failed", "unanswered", "different")
            and self._call(one.step).context == call.context
        ]
        if call.context is None or not missing:
            return None
        return f"may depend on the answer to #{min(missing)}, which did not come as captured"

    def _give(self, step: Step, event: RequestArrived) -> None:
        """Answers a live request as the captured one that it repeats was."""
        call = self._call(step)
        if call.response is None:
            return  # nor was that one
        try:
            message = translate(call.response, self._ids, self._live_ids)
            given = self._peers[step.role].answer(event, message, self._inputs.storages(call.response))
        except ReplayError as error:
            self._fail_answer(step, f"the answer was not sent: {error}")
            self._reply(event, refusal())
            return
        if given:
            learn_sent(call.response, self._ids)
            if call.answer is not None:
                self._last[step.to] = self._last[step.role] = call.answer
        else:
            self._fail_answer(step, "the answer was not sent: the pipe is lost")

    def _fail_answer(self, step: Step, text: str) -> None:
        self._outcomes[step.message] = StepOutcome(step=step, result="failed", text=text)

    # --- what comes -----------------------------------------------------------------------------------------

    def _take(self, event: PeerEvent) -> bool:
        """Whether it was one of those that were waited for. Others come as often as a live worker likes, and
        must not make the session last."""
        if self._handle(event):
            return False
        if isinstance(event, ResponseArrived):
            return self._take_answer(event)
        if isinstance(event, RequestArrived):
            return self._take_request(event)
        if isinstance(event, Unanswered):
            return self._take_silence(event)
        if isinstance(event, NotSent):
            return self._take_refusal(event)
        return self._take_loss(event)

    def _take_answer(self, event: ResponseArrived) -> bool:
        sent = self._sent.pop((event.peer, event.message.id), None)
        if sent is None:
            return False  # it came after it was given up
        call = sent.call
        live = self._live.decode(event.message, event.tensors)
        self.leftovers.came(sent.step.role, sent.step.to, live.record)
        if self._debugger is not None:
            self._debugger.came(live.record, live.read, call, call.callee, answers=True)
        latency_s = time.monotonic() - sent.at
        if call.response is None:
            outcome = too_much(sent.step, live.record, latency_s, cut_off=self._timeouts.cut_off(call))
        else:
            found = compare_messages(
                call.response, live.record, self._inputs.read, live.read, self._inputs.rules, self._ids
            )
            came = judged(call.response, live.record, found, self._inputs)
            if self._refused_lacking and came.result == "different" and refused_here(live.record):
                came = replace(came, result=None, text=NEEDS_WHAT_IS_LACKING)
            outcome = self._outcome(sent.step, came, live, latency_s)
        self._finish(outcome)
        self._over(call)
        if self._unmade.note(call, live.record):
            for key, waiting in list(self._sent.items()):
                if (reason := self._unmade.reason(waiting.call)) is not None:
                    del self._sent[key]
                    self._give_up(waiting.step, "failed", reason)
        return True

    def _take_request(self, event: RequestArrived) -> bool:
        live = self._live.decode(event.message, event.tensors)
        sender, role = self._inputs.captured_name(event.sender), self._role(event.peer)
        self.leftovers.came(role, sender, live.record)
        match = self._expected.match(sender, role, live)
        kind = type_name(event.message.type)
        if match is None:
            why = self._expected.why_not(sender, role, live)
            result, why = self._unexpected(event, live.record, sender, why)
            if event.doubtful and result == "different":
                result, why = None, AMBIGUOUS_SENDER
            one = InboundOutcome(captured=None, type=kind, sender=sender, role=role, result=result, text=why)
            self.inbound.append(one)
            return False
        step = self._steps[match.call.index]
        if self._debugger is not None:
            self._debugger.came(live.record, live.read, match.call, sender, answers=False)
        came = judged(match.call.request, live.record, match.differences, self._inputs)
        if event.doubtful and came.result == "different":
            came = replace(came, result=None, text=AMBIGUOUS_SENDER)
        expected = step.action == "answer" and step.message not in self._outcomes
        given = step.action == "answer" or step.spare is not None
        shown = asdict(came if given else replace(came, text=f"refused: {step.text}"))
        one = InboundOutcome(captured=match.call.index, type=kind, sender=sender, role=role, **shown)
        self.inbound.append(one)
        if not given:
            if step.code == "missing-bytes" or lacks_answer(match.call, step):
                self._refuse_lacking(event, live.record)
            else:
                self._reply(event, refusal())
            return True
        outcome = self._outcome(as_answered(step), came, live)
        if expected:
            self._requests[step.message] = event
            self._finish(outcome)
            self._schedule.asked(step.message)
        else:  # nothing waits for it, and it waits for nothing
            self._outcomes[step.message] = outcome
            self._give(outcome.step, event)
        return True

    def _take_silence(self, event: Unanswered) -> bool:
        sent = self._sent.pop((event.peer, event.message_id), None)
        if sent is None:
            return False
        if sent.step.one_way:
            self._give_up(sent.step, None, NO_ANSWER)
        elif sent.call.response is None:
            text = f"as in the capture, no answer came; waited {event.timeout_s:.1f} s"
            self._give_up(sent.step, "identical", text)
        else:
            self._timeouts.disappointed(sent.call)
            self._give_up(sent.step, "unanswered", f"no answer within {event.timeout_s:.1f} s")
        return True

    def _take_refusal(self, event: NotSent) -> bool:
        sent = self._sent.pop((event.peer, event.message_id), None)
        if sent is not None:
            self._give_up(sent.step, "failed", f"not sent: {event.reason}")
        return sent is not None

    def _take_loss(self, event: PipeLost) -> bool:
        keys = [(event.peer, number) for number in event.unanswered if (event.peer, number) in self._sent]
        known = event.other in self._ended_as_captured
        ended = self._ended_meanwhile() if keys and not known else None
        text = f"the pipe to {event.other} was lost: {event.reason}"
        if ended is not None:
            text = ended.text if ended.worker in (event.other, event.peer) else f"{text}; {ended.text}"
        for sent in [self._sent.pop(key) for key in keys]:
            if not self._is_lost_as_captured(sent.step):
                self._give_up(sent.step, "failed", text)
        return bool(keys)

    def _is_lost_as_captured(self, step: Step) -> bool:
        """Gives up a request to a live worker that is gone, as it was in the capture, where no answer came
        either; returns whether that is so."""
        how = self._ended_as_captured.get(step.to)
        same = how is not None and self._call(step).response is None
        if same:
            self._give_up(step, "identical", f"as in the capture, no answer came: {how}")
        return same

    def _ended_meanwhile(self) -> EarlyExit | None:
        """The process that has ended, if that is why a pipe was lost; sockets are closed before it is known
        how their process ended."""
        began = time.monotonic()
        found = self._first_ended(self._grace_s)
        self._grace_s = max(self._grace_s - (time.monotonic() - began), 0.0)
        if found is not None:
            self._gone[found.worker or ""] = found.text
        return found

    def _give_up(self, step: Step, result: Result | None, text: str) -> None:
        """A request that was to be sent ends without an answer."""
        self._finish(StepOutcome(step=step, result=result, text=text))
        self._over(self._call(step))

    def _over(self, call: Exchange) -> None:
        """Notes that nothing more comes for a request that was to be sent."""
        if self._debugger is not None:
            self._debugger.over(call)
        self._timeouts.over(call)
        self._schedule.answered(call.index)
        if call.answer is not None:
            self._schedule.arrived(call.answer)

    def _outcome(
        self, step: Step, came: MessageOutcome, live: LiveMessage, latency_s: float | None = None
    ) -> StepOutcome:
        """Returns the outcome of a step, with a live message that differs, if it is to be kept."""
        kept = self._inputs.kept
        if kept is None or came.result != "different":
            return StepOutcome(step=step, latency_s=latency_s, **asdict(came))
        return StepOutcome(step=step, latency_s=latency_s, live=kept.keep(live), **asdict(came))

    # --- what was not captured ------------------------------------------------------------------------------

    def _unexpected(
        self, event: RequestArrived, record: RpcRecord, sender: str, why: str
    ) -> tuple[Result | None, str]:
        """A request that no captured one is like, and why: housekeeping is acknowledged, everything else
        refused."""
        answer = acknowledgement(record)
        if sender in self._inputs.planned.unheard:
            self._refuse_lacking(event, record)
            return None, f"nothing that {sender} sent is recorded"
        if answer is None:
            self._reply(event, refusal())
            return "different", why
        self._reply(event, answer)
        return None, f"{why}; acknowledged: the program does not decide when RRefs and contexts are deleted"

    def _refuse_lacking(self, event: RequestArrived, record: RpcRecord) -> None:
        """A request whose answer the recording lacks; it is refused if that answer told anything."""
        answer = acknowledgement(record) or receipt(record)
        self._refused_lacking |= answer is None
        self._reply(event, refusal() if answer is None else answer)

    def _reply(self, event: RequestArrived, message: RpcMessage) -> None:
        with contextlib.suppress(ReplayError):  # it reads nothing of what it is sent
            self._peers[self._role(event.peer)].answer(event, message)

    def _role(self, peer: str) -> str:
        """The worker that a peer of this name stands for."""
        return self._roles.get(peer) or self._inputs.captured_name(peer)

"""What a session sends: planned requests, and captured answers to live workers' requests.

In: messages that are due. Out: the same with the ids of this run, on their way; what can't be sent is given
up.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from rpcinspect.equality.ids import WORKER
from rpcinspect.errors import ReplayError
from rpcinspect.replayer.peers.loop import Handle, Loop, RequestArrived
from rpcinspect.replayer.planning.model import Step
from rpcinspect.replayer.playing.debugging import Wait
from rpcinspect.replayer.playing.outcome import StepOutcome
from rpcinspect.replayer.playing.process_ends import ProcessEnds
from rpcinspect.replayer.playing.progress import SentRequest, SessionProgress
from rpcinspect.replayer.playing.rref_substitutes import load
from rpcinspect.replayer.playing.translate import learn_own_edge, learn_own_fork, learn_sent, translate
from rpcinspect.replayer.playing.uncaptured import refusal
from rpcinspect.rpc.message import MessageType, RpcMessage
from rpcinspect.run.exchanges import Exchange


class Sender:
    """Sends the messages of a session."""

    def __init__(
        self,
        progress: SessionProgress,
        ends: ProcessEnds,
        loop: Loop,
        handle: Handle,
        clean_up: Callable[[int], None],
        wait_for: Callable[[Wait], None],
    ) -> None:
        """`clean_up` is called with a context before it is cleaned up; `wait_for` goes on with all but
        requests until a debugger lets one be sent."""
        self._progress = progress
        self._ends = ends
        self._loop = loop
        self._handle = handle
        self._clean_up = clean_up
        self._wait_for = wait_for
        self._inputs = inputs = progress.inputs
        self._ids = inputs.ids
        planned, joined = inputs.planned, inputs.ids_in_group
        self._loads = list(planned.loads)
        """What is still to be put into objects of live workers."""
        self._live_ids = frozenset([joined[name] for name in planned.cast.live if name in joined])
        for name, worker_id in joined.items():
            self._ids.carried(WORKER, inputs.worker_ids[name], worker_id)
        to_itself = [step for step in planned.steps if step.action == "send" and step.role == step.to]
        for number, step in enumerate(to_itself):  # others may use its object before it is sent
            learn_own_fork(progress.call(step).request, self._ids, number)
            if step.role in inputs.programs:
                learn_own_edge(progress.call(step).request, self._ids)

    def send(self, step: Step) -> None:
        """Sends what is due for a step: its request, or the answer to the live one that repeats it."""
        if step.action == "send":
            self._send_request(step)
        else:
            self.give(step, self._progress.asked.pop(step.message))

    def _load(self, owner: str) -> None:
        """Puts values into objects of a live worker that it has by now."""
        outcomes = self._progress.outcomes
        for one in [one for one in self._loads if one.owner == owner]:
            if one.after is None or one.after in outcomes:
                self._loads.remove(one)
                peer = next(iter(self._progress.peers.values()))
                load(self._inputs, one, self._loop, peer, self._handle)

    def _send_request(self, step: Step) -> None:
        self._load(step.to)
        progress, inputs = self._progress, self._inputs
        call, peer, debugger = progress.call(step), progress.peers[step.role], progress.debugger
        if self._ends.lost_as_captured(step):
            return
        reason = self._ends.why_gone(step) or progress.unmade.reason(call)
        if reason is not None:
            progress.give_up(step, "failed", f"not sent: {reason}")
            return
        try:
            message = translate(call.request, self._ids, self._live_ids, inputs.programs.get(step.role))
            storages = inputs.storages(call.request)
            if call.kind == MessageType.CLEANUP_AUTOGRAD_CONTEXT_REQ and call.context is not None:
                self._clean_up(call.context)
            if debugger is not None:
                self._wait_for(debugger.before(step, call, message, storages))
            to, timeout_s = inputs.live_name(step.to), progress.timeouts.for_answer(call)
            message_id = peer.send(to, message, storages, timeout_s=timeout_s)
        except ReplayError as error:
            progress.give_up(step, "failed", f"not sent: {self._not_told(call) or error}")
            return
        learn_sent(call.request, self._ids)
        progress.leftovers.sent(step.role, step.to, call.request)
        progress.sent[peer.name, message_id] = SentRequest(step, call, time.monotonic())
        progress.last[step.to] = progress.last[step.role] = step.message
        if step.message in inputs.early and call.answer is not None:
            progress.schedule.arrived(call.answer)

    def _not_told(self, call: Exchange) -> str | None:
        """Returns which answer in the context of a call did not come as captured: it may have brought ids."""
        missing = [
            one.step.message
            for one in self._progress.outcomes.values()
            if one.step.action == "send"
            and one.result in ("failed", "unanswered", "different")
            and self._progress.call(one.step).context == call.context
        ]
        if call.context is None or not missing:
            return None
        return f"may depend on the answer to #{min(missing)}, which did not come as captured"

    def give(self, step: Step, event: RequestArrived) -> None:
        """Answers a live request as the captured one that it repeats was."""
        call, progress = self._progress.call(step), self._progress
        if call.response is None:
            return  # nor was that one
        try:
            message = translate(call.response, self._ids, self._live_ids)
            given = progress.peers[step.role].answer(event, message, self._inputs.storages(call.response))
        except ReplayError as error:
            self._fail_answer(step, str(error))
            self.reply(event, refusal())
            return
        if not given:
            self._fail_answer(step, "the pipe is lost")
            return
        learn_sent(call.response, self._ids)
        if call.answer is not None:
            progress.last[step.to] = progress.last[step.role] = call.answer

    def _fail_answer(self, step: Step, why: str) -> None:
        text = f"the answer was not sent: {why}"
        self._progress.outcomes[step.message] = StepOutcome(step=step, result="failed", text=text)

    def reply(self, event: RequestArrived, message: RpcMessage) -> None:
        """Answers a live request that repeats no captured one, or none that was answered."""
        with contextlib.suppress(ReplayError):  # it reads nothing of what it is sent
            self._progress.peers[self._progress.roles[event.peer]].answer(event, message)

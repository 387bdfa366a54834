"""What a session has sent, and what came of it so far: what sending, receiving and waiting have in common.

In: a session's inputs, the peers that play, and each end of a request. Out: the requests that are on their
way, and the outcome of every step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from rpcinspect.replayer.peers.loop import RequestArrived
from rpcinspect.replayer.planning.model import Step
from rpcinspect.replayer.playing.debugging import SessionDebugger
from rpcinspect.replayer.playing.inputs import PlayedWorker, SessionInputs
from rpcinspect.replayer.playing.outcome import AMBIGUOUS, InboundOutcome, Result, StepOutcome
from rpcinspect.replayer.playing.schedule import Schedule
from rpcinspect.replayer.playing.timeouts import Timeouts
from rpcinspect.replayer.playing.uncaptured import Leftovers
from rpcinspect.replayer.workers.process_exit import EarlyExit
from rpcinspect.rpc.questions import HOUSEKEEPING, created, failed, rref_of
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.run.exchanges import Exchange
from rpcinspect.session.provenance import Id


class SentRequest(Struct):
    """A request that is on its way."""

    step: Step
    call: Exchange
    at: float
    """Monotonic seconds."""


class UnmadeRRefs:
    """RRefs that live workers failed to make, though they did in the capture: who needs one would wait."""

    def __init__(self) -> None:
        self._makers: dict[Id, int] = {}
        """RRef → the request that was to make it."""

    def note(self, call: Exchange, live: RpcRecord) -> bool:
        """Takes the live answer to a request; returns whether it has failed to make an RRef."""
        made = created(call.request)
        if made is None or not failed(live) or call.response is None or failed(call.response):
            return False
        self._makers[made[0]] = call.index
        return True

    def reason(self, call: Exchange) -> str | None:
        """Returns which RRef that a request needs was not made; None where it has all."""
        if not self._makers:
            return None
        needed = {fork.rref_id for fork in call.request.facts.forks} | {rref_of(call.request)}
        rref = next((rref for rref in needed if rref in self._makers), None)
        if rref is None:
            return None
        return f"it needs RRef {rref[0]}:{rref[1]}, which #{self._makers[rref]} was to make and did not"


class SessionProgress:
    """The state of a session that is played."""

    def __init__(
        self,
        inputs: SessionInputs,
        peers: Mapping[str, PlayedWorker],
        timeouts: Timeouts,
        schedule: Schedule,
        *,
        debugger: SessionDebugger | None = None,
        done: Callable[[StepOutcome], None] = lambda outcome: None,
    ) -> None:
        """`peers` by the worker that they play; `done` is called with each finished step."""
        self.inputs = inputs
        self.peers = peers
        self.roles = {peer.name: role for role, peer in peers.items()}
        self.timeouts = timeouts
        self.schedule = schedule
        self.debugger = debugger
        self._done = done
        self.steps = {step.message: step for step in inputs.planned.steps}
        self.sent: dict[tuple[str, int], SentRequest] = {}
        """(peer, message id) → request without an answer."""
        self.asked: dict[int, RequestArrived] = {}
        """Captured request → the live one that repeats it and is not answered yet."""
        self.outcomes: dict[int, StepOutcome] = {}
        self.inbound: list[InboundOutcome] = []
        self.failure: str | None = None
        self.last: dict[str, int] = {}
        """Worker → index of the message that it got last."""
        self.unmade = UnmadeRRefs()
        self.leftovers = Leftovers(inputs.ids, inputs.ids_in_group)

    def call(self, step: Step) -> Exchange:
        """The captured request of a step, with its answer."""
        return self.inputs.calls[step.message]

    def renew(self, key: tuple[str, int]) -> None:
        """Gives a request that was sent as much time again."""
        name, message_id = key
        self.peers[self.roles[name]].renew(message_id)

    def finish(self, outcome: StepOutcome) -> None:
        """Notes what came of a step."""
        self.outcomes[outcome.step.message] = outcome
        self._done(outcome)

    def give_up(self, step: Step, result: Result | None, text: str) -> None:
        """A request that was to be sent ends without an answer."""
        self.finish(StepOutcome(step=step, result=result, text=text))
        self.over(self.call(step))

    def over(self, call: Exchange) -> None:
        """Notes that nothing more comes for a request that was to be sent."""
        if self.debugger is not None:
            self.debugger.over(call)
        self.timeouts.over(call)
        self.schedule.answered(call.index)
        if call.answer is not None:
            self.schedule.arrived(call.answer)

    def end(self, reason: str) -> None:
        """A live worker is gone: the session can't go on."""
        self.failure = reason
        for sent in self.sent.values():
            self.finish(StepOutcome(step=sent.step, result="failed", text=reason))
        self.sent.clear()

    def with_last(self, ended: Iterable[EarlyExit]) -> tuple[EarlyExit, ...]:
        """Adds the message that each process got last."""
        return tuple(replace(one, last_message=self.last.get(one.worker or "")) for one in ended)

    def all_outcomes(self) -> tuple[StepOutcome, ...]:
        """Returns the outcome of each step of the plan, in its order."""
        steps = self.inputs.planned.steps
        return tuple(self.outcomes.get(step.message) or self._unfinished(step) for step in steps)

    def _unfinished(self, step: Step) -> StepOutcome:
        if step.action == "skip":
            return StepOutcome(step=step, result=None)
        if step.action == "send" or self.failure is not None:
            return StepOutcome(step=step, result="failed", text=self.failure or "it was never sent")
        if self.call(step).kind in HOUSEKEEPING:
            text = "the live worker did not send it: its program does not decide when RRefs are deleted"
            return StepOutcome(step=step, result=None, text=text)
        if step.doubt:
            return StepOutcome(step=step, result=None, text=AMBIGUOUS)
        return StepOutcome(step=step, result="unanswered", text=f"{step.to} never sent it")

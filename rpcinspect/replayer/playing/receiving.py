"""What comes from live workers in a session: answers, requests, and that nothing comes.

In: events of the loop. Out: what came of steps and of requests, compared with the captured ones; what live
workers ask for is answered. `Expected` knows which captured request a live one repeats.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from msgspec.structs import asdict, replace

from rpcinspect.equality.difference import Difference, verdict
from rpcinspect.equality.messages import same_payload
from rpcinspect.replayer.peers.loop import (
    Handle,
    NotSent,
    PeerEvent,
    RequestArrived,
    ResponseArrived,
    Unanswered,
)
from rpcinspect.replayer.planning.model import PlannedSession, Spare, Step
from rpcinspect.replayer.planning.steps import NO_ANSWER
from rpcinspect.replayer.playing.inputs import SessionInputs
from rpcinspect.replayer.playing.matching import Expected
from rpcinspect.replayer.playing.outcome import (
    AMBIGUOUS_SENDER,
    InboundOutcome,
    MessageOutcome,
    Result,
    StepOutcome,
)
from rpcinspect.replayer.playing.process_ends import ProcessEnds
from rpcinspect.replayer.playing.progress import SessionProgress
from rpcinspect.replayer.playing.sending import Sender
from rpcinspect.replayer.playing.translate import LiveMessage, LiveRecords
from rpcinspect.replayer.playing.uncaptured import acknowledgement, receipt, refusal, refused_here, too_much
from rpcinspect.rpc.message import type_name
from rpcinspect.rpc.questions import missing_bytes, uncertain
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.run.exchanges import Exchange

NOT_ALL_CAPTURED = "some bytes of the captured one are missing; all others are the same"
NEEDS_WHAT_IS_LACKING = "its function makes a request whose answer the recording lacks"

REFUSED = frozenset({"missing-bytes", "not-allowed", "unsupported"})
"""Why a live worker's request is skipped although it comes: its captured answer can't be given."""


class Receiver:
    """Takes what comes in a session."""

    def __init__(self, progress: SessionProgress, ends: ProcessEnds, sender: Sender, handle: Handle) -> None:
        """`handle` gets each event first."""
        self._progress = progress
        self._ends = ends
        self._sender = sender
        self._handle = handle
        self._inputs = inputs = progress.inputs
        asked, spare = may_come(inputs.planned, inputs.calls)
        self._expected = Expected(inputs, asked, spare)
        self._live = LiveRecords()
        self._refused_lacking = False
        """Whether a live worker was refused something for which the recording lacks the answer."""

    def take(self, event: PeerEvent) -> bool:
        """Whether it was one of those that were waited for. Others come as often as a live worker likes, and
        must not make the session last."""
        if self._handle(event):
            return False
        if isinstance(event, ResponseArrived):
            return self._take_answer(event)
        if isinstance(event, RequestArrived):
            return self._take_request(event)
        if isinstance(event, (Unanswered, NotSent)):
            return self._take_silence(event)
        return self._ends.lost(event)

    def _take_answer(self, event: ResponseArrived) -> bool:
        progress, inputs = self._progress, self._inputs
        sent = progress.sent.pop((event.peer, event.message.id), None)
        if sent is None:
            return False  # it came after it was given up
        call, step = sent.call, sent.step
        live = self._live.decode(event.message, event.tensors)
        progress.leftovers.came(step.role, step.to, live.record)
        if progress.debugger is not None:
            progress.debugger.came(live.record, live.read, call, call.callee, answers=True)
        latency_s = time.monotonic() - sent.at
        if call.response is None:
            outcome = too_much(step, live.record, latency_s, cut_off=progress.timeouts.cut_off(call))
        else:
            found = inputs.compare(call.response, live)
            came = judged(call.response, live.record, found, inputs)
            if self._refused_lacking and came.result == "different" and refused_here(live.record):
                came = replace(came, result=None, text=NEEDS_WHAT_IS_LACKING)
            outcome = self._outcome(step, came, live, latency_s)
        progress.finish(outcome)
        progress.over(call)
        if progress.unmade.note(call, live.record):
            for key, waiting in list(progress.sent.items()):
                if (reason := progress.unmade.reason(waiting.call)) is not None:
                    del progress.sent[key]
                    progress.give_up(waiting.step, "failed", reason)
        return True

    def _outcome(
        self, step: Step, came: MessageOutcome, live: LiveMessage, latency_s: float | None = None
    ) -> StepOutcome:
        """Returns the outcome of a step, with a live message that differs, if it is to be kept."""
        kept = self._inputs.kept
        if kept is None or came.result != "different":
            return StepOutcome(step=step, latency_s=latency_s, **asdict(came))
        return StepOutcome(step=step, latency_s=latency_s, live=kept.keep(live), **asdict(came))

    def _take_request(self, event: RequestArrived) -> bool:
        progress = self._progress
        live = self._live.decode(event.message, event.tensors)
        sender, role = self._inputs.captured_name(event.sender), progress.roles[event.peer]
        progress.leftovers.came(role, sender, live.record)
        match = self._expected.match(sender, role, live)
        if match is None:
            self._take_unexpected(event, live, sender, role)
            return False
        step = progress.steps[match.call.index]
        if progress.debugger is not None:
            progress.debugger.came(live.record, live.read, match.call, sender, answers=False)
        came = judged(match.call.request, live.record, match.differences, self._inputs)
        if event.doubtful and came.result == "different":
            came = replace(came, result=None, text=AMBIGUOUS_SENDER)
        if step.action != "answer" and step.spare is None:
            self._note(event, sender, role, replace(came, text=f"refused: {step.text}"), step.message)
            if step.code == "missing-bytes" or lacks_answer(match.call, step):
                self._refuse_lacking(event, live.record)
            else:
                self._sender.reply(event, refusal())
            return True
        self._note(event, sender, role, came, step.message)
        outcome = self._outcome(as_answered(step), came, live)
        if step.action == "answer" and step.message not in progress.outcomes:
            progress.asked[step.message] = event
            progress.finish(outcome)
            progress.schedule.asked(step.message)
        else:  # nothing waits for it, and it waits for nothing
            progress.outcomes[step.message] = outcome
            self._sender.give(outcome.step, event)
        return True

    def _take_unexpected(self, event: RequestArrived, live: LiveMessage, sender: str, role: str) -> None:
        """A request that no captured one is like: housekeeping is acknowledged, everything else refused."""
        result: Result | None = None
        answer, why = acknowledgement(live.record), self._expected.why_not(sender, role, live)
        if sender in self._inputs.planned.unheard:
            self._refuse_lacking(event, live.record)
            why = f"nothing that {sender} sent is recorded"
        elif answer is None:
            self._sender.reply(event, refusal())
            result, why = (None, AMBIGUOUS_SENDER) if event.doubtful else ("different", why)
        else:
            self._sender.reply(event, answer)
            why += "; acknowledged: the program does not decide when RRefs and contexts are deleted"
        self._note(event, sender, role, MessageOutcome(result=result, text=why))

    def _note(
        self, event: RequestArrived, sender: str, role: str, came: MessageOutcome, captured: int | None = None
    ) -> None:
        """Notes what came of a request of a live worker."""
        kind = type_name(event.message.type)
        one = InboundOutcome(captured=captured, type=kind, sender=sender, role=role, **asdict(came))
        self._progress.inbound.append(one)

    def _refuse_lacking(self, event: RequestArrived, record: RpcRecord) -> None:
        """A request whose answer the recording lacks; it is refused if that answer told anything."""
        answer = acknowledgement(record) or receipt(record)
        self._refused_lacking |= answer is None
        self._sender.reply(event, refusal() if answer is None else answer)

    def _take_silence(self, event: Unanswered | NotSent) -> bool:
        progress = self._progress
        sent = progress.sent.pop((event.peer, event.message_id), None)
        if sent is None:
            return False
        if isinstance(event, NotSent):
            progress.give_up(sent.step, "failed", f"not sent: {event.reason}")
        elif sent.step.one_way:
            progress.give_up(sent.step, None, NO_ANSWER)
        elif sent.call.response is None:
            text = f"as in the capture, no answer came; waited {event.timeout_s:.1f} s"
            progress.give_up(sent.step, "identical", text)
        else:
            progress.timeouts.disappointed(sent.call)
            progress.give_up(sent.step, "unanswered", f"no answer within {event.timeout_s:.1f} s")
        return True


def judged(
    captured: RpcRecord, live: RpcRecord, found: Sequence[Difference], inputs: SessionInputs
) -> MessageOutcome:
    """Returns what came of a message. Differences of devices are left out: the replay decides where tensors
    lie. Nothing is known of bytes that were not captured: where all others are equal, the message is neither
    that nor different."""
    codes = ("device", "device-map") if inputs.elsewhere else ("device",)
    its = tuple(difference for difference in found if difference.code not in codes)
    result: Result | None = verdict(its, inputs.rules)
    text = None
    if missing_bytes(captured) or uncertain(captured):
        known = [difference for difference in its if difference.code != "unknown"]
        if len(known) < len(its) and verdict(known, inputs.rules) != "different":
            result, text = None, NOT_ALL_CAPTURED
    same = same_payload(captured, live)
    return MessageOutcome(result=result, differences=its, text=text, same_payload=same)


def may_come(
    planned: PlannedSession, calls: Mapping[int, Exchange]
) -> tuple[list[Exchange], dict[Spare, list[Exchange]]]:
    """The captured requests of live workers to played ones: those that are to come, be it without getting the
    captured answer, and those that the plan leaves out."""
    expected: list[Exchange] = []
    spare: dict[Spare, list[Exchange]] = {"like": [], "equal": []}
    cast = planned.cast
    for step in planned.steps:
        call = calls.get(step.message)
        if call is None or call.control or call.caller not in cast.live:
            continue
        if call.callee not in cast.roles and not (call.caller == call.callee and step.action == "answer"):
            continue
        if step.action == "answer" or (step.spare is None and step.code in REFUSED):
            expected.append(call)
        else:
            spare[step.spare or "equal"].append(call)
    return expected, spare


def lacks_answer(call: Exchange, step: Step) -> bool:
    """Returns whether the answer to a request was not captured, or not all of it."""
    answer = call.response
    return step.one_way or (answer is not None and bool(missing_bytes(answer) or uncertain(answer)))


def as_answered(step: Step) -> Step:
    """A step that the plan leaves out, once its request has come all the same."""
    if step.action == "answer":
        return step
    text = f"the plan leaves it out ({step.text}), but it came"
    return replace(step, action="answer", code=None, text=text)

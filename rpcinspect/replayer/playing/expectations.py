"""What a session expects of live workers, and how it judges what comes.

In: a planned session, its captured messages, differences that were found. Out: the captured requests that
live workers may send, the result of a message, and which requests wait for RRefs that were not made here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from rpcinspect.equality.difference import Difference, verdict
from rpcinspect.equality.messages import same_payload
from rpcinspect.replayer.planning.model import PlannedSession, Spare, Step
from rpcinspect.replayer.playing.inputs import SessionInputs
from rpcinspect.replayer.playing.outcome import MessageOutcome, Result
from rpcinspect.rpc.questions import created, failed, missing_bytes, rref_of, uncertain
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.run.exchanges import Exchange
from rpcinspect.session.provenance import Id


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


NOT_ALL_CAPTURED = "some bytes of the captured one are missing; all others are the same"
NEEDS_WHAT_IS_LACKING = "its function makes a request whose answer the recording lacks"

REFUSED = frozenset({"missing-bytes", "not-allowed", "unsupported"})
"""Why a live worker's request is skipped although it comes: its captured answer can't be given."""

"""What came of a replay: every step and every request of a live worker with its result, as plain records, and
the likely reason of a difference in a sentence.

Made by the engine, read by the report and the views. Message numbers are indexes, as in the plan.

`with_reasons`: where a replay parts from its capture, and what follows. A difference is a place of its own if
nothing before it was different already at the live worker that made it, or at one with which that exchanges
messages; what comes after may follow from it. Nothing follows through a played worker: whatever it gets, it
sends what was captured. What is said of the first is a guess from how the values differ, and worded as one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from rpcinspect.equality.difference import Difference, Nature, nature_of
from rpcinspect.replayer.planning.model import Plan, PlannedSession, Step
from rpcinspect.replayer.playing.translate import LiveMessage
from rpcinspect.replayer.workers.live_group import LeafGradient
from rpcinspect.replayer.workers.process_exit import NO_MEMORY, EarlyExit
from rpcinspect.replayer.workers.seeds import Seeds
from rpcinspect.run.exchanges import Exchange

AMBIGUOUS = "ambiguous: it was not sent, and may be part of a request that does not take place here"
"""Of a step with a doubt whose request did not come."""
AMBIGUOUS_SENDER = "ambiguous: torch's agent does not tell which of several workers sent it"
"""Of a request that differs from the one that it was taken for."""
Result = Literal["identical", "tolerance", "different", "failed", "unanswered"]
"""`failed`: it could not be sent, or the pipe or the worker was lost; `unanswered`: nothing came in time
although the capture has something. A request without an answer in both is identical."""


class MessageOutcome(Struct, frozen=True, kw_only=True):
    """What came of a message, compared with the captured one."""

    result: Result | None
    differences: tuple[Difference, ...] = ()
    """`a` is captured, `b` is live."""
    text: str | None = None
    """Why it failed; the likely reason of a difference."""
    same_payload: bool | None = None
    """Whether the live payload has the captured bytes; None where there was nothing to compare."""


T = TypeVar("T", bound=MessageOutcome)


class StepOutcome(MessageOutcome, frozen=True, kw_only=True):
    """The result of one step of the plan.

    Of a `send` it is the answer's; of an `answer` it is that of the request to which the captured answer was
    given, `unanswered` if the live worker never sent it. None of skips, of housekeeping that never came, and
    of answers that the capture can't have, since it ends before them.
    """

    step: Step
    latency_s: float | None = None
    """From sending to the whole answer, of a `send`."""
    live: LiveMessage | None = None
    """What came, of those that differ, where it was to be kept and there was room."""


class InboundOutcome(MessageOutcome, frozen=True, kw_only=True):
    """A request of a live worker to a played one; no result: it was not captured and tells nothing, such as
    the going of an RRef."""

    captured: int | None
    """Index of the captured request that it repeats; None: it repeats none, `text` says why."""
    type: str
    """Outermost type of the live one."""
    sender: str
    role: str
    """The played worker that was asked."""


class SessionOutcome(Struct, frozen=True, kw_only=True):
    """The outcome of one session."""

    planned: PlannedSession
    steps: tuple[StepOutcome, ...]
    """One for each step of the plan, in its order."""
    inbound: tuple[InboundOutcome, ...]
    """In the order in which they came."""
    wall_s: float
    """From the first message to the last; without starting the workers."""
    failure: str | None = None
    """Why it could not begin, or ended early; then the steps that did not take place are `failed`."""
    gradients: Mapping[str, Mapping[int, tuple[LeafGradient, ...]]] | None = None
    """Live worker → context → what its leaves held at the end, if that was asked for."""
    ended: tuple[EarlyExit, ...] = ()
    """The processes that ended early, the first first."""


def not_played(planned: PlannedSession, why: str | None) -> tuple[StepOutcome, ...]:
    """The steps of a session that did not take place: all failed, but for those that the plan leaves out."""
    return tuple(
        StepOutcome(step=step, result=None)
        if step.action == "skip"
        else StepOutcome(step=step, result="failed", text=why)
        for step in planned.steps
    )


class FoundSeed(Struct, frozen=True, kw_only=True):
    """A seed of a live worker with which its own messages are as captured, and without which they differ."""

    worker: str
    seed: int
    explains: tuple[int, ...]
    """Indexes of requests: of those that it sent, and of those whose answers it made."""


class SeedSearch(Struct, frozen=True, kw_only=True):
    """The result of looking for seeds in one session."""

    session: int
    tries: range
    """The seeds that were to be tried."""
    tried: int
    """How many were; a seed that was tried in several passes counts each time."""
    wall_s: float
    found: tuple[FoundSeed, ...]
    missing: Mapping[str, int]
    """Live worker → request with its first message that is not as captured, and that no seed explains."""
    out_of_time: bool
    failure: str | None
    """Why nothing could be tried: the session itself ended early."""

    def seeds(self, given: Seeds) -> Seeds:
        """Returns the given seeds with those that were found."""
        return Seeds(everybody=given.everybody, own=given.own | {one.worker: one.seed for one in self.found})


class TrafficRecording(Struct, frozen=True, kw_only=True):
    """The capture that was made of the replay."""

    path: Path
    failure: str | None
    """Why it ends early. What no recording holds is said by `recorder.NOT_RECORDED`."""


class ReplayOutcome(Struct, frozen=True, kw_only=True):
    """The result of a whole replay."""

    plan: Plan
    runs: tuple[tuple[SessionOutcome, ...], ...]
    """Each repetition of the whole replay, with its sessions; none where nothing was replayed."""
    engine: Literal["wire", "agent"]
    device: str
    wall_s: float
    """Of everything, starting workers included."""
    captured_wall_s: float
    """From the first to the last message that was captured."""
    missed_stops: tuple[int, ...] = ()
    """Messages to stop at that no live worker got."""
    interrupted: bool = False
    recording: TrafficRecording | None = None
    searches: tuple[SeedSearch, ...] = ()
    """For seeds, before the first run, session by session."""


RANDOM = (
    "same request, zeros in different positions: probably dropout with another seed "
    "(--seed WORKER=N sets it, --search-seed FROM:TO looks for it)"
)
STATE = (
    "same request, different answer: the code has changed, or it uses state outside RPC "
    "(random numbers: try --seed or --search-seed; time, files, globals)"
)
WAITS = (
    "its function may take longer here (--timeout), or wait for something outside RPC, such as what its "
    "worker's own program does: a replay does not run that"
)
ROUNDING = (
    "equal but for rounding (--tolerance accepts that): other hardware, another number of threads "
    "(--threads) or another release of torch adds in another order"
)

EVENTS = (
    "other operators ran in the thread while it was profiled: those of another release of torch, or work for "
    "other messages, which is chance if everything else is identical"
)


FAILED_HERE = "it failed here: "
AFTER_A_GAP = "a worker lacks an earlier request, whose bytes were not all captured, and may act differently"


def with_reasons(
    steps: Sequence[StepOutcome], inbound: Sequence[InboundOutcome], calls: Mapping[int, Exchange]
) -> tuple[tuple[StepOutcome, ...], tuple[InboundOutcome, ...]]:
    """Differences with the likely reason; `calls` by the index of their request."""
    groups = _live_groups(steps, calls)
    first: dict[str, int] = {}
    """Live worker, and each that exchanges messages with it → request of the first difference."""
    told: dict[int, str] = {}
    for _, index, found in sorted(_different(steps, inbound, calls), key=itemgetter(0, 1)):
        places = _places(calls[index], groups)
        earlier = [first[place] for place in places if place in first and first[place] != index]
        told[index] = f"may follow from #{min(earlier)}" if earlier else _guess(found)
        for place in places:
            first.setdefault(place, index)
    gaps = _gaps(steps, calls)

    def explained(one: T, index: int | None) -> T:
        if one.result in ("different", "unanswered") and _after(gaps, index, calls):
            return replace(one, result=None, text=AFTER_A_GAP)
        if one.result == "different" and one.text is None and index in told:
            return replace(one, text=told[index])
        if one.result == "unanswered" and isinstance(one, StepOutcome):
            places = _places(calls[one.step.message], groups)
            earlier = [first[place] for place in places if place in first]
            return replace(one, text=f"{one.text}{_follows(one.step, earlier)}")
        return one

    return (
        tuple(explained(one, one.step.message) for one in steps),
        tuple(explained(one, one.captured) for one in inbound),
    )


def _follows(step: Step, differed: Sequence[int]) -> str:
    """Says why nothing came, as the end of a sentence; `differed`: the first requests for which something
    else came, of workers at the ends of this one."""
    earlier = [index for index in differed if step.action == "send" or index < step.message]
    if earlier:
        return f"; it may follow from #{min(earlier)}"
    return f"; {WAITS}" if step.action == "send" else ""


def _gaps(steps: Sequence[StepOutcome], calls: Mapping[int, Exchange]) -> dict[str, int]:
    """Worker → the first request that it lacks here, since the capture lacks bytes."""
    found: dict[str, int] = {}
    for step in (one.step for one in steps):
        if step.action == "skip" and step.code == "missing-bytes" and step.message in calls:
            name = step.to if step.sender == step.role else step.sender
            found[name] = min(step.message, found.get(name, step.message))
    return found


def _after(gaps: Mapping[str, int], index: int | None, calls: Mapping[int, Exchange]) -> bool:
    """Whether a worker at an end of a call lacks an earlier one."""
    if index is None:
        return False
    return any(gaps.get(name, index) < index for name in (calls[index].caller, calls[index].callee))


def _live_groups(steps: Sequence[StepOutcome], calls: Mapping[int, Exchange]) -> dict[str, set[str]]:
    """Returns live worker → the live workers that share its differences, by the messages between them."""
    played = {one.step.role for one in steps if one.step.action != "skip"}
    groups: dict[str, set[str]] = {}
    for call in calls.values():
        live = {call.caller, call.callee} - played
        for worker in live:
            groups.setdefault(worker, {worker})
        if not call.control:
            joined = set().union(*(groups[worker] for worker in live))
            groups |= dict.fromkeys(joined, joined)
    return groups


def _places(call: Exchange, groups: Mapping[str, set[str]]) -> set[str]:
    """The live workers at which a difference of a call shows again."""
    return groups.get(call.callee, set()) | groups.get(call.caller, set())


def _different(
    steps: Sequence[StepOutcome], inbound: Sequence[InboundOutcome], calls: Mapping[int, Exchange]
) -> Iterator[tuple[int, int, tuple[Difference, ...]]]:
    """Yields when a live worker made what is different, its request, and the differences."""
    for step in steps:
        made_ns = calls[step.step.message].end_ns if step.result == "different" else None
        if made_ns is not None and step.step.action == "send":
            yield made_ns, step.step.message, step.differences
    for one in inbound:
        if one.result == "different" and one.captured is not None:
            yield calls[one.captured].begin_ns, one.captured, one.differences


def _guess(differences: Sequence[Difference]) -> str:
    if {difference.code for difference in differences} == {"profile-events"}:
        return EVENTS
    for difference in differences:
        if difference.code == "error" and difference.a_value is None and isinstance(difference.b_value, str):
            line = error_line(difference.b_value)
            return f"{FAILED_HERE}{line}{_hint(line)}"
    return _REASONS[nature_of(differences)]


def _hint(line: str) -> str:
    """The option that may help against an error of a live worker, as the end of a sentence; or nothing."""
    if "ModuleNotFoundError" in line:
        return "; --path FOLDER lets live workers find a module"
    if any(words in line for words in NO_MEMORY):
        return "; --memory SIZE lets live workers take more"
    return ""


def error_line(text: str) -> str:
    """The line of an error in which Python names the exception; native errors have their frames after it."""
    lines = [line.strip() for line in text.replace("\\n", "\n").splitlines() if line.strip()]
    native = next((at for at, line in enumerate(lines) if at and line.startswith(_NATIVE)), len(lines))
    lines = lines[:native]
    named = [line for line in lines if _EXCEPTION.match(line)]
    return (named or lines or ["an error without a text"])[-1][:MAX_LINE]


MAX_LINE = 200
_NATIVE = "Exception raised from "
"""How the frames of a native error begin."""
_EXCEPTION = re.compile(r"(?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit|Iteration)\b.*")

_REASONS: Mapping[Nature, str] = {"rounding": ROUNDING, "mask": RANDOM, "other": STATE}

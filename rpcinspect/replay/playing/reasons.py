"""The likely reason of a difference, in a sentence: where a replay parts from its capture, and what follows.

In: what came of the steps of a session. Out: the same, with words. A difference is a place of its own if
nothing before it, at the same worker or in the same context, was different already; what comes after may
follow from it. What is said of the first is a guess from how the values differ, and is worded as one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from rpcinspect.equality.difference import Difference
from rpcinspect.equality.nature import Nature, nature_of
from rpcinspect.replay.playing.outcome import InboundOutcome, StepOutcome
from rpcinspect.replay.workers.ended import NO_MEMORY
from rpcinspect.run.exchanges import Exchange

RANDOM = (
    "the same request was answered otherwise, with zeros at other places: a random mask such as dropout's; "
    "the state of random numbers is not in a capture (outside-rpc); --search-seed FROM:TO looks for the seed"
)
STATE = (
    "the same request was answered otherwise: the function depends on something that RPC does not carry "
    "(outside-rpc), such as random numbers, time, files, or what its worker's own program had set"
)
WAITS = (
    "its function may take longer here (--timeout), or wait for something that RPC does not carry "
    "(outside-rpc), such as what its worker's own program does, which does not run here"
)
ROUNDING = (
    "equal but for rounding: sums were made in another order, by other hardware, another number of threads "
    "(--threads) or another release of torch"
)

EVENTS = (
    "other operators ran in the thread while it was profiled: those of another release of torch, or work for "
    "other messages, which is chance if all else is identical"
)


def with_reasons(
    steps: Sequence[StepOutcome], inbound: Sequence[InboundOutcome], calls: Mapping[int, Exchange]
) -> tuple[tuple[StepOutcome, ...], tuple[InboundOutcome, ...]]:
    """Differences with the likely reason; `calls` by the index of their request."""
    first: dict[object, int] = {}
    """Worker, or context → request of the first difference."""
    told: dict[int, str] = {}
    moments = [
        (calls[index].end_ns if sent else calls[index].begin_ns, index, found)
        for index, sent, found in _different(steps, inbound, calls)
    ]
    moments.sort(key=lambda moment: moment[:2])
    for _, index, found in moments:
        places = _places(calls[index])
        earlier = [first[place] for place in places if place in first and first[place] != index]
        told[index] = f"may follow from #{min(earlier)}" if earlier else _guess(found)
        for place in places:
            first.setdefault(place, index)
    return (
        tuple(_step_with_reason(one, told, first, calls) for one in steps),
        tuple(
            replace(one, text=told[one.captured])
            if one.result == "different" and one.text is None and one.captured in told
            else one
            for one in inbound
        ),
    )


def _step_with_reason(
    one: StepOutcome, told: Mapping[int, str], first: Mapping[object, int], calls: Mapping[int, Exchange]
) -> StepOutcome:
    index = one.step.message
    if one.result == "different" and one.text is None and index in told:
        return replace(one, text=told[index])
    if one.result == "unanswered" and one.step.action == "answer" and index in calls:
        earlier = [first[place] for place in _places(calls[index]) if first.get(place, index) < index]
        return replace(one, text=f"{one.text}; it may follow from #{min(earlier)}") if earlier else one
    if one.result == "unanswered" and one.step.action == "send":
        earlier = [first[place] for place in _places(calls[index]) if place in first]
        why = f"it may follow from #{min(earlier)}" if earlier else WAITS
        return replace(one, text=f"{one.text}; {why}")
    return one


def _places(call: Exchange) -> list[object]:
    """Where a difference shows again: at both workers, and in the context."""
    return [call.callee, call.caller, *([] if call.context is None else [("context", call.context)])]


def _different(
    steps: Sequence[StepOutcome], inbound: Sequence[InboundOutcome], calls: Mapping[int, Exchange]
) -> list[tuple[int, bool, tuple[Difference, ...]]]:
    """(request, whether it was sent by us, differences)"""
    found = [
        (one.step.message, True, one.differences)
        for one in steps
        if one.result == "different" and one.step.action == "send" and one.step.message in calls
    ]
    found += [
        (one.captured, False, one.differences)
        for one in inbound
        if one.result == "different" and one.captured is not None
    ]
    return [item for item in found if not item[1] or calls[item[0]].end_ns is not None]


def _guess(differences: Sequence[Difference]) -> str:
    if {difference.code for difference in differences} == {"profile-events"}:
        return EVENTS
    for difference in differences:
        if difference.code == "error" and difference.a_value is None and isinstance(difference.b_value, str):
            line = _last_line(difference.b_value)
            return f"it failed here: {line}{_hint(line)}"
    return _REASONS[nature_of(differences)]


def _hint(line: str) -> str:
    """Which option may help against an error of a live worker."""
    if "ModuleNotFoundError" in line:
        return "; --path FOLDER lets live workers find a module"
    if any(words in line for words in NO_MEMORY):
        return "; --memory SIZE lets live workers take more"
    return ""


def _last_line(text: str) -> str:
    """Where Python says which exception it was; native errors have their frames after it."""
    lines = [line.strip() for line in text.replace("\\n", "\n").splitlines() if line.strip()]
    named = [line for line in lines if _EXCEPTION.match(line)]
    return (named or lines or ["an error without words"])[-1][:MAX_LINE]


MAX_LINE = 200
_EXCEPTION = re.compile(r"(?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit|Iteration)\b.*")

_REASONS: Mapping[Nature, str] = {"rounding": ROUNDING, "mask": RANDOM, "other": STATE}

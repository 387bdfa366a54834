"""Where two runs part, what is likely behind it, and which differences only follow from others.

In: the messages of both runs in one causal order, with their differences. Out: for each different message the
one that it follows from, and an `Explanation` of the first. A different answer to an equal request is a place
where the runs part, and so is a different request of a worker that nothing different has reached. All else
follows: the answer to a different request, and whatever a worker sends after something different has come to
it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from rpcinspect.diff.model import Aligned, Explanation, Found, Likely
from rpcinspect.diff.side import DiffSide
from rpcinspect.equality.difference import Difference, nature_of

ONE_SIDED = frozenset({"missing", "extra", "repeated"})
DEVICES = frozenset({"dtype", "device", "device-map", "quantizer"})


class _Guess(Struct, frozen=True):
    likely: Likely
    text: str


def with_causes(messages: Sequence[Aligned], found: Sequence[Found]) -> list[Found]:
    """The differences, each with the message that it follows from."""
    causes = _causes(messages, {one.message for one in found if _parts(one)})
    return [
        replace(one, follows=causes[one.message]) if causes.get(one.message) is not None else one
        for one in found
    ]


def explain(
    messages: Sequence[Aligned], found: Sequence[Found], a: DiffSide, b: DiffSide
) -> Explanation | None:
    """The first difference that counts, explained; None if there is none. What can't be compared since bytes
    were not captured comes after all that is known to differ."""
    counting = [place for place, one in enumerate(found) if one.counts]
    known = [place for place in counting if found[place].difference.code != "unknown"]
    if not counting:
        return None
    place = found[(known or counting)[0]].message
    its = [one.difference for one in found if one.message == place and one.counts]
    first = min(
        (at for at in counting if found[at].message == place),
        key=lambda at: (_telling(found[at].difference.code), at),
    )
    message = messages[place]
    guess = _guess(messages, message, its, a, b)
    roots = _roots({one.message: one.follows for one in found if _parts(one)})
    beside = sorted(set(roots.values()) - {place})
    return Explanation(
        found=first,
        likely=guess.likely,
        text=guess.text,
        worker=message.source,
        function=message.function,
        following=sum(root == place for root in roots.values()) - (place in roots),
        beside=tuple(beside),
        alike=_alike(found, place, beside),
    )


def _alike(found: Sequence[Found], place: int, beside: Sequence[int]) -> tuple[int, ...]:
    """Of messages at which the runs part, those in which the same differs as in the first one."""
    wanted = {place, *beside}
    its: dict[int, list[str]] = defaultdict(list)
    for one in found:
        if one.message in wanted and one.counts:
            told = one.difference
            its[one.message].append(repr((told.code, told.path, told.a_value, told.b_value, told.elements)))
    return tuple(other for other in beside if its[other] == its[place])


def _telling(code: str) -> int:
    """Of a message's differences, the lowest is the one to begin with: an error has no autograd envelope."""
    return 0 if code == "error" else 2 if code in ("envelope", "profile-events", "unknown") else 1


def _parts(one: Found) -> bool:
    """Whether a difference can be the cause of others."""
    return one.counts and one.difference.code not in ("reordered", "unknown")


def _causes(messages: Sequence[Aligned], different: set[int]) -> dict[int, int | None]:
    """Returns different message → the one that it follows from, directly, which stands before it."""
    causes: dict[int, int | None] = {}
    arrived: dict[str, int] = {}
    """Worker → the latest different message that has come to it."""
    for place in sorted(different):
        message = messages[place]
        answered = message.answers
        if answered is not None and answered < place and answered in different:
            causes[place] = answered
        else:
            causes[place] = arrived.get(message.source)
        arrived[message.destination] = place
    return causes


def _roots(causes: Mapping[int, int | None]) -> dict[int, int]:
    """Returns different message → where its chain of causes begins; causes stand before what follows from
    them."""
    roots: dict[int, int] = {}
    for place in sorted(causes):
        cause = causes[place]
        roots[place] = place if cause is None else roots[cause]
    return roots


def _guess(
    messages: Sequence[Aligned], message: Aligned, its: Sequence[Difference], a: DiffSide, b: DiffSide
) -> _Guess:
    codes = {difference.code for difference in its}
    if codes & ONE_SIDED:
        return _one_sided(messages, message, codes, a, b)
    who, what = message.source, message.what
    if "error" in codes:
        return _Guess("error", f"{who} fails in only one of the runs, or differently: {what}")
    if codes == {"unknown"}:
        return _Guess("capture", "some bytes were captured in one run only; nothing else differs")
    if codes == {"reordered"}:
        return _Guess("other-order", f"{who} makes the same calls one after the other, in a different order")
    if codes & DEVICES:
        return _Guess("device-or-dtype", _devices(message, codes))
    if "function" in codes:
        return _Guess("other-call", f"{who} calls a different function of {message.destination}")
    if codes <= {"envelope", "profile-events"}:
        return _Guess("configuration", f"{who} runs with a different autograd context or profiler")
    if message.request and message.type != "BACKWARD_AUTOGRAD_REQ":
        return _Guess("other-inputs", f"{who} had received the same data before: its own inputs changed")
    return _result(message, its, a, b)


def _devices(message: Aligned, codes: set[str]) -> str:
    who = message.source
    if codes & DEVICES == {"device-map"}:
        return f"{who} has a different device map for {message.destination}"
    if codes & DEVICES == {"device"}:
        return f"{who} sends tensors from or to a different device"
    if codes & DEVICES == {"quantizer"}:
        return f"{who} sends tensors that were quantized differently"
    return f"{who} sends tensors of a different type"


def _result(message: Aligned, its: Sequence[Difference], a: DiffSide, b: DiffSide) -> _Guess:
    """An answer, or a gradient: what a worker has computed from equal inputs."""
    who = message.source
    what = "its backward pass" if message.request else message.what
    given = "the same messages" if message.request else "the same call"
    nature = nature_of(its)
    if nature == "rounding":
        text = f"{who} computes nearly the same from {given}: another summation order or kernel"
        return _Guess("accumulation", text)
    if nature == "mask":
        text = f"{who} puts zeros in different positions for {given}: probably dropout with a different seed"
        return _Guess("not-deterministic", f"{text} in {what}")
    if not message.request:
        for run, label in ((a, "a"), (b, "b")):
            pair = _differing(run, message.a if run is a else message.b)
            if pair is not None:
                text = f"{who} answers equal calls in different ways within {label} too, #{pair[0]} and"
                text += f" #{pair[1]}: {what} keeps state or is not deterministic"
                return _Guess("not-deterministic", text)
    text = f"{who} gives a different result for {given}: {what} changed, uses other state, or is random"
    return _Guess("function", text)


def _differing(run: DiffSide, answer: int | None) -> tuple[int, int] | None:
    """Returns two equal calls of one run, one of them with this answer, whose answers are not equal."""
    call = next((c for c in run.calls.values() if c.answer == answer), None)
    if call is None or answer is None:
        return None
    sign, content = run.signs[call.index], run.content(call.index)
    for other in run.calls.values():
        if other.answer is None or run.signs[other.index] != sign or other.index == call.index:
            continue
        if run.content(other.index) == content and run.content(other.answer) != run.content(answer):
            return (call.index, other.index) if call.index < other.index else (other.index, call.index)
    return None


def _one_sided(
    messages: Sequence[Aligned], message: Aligned, codes: set[str], a: DiffSide, b: DiffSide
) -> _Guess:
    run, other, label = (a, b, "a") if message.b is None else (b, a, "b")
    who, what = message.source, message.what
    if not message.request:
        return _Guess("missing-call", f"only in {label}, {who} answers {what}")
    strange = sorted({message.source, message.destination} - _workers(other))
    if strange:
        return _Guess("other-worker", f"only {label} has a worker {strange[0]!r}")
    if _alone(messages, message, run, label):
        return _Guess("other-length", f"only {label} has the autograd context in which {who} sends {what}")
    how = "once more " if "repeated" in codes else ""
    return _Guess("missing-call", f"only in {label}, {who} sends {how}{what} to {message.destination}")


def _alone(messages: Sequence[Aligned], message: Aligned, run: DiffSide, label: str) -> bool:
    """Whether a request is of an autograd context that the other run has nothing of."""
    own = {m.a if label == "a" else m.b: m.a is not None and m.b is not None for m in messages}
    index = message.a if label == "a" else message.b
    context = run.calls[index].context if index is not None else None
    if context is None:
        return False
    return not any(own[call.index] for call in run.calls.values() if call.context == context)


def _workers(run: DiffSide) -> set[str]:
    return {worker for sign in run.signs.values() for worker in (sign.caller, sign.callee)}

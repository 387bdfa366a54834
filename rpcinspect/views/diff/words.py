"""Words that all views of a comparison share: how messages are numbered, the verdict, what codes mean.

In: a comparison or a part of it. Out: printable text.
"""

from __future__ import annotations

from rpcinspect.diff.model import Aligned, Comparison, Side
from rpcinspect.equality.rules import Rules
from rpcinspect.fields.phrases import captures_title, counted, packed
from rpcinspect.views.difference import KIND_WORDS

MEANINGS = {
    **{code: KIND_WORDS[code] for code in ("missing", "extra", "repeated")},
    "reordered": "the same calls, one after the other, in a different order",
    "latency": "a different median time for a kind of call",
    "function": "a different function is called",
    "argument": "an argument of a call",
    "envelope": "the envelopes around the message, or what they say",
    "field": "a field of the message",
    "device": "the device of a tensor",
    "device-map": "the device map that the envelope carries",
    "dtype": "the type of a tensor",
    "shape": "the shape of a tensor",
    "requires-grad": "whether a tensor requires grad",
    "quantizer": "scale, zero point or scheme of a quantized tensor",
    "form": "how a tensor lies in its storage, with the same elements",
    "profile-events": "names of remote profile events",
    "value": "a value: of an answer, or elements of a tensor",
    "zero-sign": "−0 against 0",
    "nan-payload": "NaN against a NaN of other bits",
    "ulp": "elements only a few representable steps apart",
    "error": "an error instead of an answer, or a different error",
    "unknown": "bytes that were captured in one run only",
}
"""Of every code, what it is that differs."""


def numbers(message: Aligned) -> str:
    """How both runs number a message."""
    if message.a == message.b:
        return f"#{message.a}"
    if message.b is None:
        return f"a#{message.a}"
    return f"b#{message.b}" if message.a is None else f"a#{message.a}/b#{message.b}"


def run_name(side: Side) -> str:
    """Returns what a run is called, with the context where only that was compared."""
    context = "" if side.context is None else f" context {packed(side.context)}"
    return captures_title(side.paths) + context


def lacking(comparison: Comparison) -> list[str]:
    """The runs without any message."""
    return [label for label, side in (("a", comparison.a), ("b", comparison.b)) if not side.messages]


def verdict_line(comparison: Comparison) -> str:
    """Returns the verdict with its numbers."""
    if comparison.unrelated:
        return "unrelated: the two runs share no similar call"
    if lacking(comparison):
        return f"different: {' and '.join(lacking(comparison))} has no RPC messages"
    if not comparison.same:
        return f"different: {comparison.different:,} of {counted(len(comparison.messages), 'message')}"
    what = "the same within the tolerance" if comparison.tolerated else "the same"
    return f"{what}: {counted(comparison.paired, 'message')} of both runs"


def following(comparison: Comparison) -> str:
    """What there is beside the first different message, and how much of it follows from that."""
    first, others = comparison.first, comparison.different - 1
    assert first is not None
    if not others:
        return "no other message is different"
    told = []
    for count, one, many in (
        (first.following, "follows from this one", "follow from this one"),
        (len(first.alike), "differs in the same way", "differ in the same way"),
    ):
        if count:
            who = f"{count:,}" if count < others else "it" if others == 1 else "all"
            told.append(f"{who} {one if count == 1 else many}")
    if not told:
        told = ["it does not follow from this one" if others == 1 else "none follows from this one"]
    return f"{counted(others, 'other message')} {'is' if others == 1 else 'are'} different: {', '.join(told)}"


def tolerance(rules: Rules) -> str | None:
    """Returns by how much floats may differ, in words."""
    if rules.rtol is None and rules.atol is None:
        return "floats may differ as much as torch.testing allows" if rules.by_dtype else None
    atol, rtol = (
        ("torch's atol" if rules.atol is None else f"{rules.atol:g}"),
        ("torch's rtol" if rules.rtol is None else f"{rules.rtol:g}"),
    )
    return f"floats may differ by {atol} + {rtol} × the smaller of the two"

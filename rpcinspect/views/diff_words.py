"""Words that all views of a comparison share: how messages are numbered, the verdict, what codes mean.

In: a comparison or a part of it. Out: printable text.
"""

from __future__ import annotations

from rpcinspect.diff.model import Aligned, Comparison
from rpcinspect.views.phrases import counted

MEANINGS = {
    "missing": "b lacks the message",
    "extra": "a lacks the message",
    "repeated": "one run says it once more",
    "reordered": "the same calls, one after the other, in another order",
    "latency": "another median time of a kind of call",
    "function": "another function is called",
    "argument": "an argument of a call",
    "envelope": "the envelopes around the message, or what they say",
    "field": "a field of the message",
    "device": "the device of a tensor",
    "device-map": "the device map that the envelope carries",
    "dtype": "the type of a tensor",
    "shape": "the shape of a tensor",
    "requires-grad": "whether a tensor requires grad",
    "quantizer": "scale, zero point or scheme of a quantised tensor",
    "form": "how a tensor lies in its storage, with the same elements",
    "profile-events": "names of remote profile events",
    "value": "a value: of an answer, or elements of a tensor",
    "zero-sign": "−0 against 0",
    "nan-payload": "NaN against a NaN of other bits",
    "ulp": "elements only a few representable steps apart",
    "error": "an error in place of an answer, or another error",
    "unknown": "bytes that were captured of one run only",
}
"""Of every code, what it is that differs."""


def numbers(message: Aligned) -> str:
    """How both runs number a message."""
    if message.a == message.b:
        return f"#{message.a}"
    if message.b is None:
        return f"a#{message.a}"
    return f"b#{message.b}" if message.a is None else f"a#{message.a}/b#{message.b}"


def verdict_line(comparison: Comparison) -> str:
    """The verdict with its numbers."""
    if not comparison.same:
        return f"different: {comparison.different:,} of {counted(len(comparison.messages), 'message')}"
    what = "the same within the tolerance" if comparison.tolerated else "the same"
    if not comparison.messages:
        return "the same: neither run has a message"
    return f"{what}: {counted(comparison.paired, 'message')} of both runs"

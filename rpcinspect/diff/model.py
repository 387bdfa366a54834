"""What a diff comes to: plain records that every view is written against.

Messages are named by their indexes in their own run, as `decode` numbers them; inside a `Comparison` by their
place in `messages`, which are those of both runs in one causal order.
"""

from __future__ import annotations

from collections import Counter
from typing import Literal, TypeAlias

from msgspec import Struct

from rpcinspect.equality.difference import Difference
from rpcinspect.equality.rules import Rules

Likely: TypeAlias = Literal[
    "other-inputs",
    "function",
    "not-deterministic",
    "accumulation",
    "device-or-dtype",
    "missing-call",
    "other-call",
    "other-length",
    "other-order",
    "other-worker",
    "error",
    "configuration",
    "capture",
]
"""What is likely behind the first difference."""


class Side(Struct, frozen=True, kw_only=True):
    """One of the two runs."""

    paths: tuple[str, ...]
    messages: int
    """Of those that were compared."""
    workers: tuple[str, ...]
    context: int | None = None
    """If only one autograd context was compared."""


class Aligned(Struct, frozen=True, kw_only=True):
    """A message of both runs, or one that only one of them has."""

    a: int | None
    b: int | None
    type: str
    """The outermost, of the first run if both have it."""
    source: str
    destination: str
    """Workers as the second run calls them."""
    function: str | None
    """As the wire has it; of an answer: that of its request."""
    call: str | None
    """Who is called, as a person says it: `Head.forward`, where the wire says `_local_invoke`."""
    request: bool
    answers: int | None
    """Place of its request."""
    control: bool
    """The agents' own."""

    @property
    def what(self) -> str:
        """Who is called, else the type."""
        return self.call or self.type


class Found(Struct, frozen=True, kw_only=True):
    """A difference, and where it is."""

    message: int
    """Place of the message."""
    difference: Difference
    counts: bool
    """Whether this makes the runs different."""
    follows: int | None = None
    """Place of the different message from which this one follows; None: here the runs part."""


class Explanation(Struct, frozen=True, kw_only=True):
    """Where the runs part first, and what is likely behind it."""

    found: int
    """Place in `Comparison.found`."""
    likely: Likely
    text: str
    worker: str | None
    """On which the runs part."""
    function: str | None
    following: int
    """Different messages that follow from it, directly or not."""
    beside: tuple[int, ...] = ()
    """Places of other messages at which the runs part, that do not follow from it."""
    alike: tuple[int, ...] = ()
    """Those of them in which the same differs: probably one cause."""


class Comparison(Struct, frozen=True, kw_only=True):
    """The outcome of a diff."""

    a: Side
    b: Side
    rules: Rules
    messages: tuple[Aligned, ...]
    found: tuple[Found, ...]
    """In the order of the messages; latencies last."""
    first: Explanation | None
    """None where nothing counts, and where the runs are unrelated."""
    unknown: int
    """Messages that can't be compared in full, since both runs lack the same bytes."""
    notes: tuple[str, ...] = ()
    unrelated: bool = False
    """No call of one run is like any of the other, so there is no place where they part."""

    @property
    def same(self) -> bool:
        """Whether nothing makes the runs different."""
        return self.first is None and not self.unrelated

    @property
    def tolerated(self) -> bool:
        """Returns whether the runs are the same only within the tolerance."""
        return self.same and any(found.difference.tolerated for found in self.found)

    @property
    def counts(self) -> dict[str, int]:
        """How many differences there are of each code."""
        return dict(sorted(Counter(found.difference.code for found in self.found).items()))

    @property
    def different(self) -> int:
        """How many messages are different."""
        return len({found.message for found in self.found if found.counts})

    @property
    def paired(self) -> int:
        """How many messages both runs have."""
        return sum(message.a is not None and message.b is not None for message in self.messages)

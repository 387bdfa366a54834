"""Why each request was sent: for which of the requests that its sender served then, or for none.

In: a session. Out: for each request its parent where only one explanation is left; where several are, all of
them. A sender's own program, or a thread of its own, is always one of them until something rules it out.

A request can be nested only in one that runs code, had arrived at the sender and was not answered yet, or
not when the connection began on which it was sent first (`requests`). Of these, evidence leaves

- what must be: the request is of an autograd context that another worker opened, and one in it was open, or
  an asynchronous function; it uses an RRef, or carries the bytes of a tensor, that nothing else has brought
  to the sender (`evidence`);
- what would be too great a coincidence otherwise (`coincidence`).

What is likely only orders those that are left. Three kinds need no open request (`consequences`): gradients
follow from gradients that arrived before in the same context, a context's cleanup from a cleanup that
arrived, and housekeeping of RRefs from the message that brought the fork.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from rpcinspect.run.consequences import follow
from rpcinspect.run.evidence import decide
from rpcinspect.run.requests import Requests
from rpcinspect.session.model import Session

MAX_SHOWN = 4


class Doubt(Struct, frozen=True):
    """A request for which the capture allows several explanations."""

    message: int
    caller: str
    parents: tuple[int, ...]
    """Requests that it may have been sent for, the likeliest first; none where only one that was not captured
    can explain it, or the sender's own program."""
    own: bool
    """It may also be of the sender's own program."""
    own_likely: bool = False
    """That is likelier than any of them."""
    unseen: bool = False
    """It may also be of a request that was not captured."""

    @property
    def decided(self) -> int | None:
        """The likeliest parent, for whoever must choose; None: its sender's own program."""
        return None if self.own_likely or not self.parents else self.parents[0]

    @property
    def text(self) -> str:
        """What is known, and what whoever must choose takes it for."""
        if not self.parents:
            return f"{self.caller} sends #{self.message}, maybe for a request that was not captured"
        shown = ", ".join(f"#{index}" for index in self.parents[:MAX_SHOWN])
        more = len(self.parents) - MAX_SHOWN
        text = f"{self.caller} sends #{self.message} while it serves {shown}"
        if more > 0:
            text += f" and {more} more"
        if self.decided is None:
            return f"{text}: assumed to be its own"
        if self.own or len(self.parents) > 1:
            text += f": assumed to be part of #{self.decided}"
        return text


class Causes(Struct, frozen=True, dict=True):
    """The outcome, by the index of requests."""

    parents: Mapping[int, int]
    """Request → the one that it was certainly sent for. What is in neither of these two was certainly sent by
    its sender's own program."""
    doubts: Mapping[int, Doubt]
    """Request → what it may have been sent for."""

    def of(self, index: int) -> tuple[tuple[int, ...], bool]:
        """Returns all requests that may have caused this one, and whether that is certain."""
        doubt = self.doubts.get(index)
        if doubt is not None:
            return doubt.parents, False
        parent = self.parents.get(index)
        return (() if parent is None else (parent,)), True

    def own(self, index: int) -> bool:
        """Returns whether the sender's own program sent the request, certainly or most likely."""
        doubt = self.doubts.get(index)
        return index not in self.parents and (doubt is None or doubt.decided is None)

    def decided(self, drivers: Collection[str] = ()) -> Causes:
        """Returns these causes with the likeliest parent of each doubtful request, for callers that must act
        on one; what a driver may have sent of its own counts as its own. The doubts stay."""
        parents = dict(self.parents)
        doubts = {}
        for index, doubt in self.doubts.items():
            driven = doubt.own and doubt.caller in drivers
            doubts[index] = doubt if not driven else replace(doubt, own_likely=True)
            parent = doubts[index].decided
            if parent is not None:
                parents[index] = parent
        _cut_circles(parents)
        return Causes(parents, doubts)

    @cached_property
    def children(self) -> Mapping[int, tuple[int, ...]]:
        """Returns request → the requests that it certainly caused, ascending."""
        found: dict[int, list[int]] = {}
        for index, parent in self.parents.items():
            found.setdefault(parent, []).append(index)
        return {parent: tuple(sorted(its)) for parent, its in found.items()}


def explain(session: Session) -> Causes:
    """Finds what each request was sent for."""
    requests = Requests(session)
    found = decide(requests)
    follow(requests, found)
    index = session.index.tolist()
    parents = {index[row]: index[parent] for row, parent in enumerate(found.parent) if parent >= 0}
    doubts = {}
    for row, one in found.doubtful.items():
        message, possible = index[row], tuple([index[parent] for parent in one.rows])
        doubts[message] = Doubt(message, session.source(row), possible, one.own, one.own_likely, one.unseen)
    _cut_circles(parents)
    return Causes(parents, doubts)


def _cut_circles(parents: dict[int, int]) -> None:
    """Where requests would follow from each other in a circle, which damaged times and ids can say, the first
    of them follows from none. Everybody else walks from parent to parent.
    """
    settled: set[int] = set()
    for start in sorted(child for child, parent in parents.items() if parent >= child):  # each circle has one
        chain: dict[int, None] = {}
        at = start
        while at in parents and at not in settled and at not in chain:
            chain[at] = None
            at = parents[at]
        if at in chain:
            steps = list(chain)
            del parents[min(steps[steps.index(at) :])]
        settled.update(chain)

"""What the duration of a context consists of: the chain of exchanges and pauses that determined it.

In: the exchanges of the context, and which request waits for each. Out: segments that follow each other
without a gap from its first byte to its last. They are found from the end: the exchange that ended last was
waited for; before that came a pause on the worker that sent it, and within it the same holds for the calls
that the callee made and waited for while it served it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from rpcinspect.rpc.message import MessageType, type_name
from rpcinspect.run.exchanges import Call
from rpcinspect.run.graph import ContextGraph

MAX_DEPTH = 200
"""Calls within calls that are followed; what is nested deeper counts as the work of the one above."""


class Segment(Struct, frozen=True, kw_only=True):
    """A span of the path."""

    kind: str
    """`request` and `answer`: on the wire; `busy`: the callee works; `pause`: the caller itself works, or
    waits for something that is no call; `unanswered`: waiting for an answer that never came."""
    worker: str
    """Who works, or sends."""
    request: int | None
    """The exchange that it belongs to; None for pauses of the context's creator."""
    what: str | None
    begin_ns: int
    end_ns: int

    @property
    def took_ns(self) -> int:
        """Its length."""
        return self.end_ns - self.begin_ns


def critical_path(
    graph: ContextGraph, calls: Iterable[Call], waiting: Mapping[int, int]
) -> tuple[Segment, ...]:
    """The path of one context, in the order of time; `calls` may hold others too, `waiting` is what
    `waits` says.

    The clean-up is left out: nobody waits for it.
    """
    its = [
        call
        for call in calls
        if call.context == graph.context_id
        and call.job == graph.job
        and call.kind != MessageType.CLEANUP_AUTOGRAD_CONTEXT_REQ
    ]
    known = {call.index for call in its}
    children: dict[int, list[Call]] = defaultdict(list)
    own: list[Call] = []
    for call in its:
        parent = waiting.get(call.index)
        if parent in known and parent is not None:
            children[parent].append(call)
        else:
            own.append(call)
    if not its:
        return ()
    path = _Path(children)
    path.span(own, graph.begin_ns, graph.end_ns, _Pause("pause", graph.creator, None, None), 0)
    return tuple(reversed(path.segments))


class _Pause(Struct, frozen=True):
    """What goes on where no exchange does."""

    kind: str
    worker: str
    request: int | None
    what: str | None


class _Path:
    """Collects segments from the last to the first."""

    def __init__(self, children: Mapping[int, Sequence[Call]]) -> None:
        self._children = children
        self.segments: list[Segment] = []

    def span(self, calls: Sequence[Call], begin: int, end: int, pause: _Pause, depth: int) -> None:
        """What led from `begin` to `end` on a worker that made these calls meanwhile."""
        at = end
        for call in sorted(calls, key=lambda c: (_end(c, end), c.begin_ns), reverse=True):
            over = _end(call, end)
            if over > at or call.begin_ns < begin:
                continue  # not waited for by what came after it
            self._add(pause, over, at)
            self._exchange(call, over, depth)
            at = call.begin_ns
        self._add(pause, begin, at)

    def _exchange(self, call: Call, end: int, depth: int) -> None:
        what = call.function or type_name(call.kind)
        arrived = min(call.arrived_ns, end)
        if call.answered_ns is None:
            self._add(_Pause("unanswered", call.callee, call.index, what), arrived, end)
        else:
            answered = min(max(call.answered_ns, arrived), end)
            self._add(_Pause("answer", call.callee, call.index, what), answered, end)
            busy = _Pause("busy", call.callee, call.index, what)
            inner = self._children.get(call.index, ()) if depth < MAX_DEPTH else ()
            self.span(inner, arrived, answered, busy, depth + 1)
        self._add(_Pause("request", call.caller, call.index, what), call.begin_ns, arrived)

    def _add(self, pause: _Pause, begin: int, end: int) -> None:
        if end > begin:
            self.segments.append(
                Segment(
                    kind=pause.kind,
                    worker=pause.worker,
                    request=pause.request,
                    what=pause.what,
                    begin_ns=begin,
                    end_ns=end,
                )
            )


def _end(call: Call, end: int) -> int:
    """When a call was over; one without an answer goes on to the end."""
    return end if call.end_ns is None else call.end_ns

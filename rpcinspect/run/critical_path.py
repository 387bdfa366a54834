"""What the duration of a context consists of: the chain of exchanges and pauses that determined it.

In: the exchanges of the context, and which request waits for each. Out: segments that follow each other
without a gap from its first byte to its last. They are found from the end, by going back from worker to
worker: whatever a worker does follows from what reached it last. That is

- the answer to a call that it made and waited for: then its callee is who worked;
- in a backward pass, a gradient: then its sender is who worked, also if the worker that gets it has sent one
  itself before, and waits;
- for a fetch, the value of the RRef: then its maker's function is what ran;
- for a function that was given an RRef of a third worker, the owner's answer to the RREF_FORK_REQUEST: agents
  run no function before the RRefs in its arguments are confirmed (rref_context.cpp).

What was before all of that is the request that the worker serves, and so its caller. Times are of this one
path: two workers that work at once are not both on it. Nobody waits for the answer to a remote call.

That a worker does nothing until something reaches it is no more than an assumption: one that has sent a
request may as well work, and look at the answer later. Fetches, `RRef.backward` and what waits for the owner
of an RRef do nothing else by torch's code. Else it is taken for true where the worker goes on at once
(`AT_ONCE`); where it does not, the parts before say of whom it is assumed that it was idle. The other way
round, a worker may wait for a call of which it is not known who made it: then the part says so.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping
from operator import attrgetter

from msgspec import Struct, field

from rpcinspect.rpc.message import MessageType
from rpcinspect.rpc.questions import FETCHES, KEEPING, PASSES, REMOTE, created, rref_of
from rpcinspect.run.exchanges import Exchange
from rpcinspect.run.graph import ContextGraph
from rpcinspect.run.waits import BackwardWaits, MaybeWaits
from rpcinspect.session.provenance import Id

GRADIENT = MessageType.BACKWARD_AUTOGRAD_REQ
CLEANUP = MessageType.CLEANUP_AUTOGRAD_CONTEXT_REQ
BLOCKING = FETCHES | {MessageType.RREF_BACKWARD_REQ, MessageType.RREF_FORK_REQUEST}
"""Who asks these does nothing else until the answer."""
AT_ONCE = 2
"""Whoever goes on within half of the time for which it had sent nothing is taken to have waited: whoever
works beside does that by chance in one case of three."""


class Segment(Struct, frozen=True, kw_only=True):
    """A span of the path."""

    kind: str
    """`request` and `answer`: on the wire; `busy`: the callee works; `pause`: the caller itself works, or
    waits for something that is no call; `unanswered`: waiting for an answer that never came; `outlasting`: a
    call that goes on when its context has been left."""
    worker: str
    """Who works, or sends."""
    request: int | None
    """The exchange that it belongs to; None for pauses of the context's creator."""
    what: str | None
    begin_ns: int
    end_ns: int
    if_idle: tuple[str, ...] = ()
    """It is on the path if these workers did nothing else meanwhile, which no message tells."""
    or_waits_for: tuple[int, ...] = ()
    """The worker may have waited for these requests: it is not known who made them, or for what."""

    @property
    def took_ns(self) -> int:
        """Returns the duration of the segment."""
        return self.end_ns - self.begin_ns


def critical_path(
    graph: ContextGraph,
    calls: Iterable[Exchange],
    waiting: Mapping[int, int],
    passes: BackwardWaits,
    maybe: MaybeWaits | None = None,
) -> tuple[Segment, ...]:
    """Returns the path of one context, in the order of time; `calls` may include calls of other contexts,
    `waiting`, `passes` and `maybe` come from `waits`.

    The cleanup is left out: nobody waits for it. So are calls of which it is doubtful who made them:
    nobody knows who waits for them.
    """
    maybe = maybe or MaybeWaits({}, {})
    calls = [call for call in calls if call.job == graph.job]
    its = [
        call
        for call in calls
        if call.context == graph.context_id
        and call.kind != CLEANUP
        and (call.kind in PASSES or not maybe.doubtful(call))
    ]
    if not its:
        return ()
    served = {call.index for call in its}
    for call in sorted(calls, key=attrgetter("index")):
        if (
            call.index not in served
            and waiting.get(call.index) in served
            and (_asks(call) or _confirms(call))
        ):
            served.add(call.index)
            its.append(call)
    left = [call.begin_ns for call in calls if call.kind == CLEANUP and call.caller == graph.creator]
    path = _Path(graph, its, waiting, passes.handed_in, maybe, min(left, default=None))
    path.walk()
    return tuple(reversed(path.segments))


def _asks(call: Exchange) -> bool:
    """Whether a function makes it that may wait for it, in no context as well."""
    return call.context is None and call.kind not in KEEPING


def _confirms(call: Exchange) -> bool:
    """Whether a function waits for it before it begins."""
    return call.kind == MessageType.RREF_FORK_REQUEST and call.end_ns is not None


class _Frame(Struct, eq=False):
    """What a worker does for a request, or the context's creator of its own.

    The lists ascend. The walk never goes forth in time, so that what came later is dropped from them.
    """

    call: Exchange | None
    """None: of its own."""
    worker: str
    begin_ns: int
    parent: _Frame | None = None
    """Where the request was sent; None where that is not known."""
    ended: list[Exchange] = field(default_factory=list)
    """Calls that it made and waited for, by when they were over."""
    never: list[Exchange] = field(default_factory=list)
    """Those which nobody answered, by when they began."""
    acts: list[int] = field(default_factory=list)
    """When it sent something."""
    passes: int | None = None
    """When a backward pass began here: it waits for gradients that are sent later."""
    amid: bool = False
    """It is a worker's part of a pass, and the walk came to a moment at which a gradient was sent: answers to
    gradients are waited for at its end only."""


class _Arrival(Struct, frozen=True):
    """Something that reached a worker."""

    time_ns: int
    kind: str
    """`answer`, `gradient` or `value`."""
    call: Exchange


class _Path:
    """Collects segments from the last to the first."""

    def __init__(
        self,
        graph: ContextGraph,
        its: list[Exchange],
        waiting: Mapping[int, int],
        handed_in: Container[int],
        maybe: MaybeWaits,
        left_ns: int | None,
    ) -> None:
        """`left_ns`: when the creator left the context, where that is known."""
        self.segments: list[Segment] = []
        self._graph = graph
        self._its = its
        self._maybe = maybe
        self._left_ns = left_ns
        self._acted: int | None = left_ns
        """When the worker at which the walk is did what it could do after the last thing that reached it."""
        self._doubted: list[_Frame] = []
        """Where it was taken for granted that a worker was idle."""
        self._at = graph.end_ns
        self._begin_ns = graph.begin_ns
        self._most = 4 * len(its) + 4
        self._top = _Frame(None, graph.creator, graph.begin_ns)
        self._frames = {call.index: _Frame(call, call.callee, call.arrived_ns) for call in its}
        self._makers: dict[Id, Exchange] = {}
        """RRef → the call that made it."""
        self._gradients: dict[str, list[Exchange]] = defaultdict(list)
        """Worker → what carried a pass to it, by when it had come."""
        for call in its:
            made = created(call.request)
            if made is not None:
                self._makers[made[0]] = call
            parent = self._parent(call, waiting)
            self._frames[call.index].parent = parent
            if parent is not None:
                if not _confirms(call):
                    parent.acts.append(call.begin_ns)
                if call.kind not in REMOTE:  # nobody waits for the answer, but for the value
                    (parent.never if call.end_ns is None else parent.ended).append(call)
        for frame in (self._top, *self._frames.values()):
            passes = (call.begin_ns for call in (*frame.ended, *frame.never) if call.kind in PASSES)
            frame.passes = min(passes, default=None)
            frame.ended = _waited_for(frame)
            frame.never.sort(key=attrgetter("begin_ns"))
            frame.acts.sort()
        for call in sorted((call for call in its if call.kind in PASSES), key=attrgetter("arrived_ns")):
            self._gradients[call.callee].append(call)
            if call.index not in handed_in:
                self._frames[call.index].passes = call.arrived_ns

    def _parent(self, call: Exchange, waiting: Mapping[int, int]) -> _Frame | None:
        """Returns where a call was made; calls without a cause in the context are the creator's own."""
        frame = self._frames.get(waiting.get(call.index, -1))
        if frame is not None:
            return frame if frame.worker == call.caller else None
        return self._top if call.caller == self._top.worker else None

    def walk(self) -> None:
        """Goes from the end to the begin; damaged times could lead round in circles, so that steps are
        counted.
        """
        frame = self._top
        if self._left_ns is None:
            while frame.never:  # whoever is asked and does not answer may wait for the same reason
                call = frame.never.pop()
                if call.kind not in PASSES:
                    self._doubted.append(frame)
                frame = self._frames[call.index]
        elif self._left_ns < self._at:
            last = max((call for call in self._its if call.end_ns is not None), key=_over)
            self._to("outlasting", last.callee, last, self._left_ns)
        kind = "pause" if frame is self._top else "unanswered"
        for _ in range(self._most):
            step = self._last(frame)
            begin_ns = frame.begin_ns if step is None else step.time_ns
            self._to(kind, frame.worker, frame.call, begin_ns, self._may_wait(frame, begin_ns))
            if step is not None:
                if not self._idle(frame, step):
                    self._doubted.append(frame)
                frame = self._take(step, frame)
            elif frame.call is not None and frame.parent is not None:
                frame = self._sent(frame.call, frame.parent)
            else:
                break
            kind, self._acted = "pause" if frame is self._top else "busy", self._at
            self._doubted = [one for one in self._doubted if one is not frame and one.begin_ns < self._at]
        self._to("pause", self._top.worker, None, self._begin_ns)

    def _idle(self, frame: _Frame, step: _Arrival) -> bool:
        """Whether the worker did nothing else until something came, for all that one sees."""
        if step.kind == "value" or (step.kind == "answer" and step.call.kind in BLOCKING):
            return True
        if self._acted is None:
            return False
        acts = bisect_left(frame.acts, step.time_ns)
        before = frame.acts[acts - 1] if acts else frame.begin_ns
        return (self._acted - step.time_ns) * AT_ONCE <= step.time_ns - before

    def _may_wait(self, frame: _Frame, begin_ns: int) -> tuple[int, ...]:
        """Calls for which the worker may have waited from that moment to where the walk is."""
        call, graph = frame.call, self._graph
        if call is not None:
            return self._maybe.of_request(call.index, begin_ns, self._at)
        return self._maybe.of_program((graph.job, graph.creator), graph.context_id, begin_ns, self._at)

    def _last(self, frame: _Frame) -> _Arrival | None:
        """What reached the worker last that it waited for."""
        found: list[_Arrival] = []
        for call in self._until_now(frame.ended, _over, only_calls=frame.amid):
            found.append(_Arrival(_over(call), "answer", call))
        if frame.passes is not None:
            for call in self._until_now(self._gradients[frame.worker], attrgetter("arrived_ns")):
                if call is not frame.call and call.begin_ns >= frame.passes:
                    found.append(_Arrival(call.arrived_ns, "gradient", call))
        maker = self._maker(frame)
        if maker is not None and maker.answered_ns is not None:  # the fetch may be answered just before it
            found.append(_Arrival(min(maker.answered_ns, self._at), "value", maker))
        known = (s for s in found if s.time_ns >= frame.begin_ns and self._frames[s.call.index].parent)
        return max(known, key=lambda step: step.time_ns, default=None)

    def _until_now(
        self, ascending: list[Exchange], time: Callable[[Exchange], int], *, only_calls: bool = False
    ) -> list[Exchange]:
        """Returns the last one, if there is any; drops later ones."""
        while ascending and (
            time(ascending[-1]) > self._at or (only_calls and ascending[-1].kind == GRADIENT)
        ):
            ascending.pop()
        return ascending[-1:]

    def _maker(self, frame: _Frame) -> Exchange | None:
        """The call whose value a fetch asks for."""
        if frame.call is None or frame.call.kind not in FETCHES:
            return None
        rref = rref_of(frame.call.request)
        maker = None if rref is None else self._makers.get(rref)
        return maker if maker is not None and maker.callee == frame.worker else None

    def _take(self, step: _Arrival, frame: _Frame) -> _Frame:
        """Goes back to who sent or gave what was waited for."""
        call, its = step.call, self._frames[step.call.index]
        if step.kind == "gradient":
            self._gradients[frame.worker].pop()
            assert its.parent is not None
            return self._sent(call, its.parent)
        if step.kind == "answer":
            frame.ended.pop()
            answered = _over(call) if call.answered_ns is None else call.answered_ns
            self._to("answer", call.callee, call, max(answered, call.arrived_ns))
        return its

    def _sent(self, call: Exchange, frame: _Frame) -> _Frame:
        """Goes back to where a request was sent."""
        self._to("request", call.caller, call, call.begin_ns)
        its_own = frame.call is not None and frame.call.kind in PASSES
        frame.amid = frame.amid or (its_own and call.kind == GRADIENT)
        return frame

    def _to(
        self,
        kind: str,
        worker: str,
        call: Exchange | None,
        begin_ns: int,
        or_waits_for: tuple[int, ...] = (),
    ) -> None:
        """Adds what went on from that moment to where the walk is; nothing if it is there already."""
        begin = max(begin_ns, self._begin_ns)
        if begin < self._at:
            self.segments.append(
                Segment(
                    kind=kind,
                    worker=worker,
                    request=None if call is None else call.index,
                    what=None if call is None else call.what,
                    begin_ns=begin,
                    end_ns=self._at,
                    if_idle=tuple(dict.fromkeys(one.worker for one in self._doubted)),
                    or_waits_for=or_waits_for,
                )
            )
            self._at = begin


def _waited_for(frame: _Frame) -> list[Exchange]:
    """Calls of a frame by when they were over, without gradients that were answered while a pass went on: a
    worker waits for these at its end only (dist_engine.cpp).
    """
    ascending = sorted(frame.ended, key=lambda call: (_over(call), call.begin_ns))
    found: list[Exchange] = []
    begun = min((call.begin_ns for call in frame.never if call.kind == GRADIENT), default=None)
    for call in reversed(ascending):
        if call.kind == GRADIENT:
            if begun is not None and begun < _over(call):
                begun = min(begun, call.begin_ns)
                continue
            begun = call.begin_ns if begun is None else min(begun, call.begin_ns)
        found.append(call)
    return found[::-1]


def _over(call: Exchange) -> int:
    assert call.end_ns is not None
    return call.end_ns

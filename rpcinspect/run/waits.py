"""Which request waits for each call: the one whose answer its callee can't give before that call is over.

In: exchanges and what explains them. Out: request → the request that waits for it. That is its parent in
`causes`, where that is certain, but for gradients. What a worker sends in a pass follows from one of those
that came, of which it may not be known, yet it is the first one that waits for it:
torch/csrc/distributed/autograd/engine/dist_engine.cpp runs the worker's whole part of the pass for that one,
and answers it when all that was sent has been answered. Later ones only hand in what they bring, and that
may have been away: a gradient that leaves a worker is worked on elsewhere and comes back as another one, for
which the first one waits, too (`BackwardWaits`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from msgspec import Struct

from rpcinspect.rpc.message import MessageType
from rpcinspect.rpc.questions import PASSES, REMOTE
from rpcinspect.run.causes import Causes
from rpcinspect.run.exchanges import Exchange
from rpcinspect.session.identity import WorkerKey
from rpcinspect.session.model import NONE

PassKey = tuple[int, int | None, str]
"""(job, context, worker): one worker's part of the passes of a context."""
Span = tuple[int, int]
"""From, to; nanoseconds."""
MAX_WAITS = 4
"""Calls that are named of those which a worker may have waited for: the last ones."""
MAX_HOPS = 1000
"""Workers that a gradient may go through before it comes back."""


def waiting_requests(calls: Sequence[Exchange], causes: Causes) -> dict[int, int]:
    """Request → the request that waits for it; what nobody certainly waits for is not in it."""
    by_index = {call.index: call for call in calls}
    received = _received(calls)
    waiting = dict(causes.parents)
    for call in calls:
        if call.kind != MessageType.BACKWARD_AUTOGRAD_REQ:
            continue
        parents, _ = causes.of(call.index)
        doubt = causes.doubts.get(call.index)
        if (doubt is not None and doubt.own) or not parents:
            continue
        if any(by_index[parent].kind not in PASSES for parent in parents):
            continue  # a function may have begun the pass
        its = received.get((call.job, call.context, call.caller))
        first = None if its is None else its.first(call)
        if first is not None and _answered(first) >= _over(call):
            waiting[call.index] = first.index
    return waiting


class BackwardWaits(Struct, frozen=True):
    """What backward passes did with gradients, by the index of requests."""

    away: dict[int, list[Span]]
    """The request that carried a pass to a worker → when gradients that the worker had sent were at others,
    from where one left to where what became of it came back."""
    handed_in: frozenset[int]
    """Requests that only handed in a gradient: another one waits for what the worker does with it."""


class MaybeWaits(Struct, frozen=True):
    """Calls that may have been waited for, though it is not known who made them, or for what."""

    requests: Mapping[int, _Ended]
    """Request → calls that may have been made for it, among others."""
    programs: Mapping[tuple[WorkerKey, int | None], _Ended]
    """(worker, context) → calls that its own program, or one of its threads, made or may have made; of those
    in a context only the doubtful ones."""
    unsure: frozenset[int] = frozenset()
    """Calls of which it is not known who made them."""

    def of_request(self, index: int, begin_ns: int, end_ns: int) -> tuple[int, ...]:
        """Those that were over within a time in which a request was served."""
        its = self.requests.get(index)
        return () if its is None else its.within(begin_ns, end_ns)

    def of_program(self, worker: WorkerKey, context: int, begin_ns: int, end_ns: int) -> tuple[int, ...]:
        """Those that were over within a time in which a program worked in a context."""
        its = (self.programs.get((worker, one)) for one in (context, None))
        return tuple(sorted(index for one in its if one for index in one.within(begin_ns, end_ns)))

    def doubtful(self, call: Exchange) -> bool:
        """Whether it is not known who made a call."""
        return call.index in self.unsure


class _Ended:
    """Calls by when they were over."""

    def __init__(self, calls: Iterable[Exchange]) -> None:
        ascending = sorted((_over(call), call.index) for call in calls)
        self._times = [time for time, _ in ascending]
        self._indexes = [index for _, index in ascending]

    def within(self, begin_ns: int, end_ns: int) -> tuple[int, ...]:
        """Returns the last ones that were over after the begin, not after the end."""
        first, end = bisect_right(self._times, begin_ns), bisect_right(self._times, end_ns)
        return tuple(sorted(self._indexes[max(first, end - MAX_WAITS) : end]))


def maybe_waits(calls: Iterable[Exchange], causes: Causes) -> MaybeWaits:
    """What else may have been waited for."""
    requests: dict[int, list[Exchange]] = defaultdict(list)
    programs: dict[tuple[WorkerKey, int | None], list[Exchange]] = defaultdict(list)
    for call in calls:
        if call.housekeeping or call.kind in PASSES or call.kind in REMOTE or call.end_ns is None:
            continue
        parents, certain = causes.of(call.index)
        own = (not parents and call.context is None) if certain else causes.doubts[call.index].own
        for parent in () if certain else parents:
            requests[parent].append(call)
        if own:
            programs[(call.job, call.caller), call.context].append(call)
    return MaybeWaits(
        {index: _Ended(its) for index, its in requests.items()},
        {program: _Ended(its) for program, its in programs.items()},
        frozenset(causes.doubts),
    )


def read_passes(calls: Sequence[Exchange], causes: Causes) -> BackwardWaits:
    """What became of gradients. Where it is not known from which one another follows, that is taken to be the
    one that had come last.
    """
    by_index = {call.index: call for call in calls}

    def origin(gradient: Exchange) -> Exchange | None:
        known = by_index.get(causes.parents.get(gradient.index, NONE))
        if known is not None:
            return known if known.kind in PASSES else None
        its = received.get((gradient.job, gradient.context, gradient.caller))
        return None if its is None else its.latest(gradient)

    received = _received(calls)
    away: dict[int, list[Span]] = defaultdict(list)
    handing: set[int] = set()
    for its in received.values():
        for first, later in its.handed_in():
            handing.add(later.index)
            left = _left(later, origin)
            if left is not None and left >= first.arrived_ns:
                away[first.index].append((left, later.arrived_ns))
    return BackwardWaits(dict(away), frozenset(handing))


def _left(returned: Exchange, origin: Callable[[Exchange], Exchange | None]) -> int | None:
    """Returns when the gradient left its receiver that came back as this one; None for one from other
    workers."""
    at = returned
    for _ in range(MAX_HOPS):
        before = None if at.caller == returned.callee else origin(at)
        if before is None:
            return None
        if before.caller == returned.callee:
            return before.begin_ns
        at = before
    return None


def _received(calls: Iterable[Exchange]) -> dict[PassKey, _Received]:
    found: dict[PassKey, list[Exchange]] = defaultdict(list)
    for call in calls:
        if call.kind in PASSES:
            found[call.job, call.context, call.callee].append(call)
    return {key: _Received(its) for key, its in found.items()}


class _Received:
    """The requests that carried passes of a context to a worker."""

    def __init__(self, requests: Iterable[Exchange]) -> None:
        self._requests = sorted(requests, key=lambda call: call.arrived_ns)
        self._times = [request.arrived_ns for request in self._requests]
        self._firsts = list(accumulate(self._requests, _later))
        """Of those that had arrived with each, or before it, the one that was answered last."""

    def first(self, call: Exchange) -> Exchange | None:
        """The one that waits, of those which had arrived when a call began."""
        end = bisect_right(self._times, call.begin_ns)
        return self._firsts[end - 1] if end else None

    def latest(self, call: Exchange) -> Exchange | None:
        """The one that had arrived last when a call began."""
        end = bisect_right(self._times, call.begin_ns)
        return self._requests[end - 1] if end else None

    def handed_in(self) -> Iterator[tuple[Exchange, Exchange]]:
        """Each that only handed in a gradient, after the one that waited for it."""
        running: Exchange | None = None
        for request in self._requests:
            if running is not None and _answered(request) <= _answered(running):
                yield running, request
            else:
                running = request


def _later(one: Exchange, other: Exchange) -> Exchange:
    """Returns the one that was answered later; the first of two that were answered at once."""
    return other if _answered(other) > _answered(one) else one


def _answered(call: Exchange) -> float:
    return float("inf") if call.answered_ns is None else call.answered_ns


def _over(call: Exchange) -> float:
    return float("inf") if call.end_ns is None else call.end_ns

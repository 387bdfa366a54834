"""Where the time of each exchange went: on the wire, at the callee, or waiting for calls made meanwhile.

In: exchanges, what explains them (`causes`) and which request waits for each (`waits`). Out: a `Timing` per
request, and sums by function and by pair of workers. All times are those of the capture: the request is *on
the wire* from its first captured byte to its last, the callee is *busy* until the first byte of the answer,
and then the answer is on the wire. What passes before a sniffer sees the first byte is in neither.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from rpcinspect.rpc.message import type_name
from rpcinspect.rpc.questions import failed, size_of
from rpcinspect.run.causes import Causes
from rpcinspect.run.exchanges import Call

STRAGGLER_TIMES = 3.0
STRAGGLER_NS = 1_000_000
"""A straggler took so many times the median of its function, and so much more than it."""
STRAGGLER_OF = 5
"""In groups of at least so many answered requests."""


class Timing(Struct, frozen=True, kw_only=True):
    """One exchange. Times in nanoseconds, None where there is no answer."""

    request: int
    answer: int | None
    job: int
    caller: str
    callee: str
    what: str
    """The function, else the kind of message."""
    kind: str
    """Name of the request's type, envelopes off."""
    context: int | None
    control: bool
    parent: int | None
    """The request that the caller was serving."""
    begin_ns: int
    """First byte of the request."""
    request_ns: int
    """The request was on the wire."""
    busy_ns: int | None
    """From the last byte of the request to the first of the answer; `nested_ns` is within it."""
    nested_ns: int | None
    """The part of it in which at least one call was out that the callee made while it served this one, and
    had to wait for."""
    answer_ns: int | None
    """The answer was on the wire."""
    request_bytes: int
    answer_bytes: int
    failed: bool
    gave_up: str | None = None
    """Why the caller stopped waiting: `timeout`, `connection` or `error`; where a log tells."""
    gave_up_ns: int | None = None
    """How long it had waited by then."""

    @property
    def total_ns(self) -> int | None:
        """From the first byte of the request to the last of the answer."""
        if self.busy_ns is None or self.answer_ns is None:
            return None
        return self.request_ns + self.busy_ns + self.answer_ns

    @property
    def own_ns(self) -> int | None:
        """The callee was busy itself, or waited for something that is no call."""
        return None if self.busy_ns is None or self.nested_ns is None else self.busy_ns - self.nested_ns


class Spread(Struct, frozen=True, kw_only=True):
    """How the times of a group are spread: nearest ranks, so that each is the time of a real exchange."""

    p50: int
    p90: int
    p99: int
    max: int


class LatencyGroup(Struct, frozen=True, kw_only=True):
    """Exchanges that have a function, or a pair of workers, in common."""

    job: int
    what: str | None
    """The function, or the kind of message; None in groups of pairs."""
    caller: str | None
    callee: str | None
    """None in groups of functions."""
    count: int
    answered: int
    failed: int
    given_up: int
    """Not answered because the caller stopped waiting, where a log tells that."""
    total: Spread | None
    """None if nothing was answered."""
    own: Spread | None
    """The callee's own share."""
    nested_ns: int
    """In all."""
    wire_ns: int
    """Requests and answers, in all."""
    request_bytes: int
    answer_bytes: int


class Straggler(Struct, frozen=True, kw_only=True):
    """An exchange that took much longer than others of its function."""

    request: int
    what: str
    caller: str
    callee: str
    total_ns: int
    median_ns: int
    """Of its function."""
    nested: bool
    """Most of the time it waited for calls of its own."""


class Latency(Struct, frozen=True, kw_only=True):
    """All of it."""

    timings: tuple[Timing, ...]
    """In the order of their requests, the agents' own among them."""
    functions: tuple[LatencyGroup, ...]
    """Those that took longest in all come first; without the agents' own calls, as below."""
    pairs: tuple[LatencyGroup, ...]
    stragglers: tuple[Straggler, ...]
    """The slowest first."""


def read_latency(calls: Sequence[Call], causes: Causes, waiting: Mapping[int, int]) -> Latency:
    """The times of every exchange, and what is striking about them."""
    return _summed(tuple(_timings(calls, causes, waiting)))


def part_of(whole: Latency, requests: Collection[int]) -> Latency:
    """Some of the exchanges and sums over these; which of them straggle is judged by all."""
    timings = tuple(timing for timing in whole.timings if timing.request in requests)
    return replace(
        _summed(timings), stragglers=tuple(one for one in whole.stragglers if one.request in requests)
    )


def _summed(timings: tuple[Timing, ...]) -> Latency:
    user = [timing for timing in timings if not timing.control]
    functions = _grouped(user, lambda t: (t.job, t.what, None, None))
    return Latency(
        timings=timings,
        functions=functions,
        pairs=_grouped(user, lambda t: (t.job, None, t.caller, t.callee)),
        stragglers=_stragglers(user, functions),
    )


def _timings(calls: Sequence[Call], causes: Causes, waiting: Mapping[int, int]) -> Iterable[Timing]:
    children: dict[int, list[Call]] = defaultdict(list)
    for call in calls:
        parent = waiting.get(call.index)
        if parent is not None:
            children[parent].append(call)
    for call in calls:
        busy = nested = on_wire = None
        if call.answered_ns is not None and call.end_ns is not None:
            # tensors of a request may still be on their way when a callee that does not need them answers
            answered = max(call.arrived_ns, call.answered_ns)
            busy = answered - call.arrived_ns
            on_wire = max(answered, call.end_ns) - answered
            nested = _covered(children.get(call.index, ()), call.arrived_ns, answered)
        yield Timing(
            request=call.index,
            answer=call.answer,
            job=call.job,
            caller=call.caller,
            callee=call.callee,
            what=call.function or type_name(call.kind),
            kind=type_name(call.kind),
            context=call.context,
            control=call.control,
            parent=causes.parents.get(call.index),
            begin_ns=call.begin_ns,
            request_ns=call.arrived_ns - call.begin_ns,
            busy_ns=busy,
            nested_ns=nested,
            answer_ns=on_wire,
            request_bytes=size_of(call.request),
            answer_bytes=0 if call.response is None else size_of(call.response),
            failed=call.response is not None and failed(call.response),
            gave_up=None if call.failure is None else call.failure.reason,
            gave_up_ns=None if call.failure is None else max(0, call.failure.time_ns - call.begin_ns),
        )


def _covered(children: Iterable[Call], start: int, end: int) -> int:
    """How much of [start, end) at least one of the calls was out, to a callee that is no other part of us."""
    covered = 0
    for child in sorted(children, key=lambda c: c.begin_ns):
        low = max(start, child.begin_ns)
        high = end if child.end_ns is None else min(end, child.end_ns)
        if high > low:
            covered += high - low
            start = high
    return covered


Key = tuple[int, str | None, str | None, str | None]


def _grouped(timings: Iterable[Timing], key: Callable[[Timing], Key]) -> tuple[LatencyGroup, ...]:
    groups: dict[Key, list[Timing]] = defaultdict(list)
    for timing in timings:
        groups[key(timing)].append(timing)
    found = [(_total(its), _group(its, *which)) for which, its in groups.items()]
    return tuple(group for _, group in sorted(found, key=lambda item: -item[0]))


def _total(timings: Iterable[Timing]) -> int:
    return sum(timing.total_ns or 0 for timing in timings)


def _group(
    timings: Sequence[Timing], job: int, what: str | None, caller: str | None, callee: str | None
) -> LatencyGroup:
    totals = sorted(t.total_ns for t in timings if t.total_ns is not None)
    return LatencyGroup(
        job=job,
        what=what,
        caller=caller,
        callee=callee,
        count=len(timings),
        answered=len(totals),
        failed=sum(timing.failed for timing in timings),
        given_up=sum(timing.gave_up is not None and timing.answer is None for timing in timings),
        total=spread(totals),
        own=spread(sorted(t.own_ns for t in timings if t.own_ns is not None)),
        nested_ns=sum(timing.nested_ns or 0 for timing in timings),
        wire_ns=sum(t.request_ns + (t.answer_ns or 0) for t in timings),
        request_bytes=sum(timing.request_bytes for timing in timings),
        answer_bytes=sum(timing.answer_bytes for timing in timings),
    )


def spread(ascending: Sequence[int]) -> Spread | None:
    """Nearest ranks of numbers that ascend."""
    if not ascending:
        return None
    p50, p90, p99 = (ascending[-(-len(ascending) * share // 100) - 1] for share in (50, 90, 99))
    return Spread(p50=p50, p90=p90, p99=p99, max=ascending[-1])


def _stragglers(timings: Iterable[Timing], functions: Iterable[LatencyGroup]) -> tuple[Straggler, ...]:
    usual = {
        (group.job, group.what): group.total.p50
        for group in functions
        if group.total is not None and group.answered >= STRAGGLER_OF
    }
    found = []
    for timing in timings:
        median, total = usual.get((timing.job, timing.what)), timing.total_ns
        if median is None or total is None:
            continue
        if total >= STRAGGLER_TIMES * median and total - median >= STRAGGLER_NS:
            found.append(
                Straggler(
                    request=timing.request,
                    what=timing.what,
                    caller=timing.caller,
                    callee=timing.callee,
                    total_ns=total,
                    median_ns=median,
                    nested=2 * (timing.nested_ns or 0) > total,
                )
            )
    return tuple(sorted(found, key=lambda s: (-s.total_ns, s.request)))

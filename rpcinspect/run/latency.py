"""Where the time of each exchange went: on the wire, at the callee, or waiting for others meanwhile.

In: exchanges, what explains them (`causes`), which request waits for each, and when gradients were away
(`waits`). Out: a `Timing` per request, and sums by who is called and by pair of workers. All times are those
of the capture. An exchange lasts from the first byte of the request to the last of the answer, its *latency*
in every view: the request is *on the wire* from its first byte to its last, the callee is *busy* from there
to the first byte of the answer, and then the answer is on the wire. What passes before a sniffer sees the
first byte is in neither.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from rpcinspect.rpc.message import type_name
from rpcinspect.rpc.questions import PASSES, failed, size_of
from rpcinspect.run.causes import Causes
from rpcinspect.run.exchanges import Exchange
from rpcinspect.run.waits import Passes, Span

NEVER = 1 << 63
"""Later than all times."""
STRAGGLER_TIMES = 3.0
STRAGGLER_NS = 1_000_000
"""A straggler took so many times the median of those like it, and so much more than it."""
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
    """Who is called, as a person says it, else the kind of message."""
    row: str
    """The same in full, with the module of a class: what exchanges of a row have in common."""
    like: str
    """What exchanges have in common that are judged together: the row; of a pass also whose part of it that
    is, or whether the request only hands in a gradient."""
    function: str | None
    """As the wire has it."""
    kind: str
    """Name of the request's type, envelopes off."""
    context: int | None
    control: bool
    housekeeping: bool
    """Agents keep house with it; control is that, too."""
    parents: tuple[int, ...]
    """Requests that the caller was serving: none, one, or all that remain possible."""
    parent_certain: bool
    begin_ns: int
    """First byte of the request."""
    request_ns: int
    """The request was on the wire."""
    busy_ns: int | None
    """From the last byte of the request to the first of the answer; `nested_ns` is within it."""
    nested_ns: int | None
    """The part of it in which at least one call was out that the callee made while it served this one, and
    had to wait for, or in which a gradient was away that came back."""
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
    """Who is called, or the kind of message; None in groups of pairs."""
    caller: str | None
    callee: str | None
    """None in groups of those who are called."""
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
    """An exchange that took much longer than others like it."""

    request: int
    what: str
    caller: str
    callee: str
    total_ns: int
    median_ns: int
    """Of those like it."""
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


def read_latency(
    calls: Sequence[Exchange], causes: Causes, waiting: Mapping[int, int], passes: Passes
) -> Latency:
    """The times of every exchange, and what is striking about them."""
    timings = tuple(_timings(calls, causes, waiting, passes))
    return _summed(timings, [timing for timing in timings if not timing.control])


def part_of(whole: Latency, requests: Collection[int]) -> Latency:
    """Some of the exchanges and sums over these; which of them straggle is judged by all."""
    timings = tuple(timing for timing in whole.timings if timing.request in requests)
    return _narrowed(whole, timings, [timing for timing in timings if not timing.control])


def for_people(whole: Latency, *, housekeeping: bool = False) -> Latency:
    """The same with sums over calls alone; with `housekeeping` over every exchange, the agents' own too."""
    timings = tuple(timing for timing in whole.timings if housekeeping or not timing.housekeeping)
    return _narrowed(whole, timings, timings)


def _narrowed(whole: Latency, timings: tuple[Timing, ...], user: Sequence[Timing]) -> Latency:
    requests = {timing.request for timing in timings}
    stragglers = tuple(one for one in whole.stragglers if one.request in requests)
    return replace(_summed(timings, user), stragglers=stragglers)


def _summed(timings: tuple[Timing, ...], user: Sequence[Timing]) -> Latency:
    """Sums over those of the user."""
    rows = _grouped(user, lambda timing: (timing.job, timing.row))
    pairs = _grouped(user, lambda timing: (timing.job, timing.caller, timing.callee))
    named: dict[tuple[int, str], set[str]] = defaultdict(set)
    for timing in user:
        named[timing.job, timing.what].add(timing.row)
    return Latency(
        timings=timings,
        functions=tuple(
            _group(its, what=its[0].what if len(named[its[0].job, its[0].what]) == 1 else its[0].row)
            for its in rows
        ),
        pairs=tuple(_group(its, caller=its[0].caller, callee=its[0].callee) for its in pairs),
        stragglers=_stragglers(_grouped(user, lambda timing: (timing.job, timing.like))),
    )


def _timings(
    calls: Sequence[Exchange], causes: Causes, waiting: Mapping[int, int], passes: Passes
) -> Iterable[Timing]:
    waits: dict[int, list[Span]] = defaultdict(list)
    for index, spans in passes.away.items():
        waits[index] += spans
    for call in calls:
        parent = waiting.get(call.index)
        if parent is not None:
            waits[parent].append((call.begin_ns, NEVER if call.end_ns is None else call.end_ns))
    for call in calls:
        row = call.what if call.name is None else call.name.full
        busy = nested = on_wire = None
        arrived = call.arrived_ns
        latency = call.latency_ns
        if call.answered_ns is not None and latency is not None:
            # tensors of a request may still be on their way when a callee that does not need them answers
            end = call.begin_ns + latency
            arrived = min(arrived, end)
            answered = min(max(arrived, call.answered_ns), end)
            busy, on_wire = answered - arrived, end - answered
            nested = _covered(waits.get(call.index, ()), arrived, answered)
        parents, certain = causes.of(call.index)
        yield Timing(
            request=call.index,
            answer=call.answer,
            job=call.job,
            caller=call.caller,
            callee=call.callee,
            what=call.what,
            row=row,
            like=_like(call, row, passes),
            function=call.function,
            kind=type_name(call.kind),
            context=call.context,
            control=call.control,
            housekeeping=call.housekeeping,
            parents=parents,
            parent_certain=certain,
            begin_ns=call.begin_ns,
            request_ns=arrived - call.begin_ns,
            busy_ns=busy,
            nested_ns=nested,
            answer_ns=on_wire,
            request_bytes=size_of(call.request),
            answer_bytes=0 if call.response is None else size_of(call.response),
            failed=call.response is not None and failed(call.response),
            gave_up=None if call.failure is None else call.failure.reason,
            gave_up_ns=None if call.failure is None else max(0, call.failure.time_ns - call.begin_ns),
        )


def _like(call: Exchange, row: str, passes: Passes) -> str:
    if call.kind not in PASSES:
        return row
    return f"{row} handing in" if call.index in passes.handed_in else f"{row} {call.callee}"


def _covered(spans: Iterable[Span], start: int, end: int) -> int:
    """How much of [start, end) lies in at least one of the spans."""
    covered = 0
    for begin, over in sorted(spans):
        low, high = max(start, begin), min(end, over)
        if high > low:
            covered += high - low
            start = high
    return covered


def _grouped(timings: Iterable[Timing], key: Callable[[Timing], Hashable]) -> list[list[Timing]]:
    """Those that took longest in all come first."""
    groups: dict[Hashable, list[Timing]] = defaultdict(list)
    for timing in timings:
        groups[key(timing)].append(timing)
    return sorted(groups.values(), key=lambda its: -_total(its))


def _total(timings: Iterable[Timing]) -> int:
    return sum(timing.total_ns or 0 for timing in timings)


def _group(
    timings: Sequence[Timing],
    *,
    what: str | None = None,
    caller: str | None = None,
    callee: str | None = None,
) -> LatencyGroup:
    totals = sorted(t.total_ns for t in timings if t.total_ns is not None)
    return LatencyGroup(
        job=timings[0].job,
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


def _stragglers(groups: Iterable[Sequence[Timing]]) -> tuple[Straggler, ...]:
    """Judged among those like them: what calls of others take says nothing of these."""
    found = []
    for timings in groups:
        usual = spread(sorted(timing.total_ns for timing in timings if timing.total_ns is not None))
        if usual is None or sum(timing.total_ns is not None for timing in timings) < STRAGGLER_OF:
            continue
        median = usual.p50
        for timing in timings:
            total = timing.total_ns or 0
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

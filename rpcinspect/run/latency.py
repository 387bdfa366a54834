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
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from rpcinspect.rpc.questions import PASSES
from rpcinspect.run.exchanges import Exchange
from rpcinspect.run.waits import BackwardWaits, Span

if TYPE_CHECKING:
    from rpcinspect.run.run import RunModel

NEVER = 1 << 63
"""Later than all times."""
STRAGGLER_TIMES = 3.0
STRAGGLER_NS = 1_000_000
"""A straggler took so many times the median of those like it, and so much more than it."""
STRAGGLER_OF = 5
"""In groups of at least so many answered requests."""


class Timing(Struct, frozen=True, kw_only=True):
    """Parts of one exchange's latency. Times in nanoseconds, None where there is no answer."""

    call: Exchange
    row: str
    """Who is called, in full with the module of a class: what exchanges of a row have in common."""
    like: str
    """What exchanges have in common that are judged together: the row; of a pass also whose part of it that
    is, or whether the request only hands in a gradient."""
    request_ns: int
    """The request was on the wire."""
    busy_ns: int | None
    """From the last byte of the request to the first of the answer; `nested_ns` is within it."""
    nested_ns: int | None
    """The part of it in which at least one call was out that the callee certainly made while it served this
    one, or in which a gradient was away that came back."""
    answer_ns: int | None
    """The answer was on the wire."""

    @property
    def total_ns(self) -> int | None:
        """Returns the time from the first byte of the request to the last of the answer."""
        if self.busy_ns is None or self.answer_ns is None:
            return None
        return self.request_ns + self.busy_ns + self.answer_ns

    @property
    def own_ns(self) -> int | None:
        """The callee was busy itself, or waited for something that is no call."""
        return None if self.busy_ns is None or self.nested_ns is None else self.busy_ns - self.nested_ns

    @property
    def gave_up_ns(self) -> int | None:
        """Returns how long the caller waited before it gave up; None where no log shows it."""
        call = self.call
        return None if call.gave_up_ns is None else max(0, call.gave_up_ns - call.begin_ns)


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
    took_ns: int
    """In all."""
    own: Spread | None
    """The callee's own share."""
    nested_ns: int
    """In all."""
    wire_ns: int
    """Requests and answers, in all."""
    request_bytes: int
    answer_bytes: int


class Straggler(Struct, frozen=True):
    """An exchange that took much longer than others like it."""

    timing: Timing
    median_ns: int
    """Of those like it."""

    @property
    def total_ns(self) -> int:
        """Returns the time from the first byte of the request to the last of the answer."""
        return self.timing.total_ns or 0

    @property
    def nested(self) -> bool:
        """Returns whether calls of the callee's own were out most of the time."""
        return 2 * (self.timing.nested_ns or 0) > self.total_ns


class Latency(Struct, frozen=True, kw_only=True):
    """Where the time of exchanges went, one by one and in sums."""

    timings: tuple[Timing, ...]
    """In the order of their requests, the agents' own among them."""
    functions: tuple[LatencyGroup, ...]
    """Those that took longest in all come first; without the agents' own calls, as below."""
    pairs: tuple[LatencyGroup, ...]
    stragglers: tuple[Straggler, ...]
    """The slowest first."""


def read_latency(run: RunModel) -> Latency:
    """The times of every exchange, and what is striking about them."""
    timings = tuple(_timings(run))
    return _summed(timings, [timing for timing in timings if not timing.call.control])


def part_of(whole: Latency, requests: Collection[int]) -> Latency:
    """Returns some of the exchanges and sums over these; stragglers are judged by all exchanges."""
    timings = tuple(timing for timing in whole.timings if timing.call.index in requests)
    return _narrowed(whole, timings, [timing for timing in timings if not timing.call.control])


def for_people(whole: Latency, *, housekeeping: bool = False) -> Latency:
    """Returns the latencies with sums over calls alone; with `housekeeping` over every exchange."""
    timings = tuple(timing for timing in whole.timings if housekeeping or not timing.call.housekeeping)
    return _narrowed(whole, timings, timings)


def _narrowed(whole: Latency, timings: tuple[Timing, ...], user: Sequence[Timing]) -> Latency:
    requests = {timing.call.index for timing in timings}
    stragglers = tuple(one for one in whole.stragglers if one.timing.call.index in requests)
    return replace(_summed(timings, user), stragglers=stragglers)


def _summed(timings: tuple[Timing, ...], user: Sequence[Timing]) -> Latency:
    """Returns sums over the user's calls."""
    rows = _grouped(user, lambda timing: (timing.call.job, timing.row))
    pairs = _grouped(user, lambda timing: (timing.call.job, timing.call.caller, timing.call.callee))
    named: dict[tuple[int, str], set[str]] = defaultdict(set)
    for timing in user:
        named[timing.call.job, timing.call.what].add(timing.row)
    functions = []
    for its in rows:
        first = its[0].call
        alone = len(named[first.job, first.what]) == 1
        functions.append(_group(its, what=first.what if alone else its[0].row))
    return Latency(
        timings=timings,
        functions=tuple(functions),
        pairs=tuple(_group(its, caller=its[0].call.caller, callee=its[0].call.callee) for its in pairs),
        stragglers=_stragglers(_grouped(user, lambda timing: (timing.call.job, timing.like))),
    )


def _timings(run: RunModel) -> Iterable[Timing]:
    waits: dict[int, list[Span]] = defaultdict(list)
    for index, spans in run.passes.away.items():
        waits[index] += spans
    for call in run.exchanges.calls:
        parent = run.waiting.get(call.index)
        if parent is not None:
            waits[parent].append((call.begin_ns, NEVER if call.end_ns is None else call.end_ns))
    for call in run.exchanges.calls:
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
        yield Timing(
            call=call,
            row=row,
            like=_like(call, row, run.passes),
            request_ns=arrived - call.begin_ns,
            busy_ns=busy,
            nested_ns=nested,
            answer_ns=on_wire,
        )


def _like(call: Exchange, row: str, passes: BackwardWaits) -> str:
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
    """Returns groups, the longest in sum first."""
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
    calls = [timing.call for timing in timings]
    totals = sorted(t.total_ns for t in timings if t.total_ns is not None)
    return LatencyGroup(
        job=calls[0].job,
        what=what,
        caller=caller,
        callee=callee,
        count=len(calls),
        answered=len(totals),
        failed=sum(call.failed for call in calls),
        given_up=sum(call.failure is not None and call.answer is None for call in calls),
        total=spread(totals),
        took_ns=sum(totals),
        own=spread(sorted(t.own_ns for t in timings if t.own_ns is not None)),
        nested_ns=sum(timing.nested_ns or 0 for timing in timings),
        wire_ns=sum(t.request_ns + (t.answer_ns or 0) for t in timings),
        request_bytes=sum(call.request_bytes for call in calls),
        answer_bytes=sum(call.answer_bytes for call in calls),
    )


def spread(ascending: Sequence[int]) -> Spread | None:
    """Nearest ranks of numbers that ascend."""
    if not ascending:
        return None
    p50, p90, p99 = (ascending[-(-len(ascending) * share // 100) - 1] for share in (50, 90, 99))
    return Spread(p50=p50, p90=p90, p99=p99, max=ascending[-1])


def _stragglers(groups: Iterable[Sequence[Timing]]) -> tuple[Straggler, ...]:
    """Returns the calls that took unusually long among calls of their kind."""
    found = []
    for timings in groups:
        usual = spread(sorted(timing.total_ns for timing in timings if timing.total_ns is not None))
        if usual is None or sum(timing.total_ns is not None for timing in timings) < STRAGGLER_OF:
            continue
        median = usual.p50
        for timing in timings:
            total = timing.total_ns or 0
            if total >= STRAGGLER_TIMES * median and total - median >= STRAGGLER_NS:
                found.append(Straggler(timing, median))
    return tuple(sorted(found, key=lambda one: (-one.total_ns, one.timing.call.index)))

"""Three questions that a page answers at once: what took long, who was busy, which pairs moved bytes.

In: the latency of calls, and messages. Out: bars, the largest first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

from rpcinspect.fields.phrases import amount, counted, duration, end_label, join_ends
from rpcinspect.rpc.questions import size_of
from rpcinspect.run.latency import Latency, LatencyGroup
from rpcinspect.run.run import RunModel
from rpcinspect.run.waits import Span
from rpcinspect.session.model import Session
from rpcinspect.views.graph_words import what_words
from rpcinspect.views.html.kit import Bar, bars

MAX_BARS = 10
Key = TypeVar("Key", bound=Hashable)


def slowest(latency: Latency) -> tuple[Bar, ...]:
    """Who is called, by how long its calls took in all."""
    groups = [group for group in latency.functions if group.total is not None][:MAX_BARS]
    return bars([(what_words(group.what or ""), group.took_ns, *_took(group)) for group in groups])


def _took(group: LatencyGroup) -> tuple[str, str]:
    most = 0 if group.total is None else group.total.max
    return duration(group.took_ns), f"{counted(group.answered, 'call')}, at most {duration(most)}"


def busiest(latency: Latency, session: Session) -> tuple[Bar, ...]:
    """Workers, by the time in which they had at least one call to serve, waiting for calls of their own
    included."""
    spans: dict[tuple[int, str], list[Span]] = defaultdict(list)
    own: dict[tuple[int, str], int] = defaultdict(int)
    for timing in latency.timings:
        if timing.busy_ns is not None:
            begin = timing.call.begin_ns + timing.request_ns
            spans[timing.call.job, timing.call.callee].append((begin, begin + timing.busy_ns))
            own[timing.call.job, timing.call.callee] += timing.own_ns or 0
    sums = {key: covered(its) for key, its in spans.items()}
    times = session.messages
    whole = max(times.end_time_ns, default=0) - min(times.time_ns, default=0)
    return bars(
        [
            (
                end_label(key[1]),
                sums[key],
                f"{duration(sums[key])}, {100 * sums[key] / max(1, whole):.0f} % of the run",
                f"{counted(len(spans[key]), 'call')}, own work {duration(own[key])}",
            )
            for key in _largest(sums)
        ]
    )


def moved(run: RunModel, indexes: Sequence[int]) -> tuple[Bar, ...]:
    """Who sends to whom, by the bytes of all messages."""
    session = run.session
    sizes: dict[tuple[str, str], int] = defaultdict(int)
    tensors: dict[tuple[str, str], int] = defaultdict(int)
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for index in indexes:
        record = run.messages[index]
        pair = session.source(record.row), session.destination(record.row)
        sizes[pair] += size_of(record)
        tensors[pair] += sum([one.descriptor.length for one in record.tp.tensors])
        counts[pair] += 1
    return bars(
        [
            (
                join_ends(*map(end_label, pair)),
                sizes[pair],
                amount(sizes[pair]),
                f"{counted(counts[pair], 'message')}, {amount(tensors[pair])} of tensors",
            )
            for pair in _largest(sizes)
        ]
    )


def covered(spans: Iterable[Span]) -> int:
    """How much time spans cover together: where several lie over each other, that counts once."""
    total, until = 0, 0
    for begin, end in sorted(spans):
        total += max(0, end - max(begin, until))
        until = max(until, end)
    return total


def _largest(sums: Mapping[Key, int]) -> list[Key]:
    return sorted(sums, key=lambda key: -sums[key])[:MAX_BARS]

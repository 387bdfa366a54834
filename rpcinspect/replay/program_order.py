"""The order between the workers of a reproducer, and between contexts that overlapped.

In: the events of each worker in the order of time. Out: what each comes after, and which calls go behind
which, so that what had finished before a call began comes before it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from rpcinspect.causes.calls import Call
from rpcinspect.causes.causality import GENERAL, PASSES
from rpcinspect.replay.order import merge
from rpcinspect.replay.program_model import Await, Pass, Send, Timed, set_after
from rpcinspect.replay.reproduced import Reproduction


def ends(timed: Sequence[Timed]) -> list[tuple[int, int]]:
    """(when it was over, request) of a worker's steps that others may come after, by time."""
    found = []
    for item in timed:
        if isinstance(item.event, Pass):
            ends = [g.call.end_ns for g in item.event.sent] or [item.event.first.end_ns]
            known = [end for end in ends if end is not None]
            if known:
                found.append((max(known), item.event.first.index))
        elif item.event.call.end_ns is not None:
            found.append((item.event.call.end_ns, item.event.call.index))
    return sorted(set(found))


def put_behind(made: Reproduction, timed: Sequence[Timed]) -> None:
    """Calls of several workers that overlapped at one go by their answers, as in a replay."""
    overlapping: dict[int, list[int]] = {}
    latest: dict[tuple[int, str], dict[str, Call]] = defaultdict(dict)
    """(job, callee) → caller → its last call."""
    for call in merge([call for call in made.calls.values() if call.kind in GENERAL - PASSES]):
        others = latest[call.job, call.callee]
        overlapping[call.index] = [
            other.index
            for caller, other in sorted(others.items())
            if caller != call.caller and (other.end_ns is None or other.end_ns >= call.begin_ns)
        ]
        others[call.caller] = call
    told = {index for its in overlapping.values() for index in its}
    for item in timed:
        if isinstance(item.event, Send):
            index = item.event.call.index
            behind = tuple(overlapping.get(index, ()))
            item.event = replace(item.event, behind=behind, told=index in told)


def put_after(timed: Sequence[Timed], others: Sequence[Sequence[tuple[int, int]]]) -> None:
    """For each step the last of every other worker that was over when it began, if that is news."""
    known = [-1] * len(others)
    for item in timed:
        if isinstance(item.event, Await):
            continue
        begin = item.time_ns
        news = []
        for which, its in enumerate(others):
            place = bisect_left(its, (begin, -1)) - 1
            if place > known[which]:
                known[which] = place
                news.append(its[place][1])
        set_after(item, tuple(news))

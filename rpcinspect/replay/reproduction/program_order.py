"""The order between the workers of a reproducer, and between contexts that overlapped.

In: the events of each worker in the order of time. Out: what each comes after, and which calls go behind
which, so that what had finished before a call began comes before it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence

from msgspec.structs import replace

from rpcinspect.replay.planning.order import merge
from rpcinspect.replay.reproduction.program_model import Await, Pass, Send, Timed, set_after
from rpcinspect.replay.reproduction.reproduced import Reproduction
from rpcinspect.rpc.questions import GENERAL, PASSES
from rpcinspect.run.exchanges import Exchange


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
    """Calls of several workers that overlapped at one go by their answers, as in a replay.

    Who goes behind a call that began later is sent later, so that what any step waits for is earlier than
    itself, and nobody waits for ever.
    """
    sends = {item.event.call.index: (item, item.event) for item in timed if isinstance(item.event, Send)}
    passes: dict[tuple[int, str], list[int]] = defaultdict(list)
    for item in timed:
        if isinstance(item.event, Pass):
            passes[item.event.first.job, item.event.first.caller].append(item.time_ns)
    latest: dict[tuple[int, str], dict[str, Exchange]] = defaultdict(dict)
    """(job, callee) → caller → its last call."""
    own: dict[tuple[int, str], int] = {}
    """(job, caller) → when its last call is sent."""
    told: set[int] = set()
    for call in merge([call for call in made.calls.values() if call.kind in GENERAL - PASSES]):
        (item, event), key = sends[call.index], (call.job, call.caller)
        if item.time_ns < call.begin_ns:
            continue  # it had to come before a call that uses what it makes
        item.time_ns = max(item.time_ns, own.get(key, 0))
        behind = []
        for other in latest[call.job, call.callee].values():
            begin = sends[other.index][0].time_ns
            overlaps = other.end_ns is None or other.end_ns >= call.begin_ns
            passed = any(item.time_ns <= time <= begin for time in passes[key])
            if other.caller != call.caller and overlaps and not passed:
                behind.append(other.index)
                item.time_ns = max(item.time_ns, begin)
        told.update(behind)
        event = item.event = replace(event, behind=tuple(sorted(behind)))
        sends[call.index] = item, event
        latest[call.job, call.callee][call.caller] = call
        own[key] = item.time_ns
    for index in told:
        item, event = sends[index]
        item.event = replace(event, told=True)


def put_after(timed: Sequence[Timed], others: Sequence[Sequence[tuple[int, int]]]) -> None:
    """For each step the last of every other worker that was over when it began, if that is news."""
    known = [-1] * len(others)
    for item in timed:
        if isinstance(item.event, Await):
            continue
        call = item.event.first if isinstance(item.event, Pass) else item.event.call
        begin = min(item.time_ns, call.begin_ns)
        news = []
        for which, its in enumerate(others):
            place = bisect_left(its, (begin, -1)) - 1
            if place > known[which]:
                known[which] = place
                news.append(its[place][1])
        set_after(item, tuple(news))

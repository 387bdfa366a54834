"""The order in which a session's steps are carried out, and what each of them waits for.

In: requests with their decisions. Out: them in order, what arrives at the played workers, and the overlaps.
What had finished before a call began comes before it; a worker's own calls stay in the order in which it sent
them; calls of different played workers that overlap go by their answers.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from itertools import accumulate

from rpcinspect.replayer.planning.model import Decision, Overlap
from rpcinspect.rpc.questions import GENERAL
from rpcinspect.run.exchanges import Exchange

MAX_OTHERS = 16
"""Overlapping calls that are named for one call."""


def order(
    calls: Sequence[Exchange], decisions: Mapping[int, Decision], parents: Mapping[int, int]
) -> list[Exchange]:
    """Returns all requests in one order: the sent ones, and among them the others, each where it began, but
    behind the sent request that it follows from. `parents`: request → the request that caused it."""
    sent = merge([call for call in calls if decisions[call.index].action == "send"])
    place = {call.index: position for position, call in enumerate(sent)}
    begins = list(accumulate((call.begin_ns for call in sent), max))

    def key(call: Exchange) -> tuple[int, bool, int, int]:
        """The place among those that are sent; others stand before the sent one of the same place."""
        if call.index in place:
            return place[call.index], True, call.begin_ns, call.index
        root: int | None = call.index
        while root is not None and root not in place:
            root = parents.get(root)
        earliest = 0 if root is None else place[root] + 1
        return max(earliest, bisect_right(begins, call.begin_ns)), False, call.begin_ns, call.index

    return sorted(calls, key=key)


def merge(calls: Sequence[Exchange]) -> list[Exchange]:
    """Returns the calls of all workers in one order. The calls of each worker are a queue; of the heads whose
    predecessors in time are all placed, the one that was answered first is next."""
    queues: dict[str, deque[Exchange]] = defaultdict(deque)
    for call in sorted(calls, key=lambda c: (c.begin_ns, c.index)):
        queues[call.caller].append(call)
    ends = [(call.end_ns, call.index) for call in calls if call.end_ns is not None]
    heapq.heapify(ends)
    placed: set[int] = set()
    out: list[Exchange] = []
    while len(out) < len(calls):
        while ends and ends[0][1] in placed:
            heapq.heappop(ends)
        heads = [queue[0] for queue in queues.values() if queue]
        free = [head for head in heads if not ends or ends[0][0] >= head.begin_ns]
        # A clock that jumps back could leave none; then the earliest is as good as any.
        head = min(free or heads, key=lambda c: (c.begin_ns if c.end_ns is None else c.end_ns, c.index))
        queues[head.caller].popleft()
        placed.add(head.index)
        out.append(head)
    return out


def arrivals(calls: Sequence[Exchange], decisions: Mapping[int, Decision]) -> list[tuple[int, int]]:
    """(time in ns, message) of all that live workers send to played ones, by time."""
    found: list[tuple[int, int]] = []
    for call in calls:
        action = decisions[call.index].action
        if action == "answer":
            found.append((call.arrived_ns, call.index))
        elif action == "send" and call.end_ns is not None and call.answer is not None:
            found.append((call.end_ns, call.answer))
    return sorted(found)


def overlaps(calls: Sequence[Exchange], decisions: Mapping[int, Decision]) -> list[Overlap]:
    """Calls that are sent, with those of other played workers that their receiver had not answered yet."""
    active: dict[str, list[Exchange]] = defaultdict(list)
    found: list[Overlap] = []
    for call in sorted(calls, key=lambda c: (c.begin_ns, c.index)):
        if decisions[call.index].action != "send" or call.kind not in GENERAL:
            continue
        running = active[call.callee] = [
            other for other in active[call.callee] if other.end_ns is None or other.end_ns >= call.begin_ns
        ]
        others = [other.index for other in running if other.caller != call.caller]
        if others:
            found.append(Overlap(call.index, tuple(others[:MAX_OTHERS]), call.callee))
        running.append(call)
    return found

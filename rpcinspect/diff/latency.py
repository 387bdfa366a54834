"""How long calls took in both runs: information, where it is clearly another time.

In: aligned calls. Out: for each kind of call whose median time is another by far, that median in both runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from statistics import median_low

from msgspec import Struct

from rpcinspect.diff.side import DiffSide, Sign
from rpcinspect.rpc.questions import GENERAL

FACTOR = 2
LEAST_NS = 1_000_000
"""Medians that differ by less than this, or by a smaller factor, are not told."""


class Slower(Struct, frozen=True):
    """A kind of call and its median time in both runs, in nanoseconds."""

    call: tuple[int, int]
    """The first of them: its request in both runs."""
    count: int
    a_ns: int
    b_ns: int


def latencies(a: DiffSide, b: DiffSide, pairs: Mapping[int, int]) -> list[Slower]:
    """One entry for each kind of call, in the order in which they came."""
    times: dict[Sign, list[tuple[int, int, int, int]]] = defaultdict(list)
    for index, partner in pairs.items():
        call, other = a.calls[index], b.calls[partner]
        if call.latency_ns is None or other.latency_ns is None or call.control or call.kind not in GENERAL:
            continue
        if a.signs[index] != b.signs[partner]:
            continue  # another function in its place: its time says nothing of the first one's
        times[a.signs[index]].append((index, partner, call.latency_ns, other.latency_ns))
    found = []
    for rows in times.values():
        medians = median_low([row[2] for row in rows]), median_low([row[3] for row in rows])
        low, high = sorted(medians)
        if high - low >= LEAST_NS and high >= FACTOR * low:
            first = min(rows, key=lambda row: (max(row[:2]), min(row[:2])))  # the same the other way round
            found.append(Slower(first[:2], len(rows), *medians))
    return sorted(found, key=lambda slower: (max(slower.call), min(slower.call)))

"""Two sequences of keys → the pairs of places that belong together.

In: keys, in the order of each run. Out: pairs, each place at most once. Equal keys that come in the same
order are found first, as a line-by-line diff finds them; then equal keys that have changed places; then what
lies between the same neighbours. All of it takes near linear time, whatever the sequences are.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

IndexPairs: TypeAlias = list[tuple[int, int]]

MAX_HOLDERS = 16
"""Collections that may have an item before it is taken for one that tells nothing."""
MAX_DEPTH = 40
"""How often what lies between anchors is searched for anchors of its own."""


class Level(NamedTuple):
    """A way of comparing the items of both runs."""

    a: Sequence[Hashable]
    b: Sequence[Hashable]


def align(count_a: int, count_b: int, levels: Iterable[Level], known: IndexPairs | None = None) -> IndexPairs:
    """Pairs by the first level, then, of what is left, by the next; ascending in the first run. `known` are
    pairs already."""
    pairs: IndexPairs = list(known or ())
    left_a, left_b = unpaired(count_a, count_b, pairs)
    for level in levels:
        if not left_a or not left_b:
            break
        for gap_a, gap_b in between(pairs, left_a, left_b):
            found = in_order([level.a[i] for i in gap_a], [level.b[j] for j in gap_b])
            pairs += [(gap_a[i], gap_b[j]) for i, j in found]
        left_a, left_b = unpaired(count_a, count_b, pairs)
        found = anywhere([level.a[i] for i in left_a], [level.b[j] for j in left_b])
        pairs += [(left_a[i], left_b[j]) for i, j in found]
        left_a, left_b = unpaired(count_a, count_b, pairs)
    return sorted(pairs)


def in_order(a: Sequence[Hashable], b: Sequence[Hashable]) -> IndexPairs:
    """Pairs of equal keys that ascend in both: those of equal ends, then those around keys that come once."""
    found: IndexPairs = []
    todo = [(0, len(a), 0, len(b), 0)]
    while todo:
        low_a, high_a, low_b, high_b, depth = todo.pop()
        while low_a < high_a and low_b < high_b and a[low_a] == b[low_b]:
            found.append((low_a, low_b))
            low_a, low_b = low_a + 1, low_b + 1
        while low_a < high_a and low_b < high_b and a[high_a - 1] == b[high_b - 1]:
            high_a, high_b = high_a - 1, high_b - 1
            found.append((high_a, high_b))
        if low_a == high_a or low_b == high_b:
            continue
        anchors = _unique(a, b, low_a, high_a, low_b, high_b) if depth < MAX_DEPTH else []
        if not anchors:
            found += ascending(_numbered(a, b, low_a, high_a, low_b, high_b))
            continue
        at_a, at_b = low_a, low_b
        for i, j in [*anchors, (high_a, high_b)]:
            todo.append((at_a, i, at_b, j, depth + 1))
            at_a, at_b = i + 1, j + 1
        found += anchors
    return sorted(found)


def anywhere(a: Sequence[Hashable], b: Sequence[Hashable]) -> IndexPairs:
    """Pairs of equal keys, the first with the first of them and so on."""
    return _numbered(a, b, 0, len(a), 0, len(b))


def overlapping(a: Sequence[Collection[Hashable]], b: Sequence[Collection[Hashable]]) -> IndexPairs:
    """Returns pairs of collections that share at least half of the smaller one, largest share first. Items
    that many collections hold do not count."""
    holders: dict[Hashable, list[int]] = defaultdict(list)
    for j, items in enumerate(b):
        for item in set(items):
            holders[item].append(j)
    shared: Counter[tuple[int, int]] = Counter()
    for i, items in enumerate(a):
        for item in set(items):
            its = holders.get(item, ())
            if len(its) <= MAX_HOLDERS:
                shared.update((i, j) for j in its)
    found: IndexPairs = []
    taken_a, taken_b = set(), set()
    for (i, j), count in sorted(shared.items(), key=lambda row: (-row[1], max(row[0]), row[0])):
        if i in taken_a or j in taken_b or 2 * count < min(len(set(a[i])), len(set(b[j]))):
            continue
        found.append((i, j))
        taken_a.add(i)
        taken_b.add(j)
    return sorted(found)


def ascending(pairs: Iterable[tuple[int, int]]) -> IndexPairs:
    """Returns as many of the pairs as can stand in one order in both sequences."""
    ordered = sorted(pairs)
    tails: list[int] = []
    """The smallest end of a chain of each length."""
    ends: list[int] = []
    before = [-1] * len(ordered)
    for n, (_, j) in enumerate(ordered):
        at = bisect_left(tails, j)
        if at == len(tails):
            tails.append(j)
            ends.append(n)
        else:
            tails[at], ends[at] = j, n
        before[n] = ends[at - 1] if at else -1
    chain: IndexPairs = []
    n = ends[-1] if ends else -1
    while n >= 0:
        chain.append(ordered[n])
        n = before[n]
    return chain[::-1]


def between(
    pairs: Iterable[tuple[int, int]], left_a: Sequence[int], left_b: Sequence[int]
) -> list[tuple[list[int], list[int]]]:
    """The places of both sequences that lie between the same pairs, where both have some."""
    anchors = ascending(pairs)
    gaps: dict[int, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for side, left in enumerate((left_a, left_b)):
        ends = [anchor[side] for anchor in anchors]
        for place in left:
            gaps[bisect_left(ends, place)][side].append(place)
    return [gap for _, gap in sorted(gaps.items()) if gap[0] and gap[1]]


def unpaired(count_a: int, count_b: int, pairs: Iterable[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """The places of each sequence that no pair has."""
    has_a, has_b = bytearray(count_a), bytearray(count_b)
    for i, j in pairs:
        has_a[i] = has_b[j] = 1
    return [i for i in range(count_a) if not has_a[i]], [j for j in range(count_b) if not has_b[j]]


def _unique(
    a: Sequence[Hashable], b: Sequence[Hashable], low_a: int, high_a: int, low_b: int, high_b: int
) -> IndexPairs:
    """Returns, of keys that come once in each of the two ranges, those that keep their order."""
    count_a, count_b = Counter(a[low_a:high_a]), Counter(b[low_b:high_b])
    place_b = {b[j]: j for j in range(low_b, high_b) if count_b[b[j]] == 1}
    once = [(i, place_b[a[i]]) for i in range(low_a, high_a) if count_a[a[i]] == 1 and a[i] in place_b]
    return ascending(once)


def _numbered(
    a: Sequence[Hashable], b: Sequence[Hashable], low_a: int, high_a: int, low_b: int, high_b: int
) -> IndexPairs:
    """The n-th of a key with the n-th of it."""
    places: dict[Hashable, list[int]] = defaultdict(list)
    for j in range(high_b - 1, low_b - 1, -1):
        places[b[j]].append(j)
    found = []
    for i in range(low_a, high_a):
        waiting = places.get(a[i])
        if waiting:
            found.append((i, waiting.pop()))
    return found

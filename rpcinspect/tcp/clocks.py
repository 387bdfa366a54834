"""By how much the clocks of two hosts differ, from packets that were captured on both.

In: TCP segments of several captures. Out: a `ClockOffset`. A packet passes one sniffer before the other, so
that the difference of its two times is the offset of the clocks plus its way in one direction of a
connection, and the offset minus its way in the other. The smallest of the one and the largest of the other
have the offset between them, and every connection narrows that down. Which host is at which end need not be
known: of the two directions, the one with the larger differences goes to the host whose clock is asked for.

A sniffer that begins one file after the other writes no packet twice: its next file goes on, byte for byte,
where connections were in those before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from rpcinspect.capture.block import Int64s, SegmentBlock
from rpcinspect.tcp.segment import SYN, Flow

MAX_SAMPLES = 512
"""Times that are kept of one direction between two endpoints."""
_SPREAD = 0x9E3779B1
_HASH_BITS = 32
_HALF = 1 << 31
"""Of all sequence numbers."""


class ClockOffset(Struct, frozen=True, kw_only=True):
    """A capture's clock against that of the first capture."""

    offset_ns: int
    """What its clock showed more; negative where it was behind."""
    uncertainty_ns: int
    """The offset is known up to so much."""
    connections: int
    """Connections that both captures have."""

    @property
    def certain(self) -> bool:
        """Whether the clocks differ for sure, so that times of one are wrong by the other."""
        return abs(self.offset_ns) > self.uncertainty_ns

    @property
    def error_ns(self) -> int:
        """By how much times are wrong at most, once `shift_ns` was taken off."""
        return self.uncertainty_ns + abs(self.offset_ns - self.shift_ns)

    @property
    def shift_ns(self) -> int:
        """What to take off the capture's times; 0 where that could as well make them wrong."""
        return self.offset_ns if self.certain else 0


class Vantage(Struct, frozen=True, kw_only=True):
    """Where a capture was made, as far as several captures tell."""

    goes_on: int | None = None
    """The capture that it goes on from: the same sniffer began another file."""
    hosts: frozenset[str] = frozenset()
    """Those that are at an end of all connections in it."""


class _Times(Struct, eq=False):
    """When packets of one direction were captured, by sequence number; a choice that does not depend on what
    else was captured."""

    mask: int = 0
    times: dict[int, dict[int, int]] = field(default_factory=dict)
    """2 × sequence number, and 1 more of a SYN → capture → time of its first copy."""

    def add(self, keys: Int64s, times: Int64s, capture: int) -> None:
        chosen = np.flatnonzero(_hash(keys) & np.uint64(self.mask) == 0)
        for key, time_ns in zip(keys[chosen].tolist(), times[chosen].tolist(), strict=True):
            self.times.setdefault(key, {}).setdefault(capture, time_ns)
        while len(self.times) > MAX_SAMPLES:
            self.mask = self.mask * 2 + 1
            known = np.array(list(self.times), dtype=np.int64)
            for key in known[_hash(known) & np.uint64(self.mask) != 0].tolist():
                del self.times[key]


def _hash(keys: Int64s) -> NDArray[np.uint64]:
    """The upper bits of a product, in which neighbours are far apart."""
    product: NDArray[np.uint64] = keys.astype(np.uint64) * np.uint64(_SPREAD)
    hashed: NDArray[np.uint64] = (product & np.uint64((1 << _HASH_BITS) - 1)) >> np.uint64(8)
    return hashed


class _Place(Struct, frozen=True):
    """Where a direction of a connection is in a capture."""

    sequence: int
    time_ns: int
    capture: int


class ClockSamples:
    """Times of packets of some captures."""

    def __init__(self) -> None:
        self._flows: dict[Flow, _Times] = defaultdict(_Times)
        self._begins: dict[Flow, _Place] = {}
        """First byte, or SYN."""
        self._ends: dict[Flow, dict[int, _Place]] = defaultdict(dict)
        """Sniffer → what comes after the last byte that it captured."""
        self.sniffers: dict[int, int] = {}
        """Capture → the first one of the same sniffer, where it goes on from one."""
        self.hosts: dict[int, frozenset[str]] = {}
        """Capture → hosts that are at an end of all connections in it."""

    def note(self, block: SegmentBlock, flows: Sequence[Flow]) -> None:
        """Takes the segments that have data or begin a connection; `flows` is the segmenter's table."""
        syn, sniffer = (block.flags & SYN) != 0, self.sniffers.get(block.capture, block.capture)
        rows = np.flatnonzero((block.length > 0) | syn)
        order = rows[np.argsort(block.flow[rows], kind="stable")]
        edges = np.flatnonzero(np.diff(block.flow[order])) + 1
        for part in np.split(order, edges):
            if len(part):
                keys = block.sequence[part] * 2 + syn[part]
                flow, times = flows[int(block.flow[part[0]])], block.time_ns[part]
                self._flows[flow].add(keys, times, block.capture)
                ends = frozenset((flow.source.host, flow.destination.host))
                self.hosts[block.capture] = self.hosts.get(block.capture, ends) & ends
                first = int(block.sequence[part[0]])
                ahead = (block.sequence[part] - first + _HALF) % (2 * _HALF) - _HALF
                after = first + int((ahead + block.length[part] + syn[part]).max())
                self._begins.setdefault(flow, _Place(first, int(times.min()), block.capture))
                self._ends[flow][sniffer] = _Place(after % (2 * _HALF), int(times.max()), block.capture)

    def against(self, other: ClockSamples, known: Sequence[ClockOffset | None]) -> ClockOffset | None:
        """The offset of this object's one capture; `other` has earlier captures in the first one's clock.

        `known` are the offsets of those: what they are unsure of, this one is unsure of too.
        """
        found: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for forth, back in self._pairs():
            there = other._flows.get(forth), other._flows.get(back)
            if there[0] is not None and there[1] is not None:
                out = _differences(self._flows[forth], there[0])
                home = _differences(self._flows[back], there[1])
                for capture in sorted(out.keys() & home.keys()):
                    found[capture].append(_bounds(out[capture], home[capture]))
        offsets = []
        for capture, bounds in found.items():
            before = known[capture]
            offsets.append(_joined(bounds, 0 if before is None else before.uncertainty_ns))
        return min(offsets, key=lambda offset: offset.uncertainty_ns, default=None)

    def goes_on_from(self, other: ClockSamples, known: Sequence[ClockOffset | None]) -> int | None:
        """Returns the capture of `other` that this object's one goes on from: some connection does so with
        the next byte after those of a sniffer, and none with what that one has already. None where there is
        none, or two hosts may have captured the same up to then."""
        found: dict[int, int] = {}
        refused = set()
        for flow, begin in self._begins.items():
            for sniffer, end in other._ends.get(flow, {}).items():
                clock = known[end.capture]
                ahead = (begin.sequence - end.sequence + _HALF) % (2 * _HALF) - _HALF
                if ahead < 0 or begin.time_ns < end.time_ns + (0 if clock is None else clock.shift_ns):
                    refused.add(sniffer)
                if ahead == 0:
                    found[sniffer] = max(end.capture, found.get(sniffer, 0))
        left = [sniffer for sniffer in found if self._may_be_at(other, sniffer)]
        return found[left[0]] if len(left) == 1 and left[0] not in refused else None

    def _may_be_at(self, other: ClockSamples, sniffer: int) -> bool:
        """Whether this object's one capture may be made where a sniffer is."""
        its = frozenset.intersection(*self.hosts.values())
        theirs = [hosts for one, hosts in other.hosts.items() if other.sniffers.get(one, one) == sniffer]
        return not its or any(not hosts for hosts in theirs) or bool(its.intersection(*theirs))

    def _pairs(self) -> Iterator[tuple[Flow, Flow]]:
        """Yields both directions between two endpoints, each pair once."""
        for flow in list(self._flows):
            if str(flow) < str(flow.reversed) and flow.reversed in self._flows:
                yield flow, flow.reversed


def _differences(mine: _Times, theirs: _Times) -> dict[int, list[int]]:
    """Returns, for packets in both captures, capture of theirs → how much later mine was captured."""
    found: dict[int, list[int]] = defaultdict(list)
    for key, times in mine.times.items():
        (time_ns,) = times.values()
        for capture, before in theirs.times.get(key, {}).items():
            found[capture].append(time_ns - before)
    return found


def _bounds(forth: Sequence[int], back: Sequence[int]) -> tuple[int, int]:
    """(at least, at most) of one connection."""
    for outward, homeward in ((forth, back), (back, forth)):
        if min(outward) >= max(homeward):
            return max(homeward), min(outward)
    # clocks drift, or one machine has both sniffers
    from statistics import median_low  # with fractions and decimals, which one capture need not wait for

    low, high = sorted((median_low(forth), median_low(back)))
    return low, high


def _joined(bounds: Iterable[tuple[int, int]], more_ns: int) -> ClockOffset:
    lows, highs = zip(*bounds, strict=True)
    low, high = sorted((max(lows), min(highs)))  # connections contradict each other where clocks drift
    return ClockOffset(
        offset_ns=(low + high) // 2,
        uncertainty_ns=(high - low + 1) // 2 + more_ns,
        connections=len(lows),
    )

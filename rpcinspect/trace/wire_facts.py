"""What the TCP stage noted of a capture, in so few words that the streams need not be kept.

In: every connection, once all files were read. Out: `WireFacts`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rpcinspect.wire.stream import Conflict, Stream
from rpcinspect.wire.tcp import Connection


@dataclass(frozen=True, slots=True)
class WireFacts:
    """Flows are named as everywhere in the output: `ip:port>ip:port`."""

    holes: tuple[tuple[str, int, int], ...] = ()
    """(flow, number of holes, bytes) for each stream with any."""
    cut_bytes: int = 0
    """By the snap length."""
    conflicts: tuple[tuple[str, int, Conflict], ...] = ()
    """(flow, offset in the stream, conflict)."""
    damaged: frozenset[str] = frozenset()
    """Flows of which bytes were lost or cut."""
    closed: frozenset[str] = frozenset()
    """Flows of connections that were closed or reset: nothing can follow in either direction."""

    @classmethod
    def of(cls, connections: Iterable[Connection]) -> WireFacts:
        """Sums over every stream."""
        holes: list[tuple[str, int, int]] = []
        conflicts: list[tuple[str, int, Conflict]] = []
        damaged: set[str] = set()
        closed: set[str] = set()
        cut = 0
        for connection in connections:
            over = connection.reset_ns is not None or any(s.fin is not None for s in connection.streams)
            for stream in connection.streams:
                flow = str(stream.flow)
                cut += stream.cut_bytes
                lost = _lost_bytes(stream)
                if lost:
                    holes.append((flow, len(stream.holes), lost))
                if lost or stream.cut_bytes:
                    damaged.add(flow)
                if over:
                    closed.add(flow)
                conflicts += [(flow, stream.offset(c.position), c) for c in stream.conflicts]
        return cls(tuple(holes), cut, tuple(conflicts), frozenset(damaged), frozenset(closed))


def _lost_bytes(stream: Stream) -> int:
    return max(0, sum(b - a for a, b in stream.holes) - stream.cut_bytes)

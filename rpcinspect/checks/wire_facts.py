"""What the TCP stage noted of a capture, in so few words that the streams need not be kept.

In: every connection, once all files were read. Out: `WireFacts`, and who ended each connection.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable
from itertools import accumulate
from typing import Literal, TypeAlias

from msgspec import Struct

from rpcinspect.store.visits import Visit
from rpcinspect.tcp.refusals import Refusal, hosts_that_talk, reached, refusals, refused_attempts
from rpcinspect.tcp.stream import Conflict, Connection, Stream
from rpcinspect.tensorpipe.records import Pipe

CloseKind: TypeAlias = Literal["closed", "reset"]
"""Whether a connection ended by a FIN or by a RST."""


class ConnectionEnd(Struct, frozen=True, kw_only=True):
    """The end of a TCP connection."""

    flow: str
    """Of the descriptor connection, from the client: `ip:port>ip:port`."""
    begin_ns: int
    """Of its first packet."""
    last_ns: int
    by_client: bool
    """Whether the client closed it first."""
    how: CloseKind
    time_ns: int

    @classmethod
    def of(cls, connections: Iterable[Connection]) -> tuple[ConnectionEnd, ...]:
        """Returns the captured ends, each under both names of its flow."""
        found = []
        for connection in connections:
            ends: list[tuple[int, CloseKind, bool]] = [
                (s.fin_ns, "closed", s is connection.forward)
                for s in connection.streams
                if s.fin_ns is not None
            ]
            if connection.reset_ns is not None:
                ends.append((connection.reset_ns, "reset", connection.reset_by is connection.forward))
            if not ends:
                continue
            time_ns, how, forward = min(ends)
            times = [s.first_ns for s in connection.streams if s.first_ns is not None]
            for flow, by_client in ((connection.flow, forward), (connection.flow.reversed, not forward)):
                found.append(
                    cls(
                        flow=str(flow),
                        begin_ns=min(times, default=0),
                        last_ns=max(s.last_ns for s in connection.streams),
                        by_client=by_client,
                        how=how,
                        time_ns=time_ns,
                    )
                )
        return tuple(found)


class ConnectionEnds:
    """The ends of connections, by the pipes whose descriptors they carried."""

    def __init__(self, ends: Iterable[ConnectionEnd]) -> None:
        by_flow: dict[str, list[ConnectionEnd]] = defaultdict(list)
        for end in ends:
            by_flow[end.flow].append(end)
        self._by_flow = {flow: _Uses(its) for flow, its in by_flow.items()}

    def of(self, pipe: Pipe) -> ConnectionEnd | None:
        """Returns how a pipe ended; ports may be used again, so that the pipe's time counts."""
        uses = self._by_flow.get(str(pipe.flow))
        return None if uses is None else uses.at(pipe.first_ns)


class _Uses:
    """The connections that used the same two ports, one after the other."""

    def __init__(self, ends: Iterable[ConnectionEnd]) -> None:
        self._ends = sorted(ends, key=lambda end: end.begin_ns)
        self._begins = [end.begin_ns for end in self._ends]
        self._lasts = list(accumulate((end.last_ns for end in self._ends), max))
        """When the last of those up to each was over."""

    def at(self, time_ns: int) -> ConnectionEnd | None:
        """Returns the first use that was there at that time."""
        first = bisect_left(self._lasts, time_ns)
        return self._ends[first] if first < bisect_right(self._begins, time_ns) else None


class WireFacts(Struct, frozen=True):
    """What the wire tells to findings: lost bytes, ends of connections, refusals, visits at stores. A flow is
    `ip:port>ip:port`."""

    holes: tuple[tuple[str, int, int], ...] = ()
    """(flow, number of holes, bytes) for each stream with any."""
    cut_bytes: int = 0
    """By the snap length."""
    conflicts: tuple[tuple[str, int, Conflict], ...] = ()
    """(flow, offset in the stream, conflict)."""
    damaged: frozenset[str] = frozenset()
    """Flows of which bytes were lost or cut."""
    ends: tuple[ConnectionEnd, ...] = ()
    """Of connections that were closed or reset: nothing can follow in either direction."""
    refused: tuple[tuple[str, int], ...] = ()
    """(address, time) of each attempt to connect that was refused."""
    dropped: tuple[tuple[str, str], ...] = ()
    """(sender, receiver) of messages that the writer of a log could not write."""
    refusals: tuple[Refusal, ...] = ()
    """Connections that nobody took."""
    talking: frozenset[tuple[str, str]] = frozenset()
    """Pairs of hosts, both ways round, whose traffic was captured."""
    reached: frozenset[str] = frozenset()
    """Addresses of agents, `ip:port`, to which a connection came about."""
    visits: tuple[Visit, ...] = ()
    """Of processes at stores, to begin with RPC."""
    stores: tuple[str, ...] = ()
    """Where stores answered, `ip:port`."""

    @classmethod
    def of(
        cls,
        connections: Iterable[Connection],
        given_up: Iterable[str] = (),
        visits: Iterable[Visit] = (),
        stores: Iterable[str] = (),
    ) -> WireFacts:
        """Sums over every stream; `given_up`: flows whose reading failed."""
        connections, visits = tuple(connections), tuple(visits)
        holes: list[tuple[str, int, int]] = []
        conflicts: list[tuple[str, int, Conflict]] = []
        damaged = set(given_up)
        cut = 0
        for connection in connections:
            for stream in connection.streams:
                flow = str(stream.flow)
                cut += stream.cut_bytes
                lost = _lost_bytes(stream)
                if lost:
                    holes.append((flow, len(stream.holes), lost))
                if lost or stream.cut_bytes:
                    damaged.add(flow)
                conflicts += [(flow, stream.offset(c.position), c) for c in stream.conflicts]
        return cls(
            tuple(holes),
            cut,
            tuple(conflicts),
            frozenset(damaged),
            ConnectionEnd.of(connections),
            refused=tuple(refused_attempts(connections)),
            refusals=refusals(connections),
            talking=hosts_that_talk(connections),
            reached=reached(connections, {visit.place for visit in visits}),
            visits=visits,
            stores=tuple(stores),
        )


def _lost_bytes(stream: Stream) -> int:
    return max(0, sum(b - a for a, b in stream.holes) - stream.cut_bytes)

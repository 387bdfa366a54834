"""Connections that somebody tried to open and nobody took.

In: every connection, once all captures were read. Out: a `Refusal` for each host and address between which no
later connection came about. Who tries again until it works, as every process does that waits for a store, is
not among them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator

from msgspec import Struct

from rpcinspect.tcp.stream import Connection, Stream

PATIENCE_NS = 1_000_000_000
"""Who sends a SYN again after so long has got no answer."""


class Refusal(Struct, frozen=True, kw_only=True):
    """Connection attempts from one host to one address that were refused or got no answer."""

    host: str
    server: str
    """`ip:port`."""
    count: int
    first_ns: int
    last_ns: int
    silent: bool
    """Nothing came back; else each was reset."""


def refusals(connections: Iterable[Connection]) -> tuple[Refusal, ...]:
    """Returns the connection attempts that no server accepted, in the order of time."""
    tried: dict[tuple[str, str, bool], list[int]] = defaultdict(list)
    taken: dict[tuple[str, str], int] = {}
    for connection in connections:
        client = connection.client
        if client is None or client.first_ns is None:
            continue
        way = client.flow.source.host, str(client.flow.destination)
        silent = _silent(connection, client)
        if silent or _refused(connection, client):
            tried[way[0], way[1], silent].append(client.first_ns)
        elif _taken(connection, client):
            taken[way] = max(client.first_ns, taken.get(way, 0))
    found = []
    for (host, server, silent), times in tried.items():
        times = [time_ns for time_ns in times if time_ns > taken.get((host, server), -1)]
        if times:
            found.append(
                Refusal(
                    host=host,
                    server=server,
                    count=len(times),
                    first_ns=min(times),
                    last_ns=max(times),
                    silent=silent,
                )
            )
    return tuple(sorted(found, key=lambda one: (one.first_ns, one.host, one.server)))


def refused_attempts(connections: Iterable[Connection]) -> Iterator[tuple[str, int]]:
    """(address, time) of each attempt that was refused, also where a later one was not."""
    for connection in connections:
        client = connection.client
        if client is not None and client.first_ns is not None and _refused(connection, client):
            yield str(client.flow.destination), client.first_ns


def reached(connections: Iterable[Connection], addresses: Collection[str | None]) -> frozenset[str]:
    """Returns the addresses to which a connection was established."""
    found = set()
    for connection in connections if addresses else ():
        for stream in connection.streams if connection.client is None else (connection.client,):
            address = str(stream.flow.destination)
            if address in addresses and _taken(connection, stream):
                found.add(address)
    return frozenset(found)


def _taken(connection: Connection, client: Stream) -> bool:
    """Returns whether the server has sent anything but a refusal."""
    return not _refused(connection, client) and connection.other(client).first_ns is not None


def _refused(connection: Connection, client: Stream) -> bool:
    """A SYN that was answered by a RST."""
    return (
        connection.client_isn is not None
        and connection.server_isn is None
        and connection.reset_by is connection.other(client)
        and client.end == client.origin
    )


def _silent(connection: Connection, client: Stream) -> bool:
    """A SYN that was sent again, and never answered; nothing else came from either side."""
    other = connection.other(client)
    return (
        connection.client_isn is not None
        and other.first_ns is None
        and other.acked is None
        and client.end == client.origin
        and client.fin is None
        and connection.reset_ns is None
        and client.first_ns is not None
        and client.last_ns - client.first_ns >= PATIENCE_NS
    )


def hosts_that_talk(connections: Iterable[Connection]) -> frozenset[tuple[str, str]]:
    """Pairs of hosts, both ways round, of which a connection was captured in both directions."""
    found: set[tuple[str, str]] = set()
    for connection in connections:
        if all(stream.first_ns is not None for stream in connection.streams):
            a, b = connection.flow.source.host, connection.flow.destination.host
            found |= {(a, b), (b, a)}
    return frozenset(found)

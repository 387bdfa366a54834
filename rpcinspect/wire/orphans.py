"""Connections whose beginning was not captured → the pipes whose tensors they carry.

In: at the end, pipes with tensors that no connection is known to carry, and connections that nothing has
explained. Out: who belongs to whom, where only one answer is possible: a connection between the pipe's two
hosts that ends, in both directions, with frames of just the lengths that the pipe's last descriptors
announce.

There is nothing upstream to mirror: with the handshake, TensorPipe knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rpcinspect.wire.align import fits
from rpcinspect.wire.channel import ended_well
from rpcinspect.wire.pipe import BASIC, PipeState
from rpcinspect.wire.stream import Stream
from rpcinspect.wire.tcp import Connection


@dataclass(frozen=True, slots=True)
class Orphan:
    """A connection that may be a lane of some pipe."""

    connection: Connection
    start: int | None
    """Where the client's frames begin, behind its hello; None: the hello was not captured."""


def adopt(states: Sequence[PipeState], orphans: Sequence[Orphan]) -> set[int]:
    """Gives connections to the pipes that wait for one; returns the numbers of those that were given."""
    waiting = [state for state in states if state.orphaned]
    matches: dict[int, list[Orphan]] = {}
    for index, state in enumerate(waiting):
        matches[index] = [orphan for orphan in orphans if _belongs(state, orphan)]
    given: set[int] = set()
    for index, orphan in _only_matches(matches).items():
        state = waiting[index]
        client = _client(state, orphan.connection)
        assert client is not None
        server = orphan.connection.other(client)
        orphan.connection.client = client
        if state.awaits_channel:
            state.imply_channel(BASIC)
        starts = (orphan.start, server.origin if server.start_known else None)
        state.attach_lane(BASIC, 0, (client, server), starts)
        given.add(orphan.connection.number)
    return given


def _client(state: PipeState, connection: Connection) -> Stream | None:
    """The stream that would be the client's: it goes to where the pipe's server listens."""
    pipe = state.pipe
    for stream in connection.streams:
        if stream.flow.destination == pipe.server and stream.flow.source.host == pipe.client.host:
            return stream
    return None


def _belongs(state: PipeState, orphan: Orphan) -> bool:
    client = _client(state, orphan.connection)
    if client is None or (orphan.connection.client not in (None, client)):
        return False
    confirmed = 0
    for direction, stream in enumerate((client, orphan.connection.other(client))):
        due = state.due(direction)
        if due is None:
            return False
        if not due:
            continue
        if not ended_well(stream) or stream.fin is None:
            return False
        found = fits(stream, stream.fin, due)
        if found < 0:
            return False
        confirmed += found
    return confirmed > 0


def _only_matches(matches: dict[int, list[Orphan]]) -> dict[int, Orphan]:
    """Pairs that are the only possible ones; each that is found may decide others."""
    out: dict[int, Orphan] = {}
    while True:
        single = next((i for i, found in matches.items() if len(found) == 1), None)
        if single is None:
            return out
        [orphan] = matches.pop(single)
        rivals = [i for i, found in matches.items() if found == [orphan]]
        for rival in rivals:
            del matches[rival]
        if not rivals:
            out[single] = orphan
        for found in matches.values():
            if orphan in found:
                found.remove(orphan)

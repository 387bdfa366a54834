"""A worker's conversation with the TCPStore, among the connections of a capture.

In: the streams of a connection that begins as a client of a store does. Out, in the registry: entries of
keys that tell of workers, visits of processes, and how many bytes the store took.
"""

from __future__ import annotations

from msgspec.structs import replace

from rpcinspect.problems import Problem
from rpcinspect.store.conversation import StoreConversation
from rpcinspect.store.directory import StoreEntry, directory_key
from rpcinspect.store.operations import StoreGeneration
from rpcinspect.store.visits import Visit, Visits
from rpcinspect.tcp.stream import Connection
from rpcinspect.tensorpipe.records import TpMessage
from rpcinspect.tensorpipe.registry import Handler, Registry


class StoreHandler(Handler):
    """A worker's conversation with the TCPStore."""

    def __init__(self, registry: Registry, connection: Connection, generation: StoreGeneration) -> None:
        super().__init__(registry, connection)
        self._conversation = StoreConversation(generation, registry.limits)
        client, server = connection.client, connection.server
        assert client is not None
        assert server is not None
        self._streams = client, server
        self._positions = [client.origin, server.origin]
        self._server_address = str(client.flow.destination)
        self._teller = Visits(str(client.flow.source), self._server_address)
        self._visits: list[Visit] = []
        registry.store_addresses.setdefault(self._server_address)
        self._since_ns = client.first_ns if connection.client_isn is not None else None
        self._spoke_ns = client.first_ns or 0
        self._pause_ns = 0
        self._guessed = connection.client_isn is None and generation is not StoreGeneration.V2_2
        """It began before the capture, and what came first only looks like the first request of an old
        release: in the middle of a newer one's conversation, requests look like that too."""

    def advance(self, done: list[TpMessage]) -> None:
        """Feeds both directions."""
        conversation = self._conversation
        for side, stream in enumerate(self._streams):
            position = self._positions[side]
            if position is None:
                position = stream.origin
            end = stream.end
            if position is None or end is None:
                continue
            if position == stream.origin and not stream.start_known and self._positions[side] is None:
                conversation.gap(not side, 0)
            while position < end:
                hole = stream.next_hole(position) if stream.holes else None
                if hole is not None and hole[0] <= position:
                    conversation.gap(not side, hole[1] - position)
                    position = hole[1]
                    continue
                # One segment at a time: a name holds from the segment on that told it, not from a later one.
                stop = min(stream.segment_end(position), end if hole is None else hole[0])
                time_ns = stream.stamp(position, stop)[1]
                if not side:
                    self._pause_ns = max(self._pause_ns, time_ns - self._spoke_ns)
                    self._spoke_ns = time_ns
                for entry in conversation.feed(not side, stream.read(position, stop), time_ns):
                    visit = self._teller.feed(entry)
                    if visit is not None:
                        self._visits.append(visit)
                        self.registry.visits.append(visit)
                    if directory_key(entry.key) is not None:
                        self.registry.store_entries.append(self._told(entry))
                self.registry.store_bytes += stop - position
                position = stop
            self._positions[side] = position
            stream.release(position)

    def _told(self, entry: StoreEntry) -> StoreEntry:
        """Returns an entry with server and times of its connection."""
        server, since, pause = self._server_address, self._since_ns, self._pause_ns
        return replace(entry, server=server, since_ns=since, pause_ns=pause)

    def finish(self) -> None:
        """Reports what could not be read."""
        client, server = self.connection.client, self.connection.server
        assert client is not None
        assert server is not None
        problems = self._conversation.finish()
        for visit in self._visits:
            visit.ended_ns = self.connection.ended_ns
            visit.whole = not problems
        for problem in problems:
            if self._guessed:
                continue
            stream = client if problem.from_client else server
            where = stream.location((stream.origin or 0) + problem.offset)
            self.registry.problems.append(Problem("store", problem.reason, where))

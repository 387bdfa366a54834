"""Connections whose beginning was not captured: a pipe's, if descriptors are found in them.

In: a connection that began before the capture, or whose first bytes were lost. Out: messages from the first
descriptor on; the types of messages tell which side is the client. What holds no descriptor may be a lane of
some pipe: the end will tell.
"""

from __future__ import annotations

from rpcinspect.tcp.stream import Connection, Stream
from rpcinspect.tensorpipe.frame import HEADER, HEADER_BYTES
from rpcinspect.tensorpipe.orphans import LaneCandidate
from rpcinspect.tensorpipe.pipe import FROM_CLIENT, FROM_SERVER, PipeState
from rpcinspect.tensorpipe.records import TpMessage, Visibility
from rpcinspect.tensorpipe.registry import Handler, Registry
from rpcinspect.tensorpipe.search import DescriptorSearch

TYPE_REQUEST, TYPE_RESPONSE = 0x100, 0x200


class MidstreamHandler(Handler):
    """A connection whose beginning was not captured: it is a pipe's if descriptors are found in it."""

    def __init__(self, registry: Registry, connection: Connection) -> None:
        super().__init__(registry, connection)
        self._searches: dict[int, DescriptorSearch] = {}
        """By id() of the stream."""
        self._state: PipeState | None = None
        self._unread: list[tuple[int, Stream]] = []
        """Directions of the pipe of which nothing has been captured yet."""

    def advance(self, done: list[TpMessage]) -> None:
        """Searches until descriptors are found in one direction, then reads both."""
        if self._state is None:
            self._search()
        if self._state is not None:
            if self._unread:
                self._read(self._state)
            done += self._state.advance()

    def orphan(self) -> LaneCandidate | None:
        """Returns the connection as a possible lane, unless it turned out to be a pipe's own."""
        return LaneCandidate(self.connection, None) if self._state is None else None

    def finish(self) -> None:
        """Counts the bytes as skipped where no descriptor was found."""
        if self._state is None:
            self._skip()

    def _search(self) -> None:
        connection, registry = self.connection, self.registry
        for stream in connection.streams:
            kind = self._first_type(stream)
            if kind is not None:
                client = stream if kind & TYPE_REQUEST else connection.other(stream)
                connection.client = client
                self._state = registry.open_pipe(connection, None)
                self._state.pipe.visible = Visibility.NO_HANDSHAKE
                self._state.pipe.reason = "the capture starts after the handshake"
                self._state.awaits_channel = self._state.headless = True
                self._unread = [(FROM_CLIENT, client), (FROM_SERVER, connection.other(client))]
                return

    def _read(self, state: PipeState) -> None:
        """Reads messages from where the search has come to."""
        for direction, stream in [*self._unread]:
            search = self._searches.get(id(stream))
            if search is not None or stream.origin is not None:
                position = search.needed if search is not None else (stream.origin or 0)
                state.read_messages(direction, stream, position, lost=True)
                self._unread.remove((direction, stream))

    def _first_type(self, stream: Stream) -> int | None:
        """The type of the first message in `stream`; None: nothing found (yet)."""
        search = self._searches.get(id(stream))
        if search is None:
            if stream.origin is None:
                return None
            search = self._searches[id(stream)] = self.registry.search(stream, stream.origin)
        while (start := search.find()) is not None:
            length = HEADER.unpack(stream.read(start, start + HEADER_BYTES))[0]
            behind = start + HEADER_BYTES + length + HEADER_BYTES
            if stream.end is not None and behind + 4 <= stream.end and not stream.missing(behind, behind + 4):
                kind = int.from_bytes(stream.read(behind, behind + 4), "little")
                if kind & (TYPE_REQUEST | TYPE_RESPONSE):
                    search.go_on(start)
                    return kind
        stream.rest(search.needed)  # a lane of some pipe, perhaps: its ranges are wanted at the end
        return None

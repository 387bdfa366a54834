"""What a connection is being treated as: the base of all handlers.

A handler is told when its connection's streams grew, and at the end. It takes what it needs from the
`Registry`, which knows all pipes and roles, and gives complete messages.
"""

from __future__ import annotations

from rpcinspect.tcp.stream import Connection
from rpcinspect.tensorpipe.orphans import Orphan
from rpcinspect.tensorpipe.records import TpMessage
from rpcinspect.tensorpipe.registry import Registry


class Handler:
    """What a connection is being treated as."""

    def __init__(self, registry: Registry, connection: Connection) -> None:
        self.registry = registry
        self.connection = connection

    def advance(self, done: list[TpMessage]) -> Handler | None:
        """Reads on: a stream of the connection may have grown. Gives the handler that takes over, if any."""
        return None

    def end(self, done: list[TpMessage]) -> None:
        """The streams have ended, and those of all others; before it is asked whether it is an orphan."""

    def orphan(self) -> Orphan | None:
        """This connection, if nothing has explained it and it may be a lane of some pipe."""
        return None

    def finish(self) -> None:
        """Nothing more will come."""

    def _skip(self) -> None:
        """Counts all bytes of the connection as another protocol's."""
        for stream in self.connection.streams:
            if stream.end is not None and stream.origin is not None:
                present = stream.end - stream.origin - stream.missing(stream.origin, stream.end)
                self.registry.skipped_bytes += present

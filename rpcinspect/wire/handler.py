"""What a connection is being treated as: the base of all handlers, and the roles that extra connections have.

A handler is told when its connection's streams grew, and at the end. It takes what it needs from the `Demux`,
which knows all pipes and roles, and gives complete messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from rpcinspect.wire.orphans import Orphan
from rpcinspect.wire.pipe import PipeState
from rpcinspect.wire.records import TpMessage
from rpcinspect.wire.tcp import Connection

if TYPE_CHECKING:
    from rpcinspect.wire.demux import Demux


class Role(Struct, frozen=True):
    """What a requested connection is for."""

    owner: PipeState
    kind: str
    """`descriptor`, `reply`, `channel` or `lane`."""
    channel: str = ""
    index: int = 0
    implied: bool = False
    """Derived from the order in which ids are given out, since the answer was not captured."""


class Handler:
    """What a connection is being treated as."""

    def __init__(self, demux: Demux, connection: Connection) -> None:
        self.demux = demux
        self.connection = connection

    def advance(self, done: list[TpMessage]) -> None:
        """One of the connection's streams grew (or may have)."""

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
                self.demux.skipped_bytes += present

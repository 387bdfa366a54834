"""What is to be written of one TCP connection: its two ends, and what either of them says when.

In: bytes, places of bytes in the captures, and gaps, in the order of each direction. Out: `Talk`s with their
`Piece`s; `file.py` makes packets of them.
"""

from __future__ import annotations

from msgspec import Struct, field

from rpcinspect.tcp.ranges import Extent
from rpcinspect.tcp.segment import Endpoint

CLIENT, SERVER = 0, 1

OPENING, SAYING, CLOSING = 0, 1, 2
"""What comes first of things that happen at the same time."""


class Piece(Struct, frozen=True):
    """Bytes that one side sends."""

    time_ns: int
    rank: int
    index: int
    """Of the message: of messages of the same time the lower ones come first."""
    side: int
    at: int
    """Bytes that the side has said before."""
    said: bytes | Extent
    """Of an extent, the bytes that were captured."""


class Talk(Struct, eq=False):
    """A connection to be written."""

    client: Endpoint
    server: Endpoint
    open_ns: int
    close_ns: int | None = None
    """None: when everything ends."""
    pieces: list[Piece] = field(default_factory=list)
    lengths: list[int] = field(default_factory=lambda: [0, 0])
    """Bytes that client and server have said, gaps included."""

    def greet(self, side: int, said: bytes) -> None:
        """Sends bytes as soon as the connection is open."""
        self._add(self.open_ns, OPENING, -1, side, said, len(said))

    def say(self, time_ns: int, index: int, side: int, said: bytes | Extent) -> None:
        """Sends bytes that belong to a message."""
        size = len(said) if isinstance(said, bytes) else said.length
        self._add(time_ns, SAYING, index, side, said, size)

    def skip(self, side: int, length: int) -> None:
        """Leaves out bytes of a side that nobody knows."""
        self.lengths[side] += length

    def last_ns(self) -> int:
        """Returns the time of the last piece."""
        return max((piece.time_ns for piece in self.pieces), default=self.open_ns)

    def _add(self, time_ns: int, rank: int, index: int, side: int, said: bytes | Extent, size: int) -> None:
        if size:
            self.pieces.append(Piece(time_ns, rank, index, side, self.lengths[side], said))
            self.lengths[side] += size


class Ports:
    """Ports for ends of connections that no record names."""

    def __init__(self, taken: set[Endpoint]) -> None:
        self._taken = taken
        self._next: dict[str, int] = {}

    def take(self, host: str) -> Endpoint:
        """An end on a host that nobody else has; after some 60,000 of them ports are used again, as real ones
        are."""
        port = self._next.get(host, HIGHEST_PORT)
        while (found := Endpoint(host, port)) in self._taken:
            port = port - 1 if port > LOWEST_PORT else HIGHEST_PORT
        self._next[host] = port - 1 if port > LOWEST_PORT else HIGHEST_PORT
        return found


LOWEST_PORT, HIGHEST_PORT = 1024, 60999
"""60,999 is the last port that Linux gives to clients."""

"""What is known of all connections of a capture: pipes, what extra connections are for, the store, and sums;
and the base of what a connection is treated as.

Handlers of connections tell the registry what they find and ask it what others found. An extra connection is
matched by (listener, registration id), as `tensorpipe/core/listener_impl.cc` does.
"""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from rpcinspect.limits import Limits
from rpcinspect.problems import Problem
from rpcinspect.store.directory import StoreEntry
from rpcinspect.store.visits import Visit
from rpcinspect.tcp.stream import Connection, Stream
from rpcinspect.tensorpipe.orphans import LaneCandidate
from rpcinspect.tensorpipe.pipe import PipeState
from rpcinspect.tensorpipe.rebuild import ReadTable
from rpcinspect.tensorpipe.records import Pipe, TpMessage
from rpcinspect.tensorpipe.search import DescriptorSearch
from rpcinspect.tensorpipe.shape_table import ShapeTable


class Role(Struct, frozen=True):
    """What a requested connection is for."""

    owner: PipeState
    kind: str
    """`descriptor`, `reply`, `channel` or `lane`."""
    channel: str = ""
    index: int = 0
    implied: bool = False
    """Derived from the order in which ids are given out, since the answer was not captured."""


class Requested(Protocol):
    """An extra connection, which begins with an id that its listener gave out."""

    key: tuple[str, int]
    """(listener, registration id)."""

    def is_descriptor(self) -> bool:
        """Returns whether the first bytes are a descriptor's."""

    def assign(self, role: Role, done: list[TpMessage]) -> None:
        """Takes the role of the connection."""


class Registry:
    """Pipes, roles, the store, and sums of one capture."""

    def __init__(self, limits: Limits, *, patient: bool, read_table: ReadTable | None) -> None:
        """`patient`: see `PipeState`; `read_table`: see `rebuild`."""
        self.limits = limits
        self._patient = patient
        self.shapes = ShapeTable(limits, read_table)
        self.pipes: list[PipeState] = []
        self.opened: list[Pipe] = []
        """The pipes of `pipes`."""
        self.store_entries: list[StoreEntry] = []
        self.visits: list[Visit] = []
        """Of processes at stores; how they ended is known once all streams have."""
        self.store_addresses: dict[str, None] = {}
        """Where stores answered."""
        self.store_bytes = 0
        self.skipped_bytes = 0
        self.problems: list[Problem] = []
        self._roles: dict[tuple[str, int], Role] = {}
        self._requested: dict[tuple[str, int], Requested] = {}

    def open_pipe(self, connection: Connection, client_name: str | None) -> PipeState:
        """A new pipe whose descriptor connection (or bootstrap) is this one."""
        assert connection.client is not None
        pipe = Pipe(len(self.pipes), connection.client.flow, client_name=client_name)
        pipe.listener = pipe.server
        pipe.first_ns = min(s.first_ns for s in connection.streams if s.first_ns is not None)
        state = PipeState(pipe, self.shapes, self.limits, patient=self._patient)
        state.connection = connection
        self.pipes.append(state)
        self.opened.append(pipe)
        return state

    def search(self, stream: Stream, position: int) -> DescriptorSearch:
        """Looks for descriptors in a stream from that position on."""
        return DescriptorSearch(stream, position, self.shapes.lengths, self.limits)

    def note_ends(self) -> None:
        """Sets the end times of pipes, as far as the connections have them."""
        for state in self.pipes:
            if state.connection is not None:
                state.pipe.ended_ns = state.connection.ended_ns

    def register(self, address: str, identifier: int, role: Role, done: list[TpMessage]) -> None:
        """Tells what the connection to `address` with this registration id is for, seen already or not."""
        key = (address, identifier)
        waiting = self._requested.get(key)
        if waiting is not None and not (role.implied and waiting.is_descriptor()):
            del self._requested[key]
            waiting.assign(role, done)
        else:
            self._roles[key] = role

    def claim(self, handler: Requested, done: list[TpMessage]) -> None:
        """Gives a requested connection the role that its id stands for, now or once the id is known."""
        key = handler.key
        role = self._roles.get(key)
        if role is not None and not (role.implied and handler.is_descriptor()):
            del self._roles[key]
            handler.assign(role, done)
        else:
            self._requested[key] = handler

    def forget(self, key: tuple[str, int]) -> None:
        """An extra connection is known to be something else, and waits no more."""
        self._requested.pop(key, None)


class Handler:
    """Reads one connection as one protocol: `advance` after its streams grew, `finish` at the end, give
    complete messages."""

    def __init__(self, registry: Registry, connection: Connection) -> None:
        self.registry = registry
        self.connection = connection

    def advance(self, done: list[TpMessage]) -> Handler | None:
        """Reads on: a stream of the connection may have grown. Gives the handler that takes over, if any."""
        return None

    def end(self, done: list[TpMessage]) -> None:
        """The streams have ended, and those of all others; before it is asked whether it is an orphan."""

    def orphan(self) -> LaneCandidate | None:
        """Returns the connection as a possible lane of some pipe; None where its role is known."""
        return None

    def finish(self) -> None:
        """Ends the connection."""

    def _skip(self) -> None:
        """Counts all bytes of the connection as another protocol's."""
        for stream in self.connection.streams:
            if stream.end is not None and stream.origin is not None:
                present = stream.end - stream.origin - stream.missing(stream.origin, stream.end)
                self.registry.skipped_bytes += present

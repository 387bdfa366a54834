"""Streams → TensorPipe messages: each connection is fed to the handler of what it is, which its first bytes
from the client tell, never its port. One that started before the capture goes to the handler that looks for
descriptors, another protocol to the one that counts its bytes.

In: the streams that grew. Out: complete `TpMessage`s; in the registry, the pipes, what the TCPStore was told,
and how many bytes belong to nobody here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from rpcinspect.errors import DecodeError
from rpcinspect.limits import DEFAULT_LIMITS, Limits
from rpcinspect.problems import Location
from rpcinspect.store.operations import looks_like_store, may_become_store
from rpcinspect.tcp.segment import Flow
from rpcinspect.tcp.stream import Stream
from rpcinspect.tensorpipe.control import read_brochure, read_first_frame
from rpcinspect.tensorpipe.control_types import SpontaneousConnection
from rpcinspect.tensorpipe.frame import HEADER, HEADER_BYTES, FrameCursor
from rpcinspect.tensorpipe.handshakes import FIRST_FRAME_BYTES, PipeHandler, RequestedHandler
from rpcinspect.tensorpipe.late_start import MidstreamHandler
from rpcinspect.tensorpipe.orphans import adopt, hosts_of
from rpcinspect.tensorpipe.rebuild import ReadTable
from rpcinspect.tensorpipe.records import Placement, TpMessage
from rpcinspect.tensorpipe.registry import Handler, Registry
from rpcinspect.tensorpipe.store_handler import StoreHandler
from rpcinspect.unexpected import unexpected


class NewHandler(Handler):
    """A connection with too few bytes to tell the protocol."""

    def advance(self, done: list[TpMessage]) -> Handler | None:
        """Decides as soon as the first bytes of the client are there."""
        connection, registry = self.connection, self.registry
        client = connection.client
        if client is None:
            client = self._guess_client()
            if client is None:
                if any(s.end is not None for s in connection.streams):
                    return MidstreamHandler(registry, connection)
                return None
            connection.client = client
        if client.end is None or client.origin is None or client.end == client.origin:
            return None
        if client.holes and client.holes[0][0] == client.origin:
            return MidstreamHandler(registry, connection)
        return self._classify(client)

    def _guess_client(self) -> Stream | None:
        """Without a SYN: the side whose first captured bytes are how a client begins."""
        for stream in self.connection.streams:
            if stream.end is not None and stream.origin is not None and stream.end > stream.origin:
                data = stream.read(stream.origin, min(stream.end, stream.origin + 64))
                if looks_like_store(data) is not None or _begins_like_hello(data):
                    return stream
        return None

    def _classify(self, client: Stream) -> Handler | None:
        registry, connection = self.registry, self.connection
        origin, end = client.origin, client.end
        assert origin is not None
        assert end is not None
        data = client.read(origin, min(end, origin + HEADER_BYTES + FIRST_FRAME_BYTES))
        generation = looks_like_store(data)
        if generation is not None:
            return StoreHandler(registry, connection, generation)
        if may_become_store(data) and not client.finished:
            return None
        if len(data) < HEADER_BYTES:
            return None
        length = HEADER.unpack_from(data)[0]
        if not 5 <= length <= FIRST_FRAME_BYTES or not _begins_like_hello(data):
            if _begins_like_hello(data, prefix=True) and not client.finished:
                return None
            return MidstreamHandler(registry, connection)
        if len(data) < HEADER_BYTES + length:
            return MidstreamHandler(registry, connection) if client.finished else None
        try:
            first = read_first_frame(data[HEADER_BYTES : HEADER_BYTES + length], registry.limits)
        except DecodeError:
            return MidstreamHandler(registry, connection)  # a damaged hello hides no messages
        position = origin + HEADER_BYTES + length
        if client.missing(origin, position):  # what reads as zeros may be a part of the name or of the id
            return MidstreamHandler(registry, connection)
        if isinstance(first, SpontaneousConnection):
            if connection.client_isn is None:
                brochure = self._brochure_follows(client, position)
                if brochure is None:
                    return None
                if not brochure:
                    connection.client = None
                    return MidstreamHandler(registry, connection)
            return PipeHandler(registry, connection, first, position)
        return RequestedHandler(registry, connection, first, position)

    def _brochure_follows(self, client: Stream, position: int) -> bool | None:
        """Where the SYN was not captured, the client is a guess that its second frame must confirm; None: not
        yet.
        """
        cursor = FrameCursor(client, position)
        length = cursor.length(position)
        if length is not None and length > self.registry.limits.control_frame_bytes:
            return False
        body = None if length is None else cursor.body(length)
        if body is None:
            # A brochure with a hole in it is settled too; what never came leaves the guess as it is.
            return True if client.finished else None
        try:
            read_brochure(body, self.registry.limits)
        except DecodeError:
            return client.missing(position, cursor.position) > 0
        return True

    def finish(self) -> None:
        """Counts the connection as skipped: its client sent next to nothing."""
        self._skip()


def _begins_like_hello(data: bytes, prefix: bool = False) -> bool:
    """Whether the first frame is a Variant of a structure of one member; `prefix`: as far as it is there."""
    body = data[HEADER_BYTES : HEADER_BYTES + 5]
    for start in (b"\xb8\x00\xb9\x01\xbd", b"\xb8\x01\xb9\x01"):
        if body.startswith(start) or (prefix and start.startswith(body)):
            return True
    return False


T = TypeVar("T")


class Demux:
    """The stage: `feed` streams that grew, then `finish`."""

    def __init__(
        self, limits: Limits = DEFAULT_LIMITS, *, patient: bool = True, read_table: ReadTable | None = None
    ) -> None:
        """`patient`: see `PipeState`; `read_table`: see `rebuild`."""
        self.registry = Registry(limits, patient=patient, read_table=read_table)
        self.given_up: set[str] = set()
        """Flows of which messages may be lost because their reading failed."""
        self._handlers: dict[int, Handler] = {}

    def feed(self, streams: list[Stream]) -> list[TpMessage]:
        """Every message that became complete because these streams grew."""
        done: list[TpMessage] = []
        for stream in streams:
            number = stream.connection.number
            handler = self._handlers.get(number)
            if handler is None:
                handler = self._handlers[number] = NewHandler(self.registry, stream.connection)
            try:
                self._advance(handler, done)
            except Exception as error:
                self._give_up(stream.flow, error, number)
        return done

    def _advance(self, handler: Handler, done: list[TpMessage]) -> None:
        """Feeds a connection until its role is known, as far as it was captured."""
        successor = handler.advance(done)
        while successor is not None:
            self._handlers[successor.connection.number] = successor
            successor = successor.advance(done)

    def finish(self) -> list[TpMessage]:
        """The streams have ended: everything that is left comes out."""
        done: list[TpMessage] = []
        for number, handler in list(self._handlers.items()):
            self._try(partial(self._advance, handler, done), handler.connection.flow, number)
        for number, handler in list(self._handlers.items()):
            self._try(partial(handler.end, done), handler.connection.flow, number)
        pipes = self.registry.pipes
        for state in pipes:
            done += self._try(state.finish_messages, state.pipe.flow) or ()
        orphans = [self._try(handler.orphan, handler.connection.flow) for handler in self._handlers.values()]
        found = [orphan for orphan in orphans if orphan is not None]
        adopted = self._try(partial(adopt, pipes, found)) or set()
        for number, handler in self._handlers.items():
            if number not in adopted:
                self._try(handler.finish, handler.connection.flow)
        strays = hosts_of(one for one in found if one.connection.number not in adopted)
        for state in pipes:
            ends = state.pipe.client.host, state.pipe.server.host
            elsewhere = Placement.UNCERTAIN if ends in strays else Placement.MISSING
            done += self._try(partial(state.finish, elsewhere), state.pipe.flow) or ()
            self.registry.problems += state.problems
        return done

    def _try(self, work: Callable[[], T], flow: Flow | None = None, number: int | None = None) -> T | None:
        """Returns the result of `work`; None after an unexpected exception, which becomes a problem."""
        try:
            return work()
        except Exception as error:
            self._give_up(flow, error, number)
            return None

    def _give_up(self, flow: Flow | None, error: Exception, number: int | None) -> None:
        """What the connection of that number brings is looked at no more, but by others that wait for it."""
        where = Location() if flow is None else Location(flow=str(flow))
        self.registry.problems.append(unexpected(error, "tensorpipe", where))
        if flow is not None:
            self.given_up |= {str(flow), str(flow.reversed)}
        if number is not None:
            self._handlers[number] = Handler(self.registry, self._handlers[number].connection)

"""Streams → pipes and the store: finds out what each TCP connection is, and feeds it to whom it concerns.

In: the streams that grew. Out: complete `TpMessage`s; aside, the pipes, the entries of the TCPStore, and how
many bytes belong to nobody here. A connection is told by its first bytes from the client, never by its port;
what started before the capture is told by the descriptors in it.

Mirrors `tensorpipe/core/listener_impl.cc`: extra connections are matched by (listener, registration id).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from msgspec.structs import replace

from rpcinspect.errors import DecodeError, Location, Problem
from rpcinspect.limits import DEFAULT_LIMITS, Limits
from rpcinspect.unexpected import unexpected
from rpcinspect.wire.descriptor import ShapeTable
from rpcinspect.wire.frame import HEADER, HEADER_BYTES, FrameCursor
from rpcinspect.wire.handler import Handler, Role
from rpcinspect.wire.handshakes import FIRST_FRAME_BYTES, PipeHandler, RequestedHandler
from rpcinspect.wire.midstream import MidstreamHandler
from rpcinspect.wire.orphans import adopt, hosts_of
from rpcinspect.wire.pipe import PipeState
from rpcinspect.wire.rebuild import ReadTable
from rpcinspect.wire.records import Pipe, Placement, TpMessage
from rpcinspect.wire.segment import Flow
from rpcinspect.wire.store import StoreConversation, StoreEntry, is_directory_key
from rpcinspect.wire.store_operations import StoreGeneration, looks_like_store, may_become_store
from rpcinspect.wire.stream import Stream
from rpcinspect.wire.tcp import Connection
from rpcinspect.wire.tensorpipe import read_brochure, read_first_frame
from rpcinspect.wire.tensorpipe_types import SpontaneousConnection
from rpcinspect.wire.visits import Visit, Visits

T = TypeVar("T")


class Demux:
    """The stage: `feed` streams that grew, then `finish`."""

    def __init__(
        self, limits: Limits = DEFAULT_LIMITS, *, patient: bool = True, read_table: ReadTable | None = None
    ) -> None:
        """`patient`: see `PipeState`; `read_table`: see `rebuild`."""
        self.limits = limits
        self._patient = patient
        self.shapes = ShapeTable(limits, read_table)
        self.pipes: list[PipeState] = []
        self.opened: list[Pipe] = []
        """Those that they are the state of."""
        self.store_entries: list[StoreEntry] = []
        self.visits: list[Visit] = []
        """Of processes at stores; how they ended is known once all streams have."""
        self.store_addresses: dict[str, None] = {}
        """Where stores answered."""
        self.store_bytes = 0
        self.skipped_bytes = 0
        self.problems: list[Problem] = []
        self.given_up: set[str] = set()
        """Flows of which messages may be lost because their reading failed."""
        self._handlers: dict[int, Handler] = {}
        self._roles: dict[tuple[str, int], Role] = {}
        self._requested: dict[tuple[str, int], RequestedHandler] = {}

    def feed(self, streams: list[Stream]) -> list[TpMessage]:
        """Every message that became complete because these streams grew."""
        done: list[TpMessage] = []
        for stream in streams:
            number = stream.connection.number
            handler = self._handlers.get(number)
            if handler is None:
                handler = self._handlers[number] = NewHandler(self, stream.connection)
            try:
                handler.advance(done)
            except Exception as error:
                self._give_up(stream.flow, error, number)
        return done

    def finish(self) -> list[TpMessage]:
        """The streams have ended: everything that is left comes out."""
        done: list[TpMessage] = []
        for number, handler in list(self._handlers.items()):
            self._try(partial(handler.advance, done), handler.connection.flow, number)
        for number, handler in list(self._handlers.items()):
            self._try(partial(handler.end, done), handler.connection.flow, number)
        for state in self.pipes:
            done += self._try(state.finish_messages, state.pipe.flow) or ()
        orphans = [self._try(handler.orphan, handler.connection.flow) for handler in self._handlers.values()]
        found = [orphan for orphan in orphans if orphan is not None]
        adopted = self._try(partial(adopt, self.pipes, found)) or set()
        for number, handler in self._handlers.items():
            if number not in adopted:
                self._try(handler.finish, handler.connection.flow)
        strays = hosts_of(one for one in found if one.connection.number not in adopted)
        for state in self.pipes:
            ends = state.pipe.client.host, state.pipe.server.host
            elsewhere = Placement.UNCERTAIN if ends in strays else Placement.MISSING
            done += self._try(partial(state.finish, elsewhere), state.pipe.flow) or ()
            self.problems += state.problems
        return done

    def _try(self, work: Callable[[], T], flow: Flow | None = None, number: int | None = None) -> T | None:
        """What it gives; None where it fails against expectation."""
        try:
            return work()
        except Exception as error:
            self._give_up(flow, error, number)
            return None

    def _give_up(self, flow: Flow | None, error: Exception, number: int | None) -> None:
        """What the connection of that number brings is looked at no more, but by others that wait for it."""
        where = Location() if flow is None else Location(flow=str(flow))
        self.problems.append(unexpected(error, "tensorpipe", where))
        if flow is not None:
            self.given_up |= {str(flow), str(flow.reversed)}
        if number is not None:
            self._handlers[number] = Handler(self, self._handlers[number].connection)

    def replace(self, connection: Connection, handler: Handler, done: list[TpMessage]) -> None:
        """The connection's role has become known."""
        self._handlers[connection.number] = handler
        handler.advance(done)

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

    def note_ends(self) -> None:
        """Tells pipes when they ended, as far as that is known by now."""
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

    def claim(self, handler: RequestedHandler, done: list[TpMessage]) -> None:
        """A requested connection has said its id."""
        key = handler.key
        role = self._roles.get(key)
        if role is not None and not (role.implied and handler.is_descriptor()):
            del self._roles[key]
            handler.assign(role, done)
        else:
            self._requested[key] = handler


class NewHandler(Handler):
    """A connection of which too little was seen to tell what it is."""

    def advance(self, done: list[TpMessage]) -> None:
        """Decides as soon as the first bytes of the client are there."""
        connection, demux = self.connection, self.demux
        client = connection.client
        if client is None:
            client = self._guess_client()
            if client is None:
                if any(s.end is not None for s in connection.streams):
                    demux.replace(connection, MidstreamHandler(demux, connection), done)
                return
            connection.client = client
        if client.end is None or client.origin is None or client.end == client.origin:
            return
        if client.holes and client.holes[0][0] == client.origin:
            demux.replace(connection, MidstreamHandler(demux, connection), done)
            return
        verdict = self._classify(client)
        if verdict is not None:
            demux.replace(connection, verdict, done)

    def _guess_client(self) -> Stream | None:
        """Without a SYN: the side whose first captured bytes are how a client begins."""
        for stream in self.connection.streams:
            if stream.end is not None and stream.origin is not None and stream.end > stream.origin:
                data = stream.read(stream.origin, min(stream.end, stream.origin + 64))
                if looks_like_store(data) is not None or _begins_like_hello(data):
                    return stream
        return None

    def _classify(self, client: Stream) -> Handler | None:
        demux, connection = self.demux, self.connection
        origin, end = client.origin, client.end
        assert origin is not None
        assert end is not None
        data = client.read(origin, min(end, origin + HEADER_BYTES + FIRST_FRAME_BYTES))
        generation = looks_like_store(data)
        if generation is not None:
            return StoreHandler(demux, connection, generation)
        if may_become_store(data) and not client.finished:
            return None
        if len(data) < HEADER_BYTES:
            return ForeignHandler(demux, connection) if client.finished else None
        length = HEADER.unpack_from(data)[0]
        if not 5 <= length <= FIRST_FRAME_BYTES or not _begins_like_hello(data):
            if _begins_like_hello(data, prefix=True) and not client.finished:
                return None
            return MidstreamHandler(demux, connection)
        if len(data) < HEADER_BYTES + length:
            return MidstreamHandler(demux, connection) if client.finished else None
        try:
            first = read_first_frame(data[HEADER_BYTES : HEADER_BYTES + length], demux.limits)
        except DecodeError:
            return MidstreamHandler(demux, connection)  # a damaged hello hides no messages
        position = origin + HEADER_BYTES + length
        if client.missing(origin, position):  # what reads as zeros may be a part of the name or of the id
            return MidstreamHandler(demux, connection)
        if isinstance(first, SpontaneousConnection):
            if connection.client_isn is None:
                brochure = self._brochure_follows(client, position)
                if brochure is None:
                    return None
                if not brochure:
                    connection.client = None
                    return MidstreamHandler(demux, connection)
            return PipeHandler(demux, connection, first, position)
        return RequestedHandler(demux, connection, first, position)

    def _brochure_follows(self, client: Stream, position: int) -> bool | None:
        """Where the SYN was not captured, the client is a guess that its second frame must confirm; None: not
        yet.
        """
        cursor = FrameCursor(client, position)
        length = cursor.length(position)
        if length is not None and length > self.demux.limits.control_frame_bytes:
            return False
        body = None if length is None else cursor.body(length)
        if body is None:
            # A brochure with a hole in it is settled too; what never came leaves the guess as it is.
            return True if client.finished else None
        try:
            read_brochure(body, self.demux.limits)
        except DecodeError:
            return client.missing(position, cursor.position) > 0
        return True

    def finish(self) -> None:
        """A connection whose client said nothing."""
        self._skip()


class ForeignHandler(Handler):
    """Another protocol, or nothing that can be told: its bytes are counted and let go."""

    def __init__(self, demux: Demux, connection: Connection) -> None:
        super().__init__(demux, connection)
        self._counted = {id(s): s.origin or 0 for s in connection.streams}

    def advance(self, done: list[TpMessage]) -> None:
        """Counts what has come."""
        for stream in self.connection.streams:
            if stream.end is not None:
                start = self._counted[id(stream)] or stream.origin or stream.end
                self.demux.skipped_bytes += stream.end - start - stream.missing(start, stream.end)
                self._counted[id(stream)] = stream.end
                stream.release(stream.end)


class StoreHandler(Handler):
    """A worker's conversation with the TCPStore."""

    def __init__(self, demux: Demux, connection: Connection, generation: StoreGeneration) -> None:
        super().__init__(demux, connection)
        self._conversation = StoreConversation(generation, demux.limits)
        client, server = connection.client, connection.server
        assert client is not None
        assert server is not None
        self._sides = (
            (client, self._conversation.feed_client, self._conversation.gap_client),
            (server, self._conversation.feed_server, self._conversation.gap_server),
        )
        self._positions = [s.origin for s, _, _ in self._sides]
        self._server_address = str(client.flow.destination)
        self._teller = Visits(str(client.flow.source), self._server_address)
        self._visits: list[Visit] = []
        demux.store_addresses.setdefault(self._server_address)
        self._since_ns = client.first_ns if connection.client_isn is not None else None
        self._spoke_ns = client.first_ns or 0
        self._pause_ns = 0
        self._guessed = connection.client_isn is None and generation is not StoreGeneration.V2_2
        """It began before the capture, and what came first only looks like the first request of an old
        release: in the middle of a newer one's conversation, requests look like that too."""

    def advance(self, done: list[TpMessage]) -> None:
        """Feeds both directions."""
        for side, (stream, feed, gap) in enumerate(self._sides):
            position = self._positions[side]
            if position is None:
                position = stream.origin
            end = stream.end
            if position is None or end is None:
                continue
            if position == stream.origin and not stream.start_known and self._positions[side] is None:
                gap(0)
            while position < end:
                hole = stream.next_hole(position) if stream.holes else None
                if hole is not None and hole[0] <= position:
                    gap(hole[1] - position)
                    position = hole[1]
                    continue
                # One segment at a time: a name holds from the segment on that told it, not from a later one.
                stop = min(stream.segment_end(position), end if hole is None else hole[0])
                time_ns = stream.stamp(position, stop)[1]
                if not side:
                    self._pause_ns = max(self._pause_ns, time_ns - self._spoke_ns)
                    self._spoke_ns = time_ns
                for entry in feed(stream.read(position, stop), time_ns):
                    visit = self._teller.feed(entry)
                    if visit is not None:
                        self._visits.append(visit)
                        self.demux.visits.append(visit)
                    if is_directory_key(entry.key):
                        self.demux.store_entries.append(self._told(entry))
                self.demux.store_bytes += stop - position
                position = stop
            self._positions[side] = position
            stream.release(position)

    def _told(self, entry: StoreEntry) -> StoreEntry:
        """An entry with what is known of its connection."""
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
            self.demux.problems.append(Problem("store", problem.reason, where))


def _begins_like_hello(data: bytes, prefix: bool = False) -> bool:
    """Whether the first frame is a Variant of a structure of one member; `prefix`: as far as it is there."""
    body = data[HEADER_BYTES : HEADER_BYTES + 5]
    for start in (b"\xb8\x00\xb9\x01\xbd", b"\xb8\x01\xb9\x01"):
        if body.startswith(start) or (prefix and start.startswith(body)):
            return True
    return False

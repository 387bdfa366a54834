"""Streams → pipes and the store: finds out what each TCP connection is, and feeds it to whom it concerns.

In: the streams that grew. Out: complete `TpMessage`s; aside, the pipes, the entries of the TCPStore, and how
many bytes belong to nobody here. A connection is told by its first bytes from the client, never by its port;
what started before the capture is told by the descriptors in it.

Mirrors `tensorpipe/core/listener_impl.cc`: extra connections are matched by (listener, registration id).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rpcinspect.errors import DecodeError, Problem
from rpcinspect.limits import DEFAULT_LIMITS, Limits
from rpcinspect.wire.channel import MPT
from rpcinspect.wire.descriptor import ShapeTable
from rpcinspect.wire.frame import HEADER, HEADER_BYTES, FrameCursor
from rpcinspect.wire.orphans import Orphan, adopt, any_between
from rpcinspect.wire.pipe import FROM_CLIENT, FROM_SERVER, PipeState
from rpcinspect.wire.rebuild import ReadTable
from rpcinspect.wire.records import Pipe, Placement, TpMessage, Visibility
from rpcinspect.wire.search import DescriptorSearch
from rpcinspect.wire.segment import Endpoint
from rpcinspect.wire.store import (
    StoreConversation,
    StoreEntry,
    StoreGeneration,
    is_directory_key,
    looks_like_store,
    may_become_store,
)
from rpcinspect.wire.stream import Stream
from rpcinspect.wire.tcp import Connection
from rpcinspect.wire.tensorpipe import (
    DESCRIPTOR_SIGNATURE,
    LAYER,
    SIGNATURE_OFFSET,
    TRANSPORT_DESCRIPTOR_ID,
    TRANSPORT_DESCRIPTOR_REPLY_ID,
    BrochureAnswer,
    Layout,
    MptServerHello,
    RequestedConnection,
    SpontaneousConnection,
    looks_like_descriptor,
    read_brochure,
    read_brochure_answer,
    read_cma_descriptor,
    read_first_frame,
    read_mpt_hello,
)

FIRST_FRAME_BYTES = 4096
"""A worker's name is at most 128 characters; a longer first frame is not TensorPipe's."""
STORE_BYTES = 1 << 20
"""How much of the store's conversation is read at once."""
SIGNATURE_REACH = len(DESCRIPTOR_SIGNATURE) + max(SIGNATURE_OFFSET.values())
TYPE_REQUEST, TYPE_RESPONSE = 0x100, 0x200


@dataclass(frozen=True, slots=True)
class Role:
    """What a requested connection is for."""

    owner: PipeState
    kind: str
    """`descriptor`, `reply`, `channel` or `lane`."""
    channel: str = ""
    index: int = 0
    implied: bool = False
    """Derived from the order in which ids are given out, since the answer was not captured."""


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
        self.store_entries: list[StoreEntry] = []
        self.store_bytes = 0
        self.skipped_bytes = 0
        self.problems: list[Problem] = []
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
            handler.advance(done)
        return done

    def finish(self) -> list[TpMessage]:
        """The streams have ended: everything that is left comes out."""
        done: list[TpMessage] = []
        for handler in list(self._handlers.values()):
            handler.advance(done)
        for state in self.pipes:
            done += state.finish_messages()
        orphans = [handler.orphan() for handler in self._handlers.values()]
        adopted = adopt(self.pipes, [orphan for orphan in orphans if orphan is not None])
        for number, handler in self._handlers.items():
            if number not in adopted:
                handler.finish()
        strays = [orphan for orphan in orphans if orphan and orphan.connection.number not in adopted]
        for state in self.pipes:
            elsewhere = Placement.UNCERTAIN if any_between(state, strays) else Placement.MISSING
            done += state.finish(elsewhere)
            self.problems += state.problems
        return done

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
        self.pipes.append(state)
        return state

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


class Handler:
    """What a connection is being treated as."""

    def __init__(self, demux: Demux, connection: Connection) -> None:
        self.demux = demux
        self.connection = connection

    def advance(self, done: list[TpMessage]) -> None:
        """One of the connection's streams grew (or may have)."""

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
            return ForeignHandler(demux, connection) if client.finished else None
        try:
            first = read_first_frame(data[HEADER_BYTES : HEADER_BYTES + length], demux.limits)
        except DecodeError:
            return ForeignHandler(demux, connection)
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
                stop = min(end, position + STORE_BYTES, end if hole is None else hole[0])
                time_ns = stream.stamp(position, stop)[1]
                for entry in feed(stream.read(position, stop), time_ns):
                    if is_directory_key(entry.key):
                        self.demux.store_entries.append(replace(entry, server=self._server_address))
                self.demux.store_bytes += stop - position
                position = stop
            self._positions[side] = position
            stream.release(position)

    def finish(self) -> None:
        """Reports what could not be read."""
        client, server = self.connection.client, self.connection.server
        assert client is not None
        assert server is not None
        for problem in self._conversation.finish():
            stream = client if problem.from_client else server
            where = stream.location((stream.origin or 0) + problem.offset)
            self.demux.problems.append(Problem("store", problem.reason, where))


class PipeHandler(Handler):
    """A connection that opens a pipe: hello, brochure and answer, then usually the messages."""

    def __init__(
        self, demux: Demux, connection: Connection, hello: SpontaneousConnection, position: int
    ) -> None:
        super().__init__(demux, connection)
        self.state = demux.open_pipe(connection, hello.context_name)
        client = connection.client
        assert client is not None
        self._client = FrameCursor(client, position)
        self._server: FrameCursor | None = None
        self._brochure_seen = False
        self._settled = False
        self._given_up = False
        """Messages of the server are still to be searched for: nothing of it has been captured yet."""
        self.state.handshake_bytes += position - (client.origin or position)

    def advance(self, done: list[TpMessage]) -> None:
        """Reads the handshake, then leaves the streams to the pipe."""
        if self._settled or self._handshake(done):
            if self._given_up:
                self._search_server()
            done += self.state.advance()

    def _handshake(self, done: list[TpMessage]) -> bool:
        limits = self.demux.limits
        try:
            if not self._brochure_seen:
                body = self._read(self._client)
                if body is None:
                    return False
                read_brochure(body, limits)
                self._brochure_seen = True
                self.state.handshake_bytes += HEADER_BYTES + len(body)
            if self._server is None:
                server = self.connection.server
                if server is None or server.origin is None or server.end is None:
                    return False
                self._server = FrameCursor(server, server.origin)
            body = self._read(self._server)
            if body is None:
                return False
            answer, layout = read_brochure_answer(body, limits)
            self.state.handshake_bytes += HEADER_BYTES + len(body)
        except DecodeError as error:
            self._give_up(f"handshake: {error}")
            return True
        self._settled = True
        self._agree(answer, layout, done)
        return True

    def _read(self, cursor: FrameCursor) -> bytes | None:
        """The next handshake frame; raises `DecodeError` where bytes are missing."""
        length = cursor.length(cursor.position)
        if length is None:
            return None
        if length > self.demux.limits.control_frame_bytes:
            raise DecodeError(LAYER, f"a frame of {length:,} bytes")
        if cursor.available() < HEADER_BYTES + length:
            return None
        if cursor.damaged(HEADER_BYTES + length):
            raise DecodeError(LAYER, "not captured whole")
        return cursor.body(self.demux.limits.control_frame_bytes)

    def _give_up(self, reason: str) -> None:
        """Goes on without the handshake: messages can still be found by their descriptors."""
        self._settled = True
        state, client = self.state, self._client
        where = client.stream.location(client.position)
        self.demux.problems.append(Problem(LAYER, reason, where))
        state.pipe.visible = Visibility.NO_HANDSHAKE
        state.pipe.reason = "the handshake was not captured whole"
        state.awaits_channel = state.headless = True
        state.read_messages(FROM_CLIENT, client.stream, client.position, lost=True)
        self._given_up = True

    def _search_server(self) -> None:
        server = self.connection.server
        if server is not None and server.origin is not None:
            self._given_up = False
            self.state.read_messages(FROM_SERVER, server, server.origin, lost=True)

    def _agree(self, answer: BrochureAnswer, layout: Layout, done: list[TpMessage]) -> None:
        state, demux = self.state, self.demux
        state.agree(answer, layout)
        addresses = _addresses(answer.address, state.pipe.server)
        registrations = dict(answer.transport_registration_ids)
        roles: list[tuple[int, Role]] = []
        if TRANSPORT_DESCRIPTOR_ID in registrations:
            roles.append((registrations[TRANSPORT_DESCRIPTOR_ID], Role(state, "descriptor")))
        elif answer.transport == "uv":
            client, server = self._client, self._server
            assert server is not None
            state.read_messages(FROM_CLIENT, client.stream, client.position)
            state.read_messages(FROM_SERVER, server.stream, server.position)
        if TRANSPORT_DESCRIPTOR_REPLY_ID in registrations:
            roles.append((registrations[TRANSPORT_DESCRIPTOR_REPLY_ID], Role(state, "reply")))
        for name, identifiers in answer.channel_registration_ids:
            roles += [(n, Role(state, "channel", name, index)) for index, n in enumerate(identifiers)]
        for identifier, role in roles:
            for address in addresses:
                demux.register(address, identifier, role, done)


class RequestedHandler(Handler):
    """An extra connection of a pipe: waits until its registration id is explained."""

    def __init__(
        self, demux: Demux, connection: Connection, hello: RequestedConnection, position: int
    ) -> None:
        super().__init__(demux, connection)
        client = connection.client
        assert client is not None
        self.client = client
        self.identifier = hello.registration_id
        self.key = (str(client.flow.destination), hello.registration_id)
        self.position = position
        self._role: Role | None = None
        self._claimed = False
        self._unattached = False
        """The role is known, but not yet where the server's stream begins."""
        self._unread_hello = False

    def is_descriptor(self) -> bool:
        """Whether messages flow on this connection: the next frame of either side is a descriptor."""
        server = self.connection.other(self.client)
        for stream, position in ((self.client, self.position), (server, server.origin)):
            if position is None or stream.end is None:
                continue
            reach = min(stream.end, position + SIGNATURE_REACH)
            if reach - position > HEADER_BYTES:
                body = stream.read(position, reach)[HEADER_BYTES:]
                if looks_like_descriptor(body) is not None:
                    return True
        return False

    def advance(self, done: list[TpMessage]) -> None:
        """Claims its role once, then feeds the pipe that it belongs to."""
        if not self._claimed:
            self._claimed = True
            self.demux.claim(self, done)
        if self._role is None and self.is_descriptor():
            self._stand_alone(done)
        role = self._role
        if role is not None:
            if self._unattached:
                self._attach(role)
            if self._unread_hello:
                self._read_channel_hello(role, done)
            done += role.owner.advance()

    def orphan(self) -> Orphan | None:
        """A lane for sure, but of which pipe?"""
        return Orphan(self.connection, self.position) if self._role is None else None

    def finish(self) -> None:
        """A connection that nothing explained is not ours to count as decoded."""
        if self._role is None:
            self._skip()

    def assign(self, role: Role, done: list[TpMessage]) -> None:
        """The pipe's answer (or the order of ids) says what this connection is for."""
        self._role = role
        role.owner.handshake_bytes += self.position - (self.client.origin or self.position)
        self._unattached = True
        self.advance(done)

    def _attach(self, role: Role) -> None:
        """Gives both streams to the pipe, once it is known where the server's begins."""
        state, server = role.owner, self.connection.other(self.client)
        if server.origin is None and not server.finished:
            return
        self._unattached = False
        start = server.origin if server.origin is not None else 0
        known = start if server.start_known else None
        streams, starts = (self.client, server), (self.position, known)
        if role.kind == "descriptor":
            state.pipe.flow = self.client.flow
            state.read_messages(FROM_CLIENT, self.client, self.position)
            state.read_messages(FROM_SERVER, server, start, lost=known is None)
        elif role.kind == "lane":
            state.attach_lane(role.channel, role.index, streams, starts)
        elif role.kind == "channel" and (role.implied or role.channel == MPT):
            self._unread_hello = role.index == 0
        elif role.kind == "channel":
            state.attach_connection(role.channel, role.index, streams, starts)

    def _read_channel_hello(self, role: Role, done: list[TpMessage]) -> None:
        """mpt's addresses of lanes; for an implied channel, finds out first which one it is."""
        server = self.connection.other(self.client)
        sample = self._first_frame(server, server.origin)
        if sample is None:
            return
        hello = _mpt_server_hello(sample)
        if hello is not None:
            self._unread_hello = False
            if role.implied:
                role.owner.imply_channel(MPT)
            role.owner.handshake_bytes += HEADER_BYTES + len(sample)
            self._register_lanes(role.owner, hello, done)
            return
        if not role.implied:
            if sample:
                self._unread_hello = False
                where = server.location(server.origin if server.origin is not None else 0)
                reason = "the addresses of mpt's lanes were not captured, so tensors can't be placed"
                self.demux.problems.append(Problem(LAYER, reason, where))
            return
        if not sample:
            client_sample = self._first_frame(self.client, self.position)
            if not client_sample:
                return
            sample = client_sample
        self._unread_hello = False
        if _is_cma(sample):
            role.owner.imply_channel("cma")
        else:
            role.owner.imply_channel("basic")
            starts = (self.position, server.origin if server.start_known else None)
            role.owner.attach_connection("basic", 0, (self.client, server), starts)

    def _register_lanes(self, state: PipeState, hello: MptServerHello, done: list[TpMessage]) -> None:
        """Behind address translation lanes are where the pipe's server is seen, at the ports they tell."""
        host = self.client.flow.destination.host
        for index, lane in enumerate(hello.lane_advertisements):
            port = lane.address.rpartition(":")[2]
            seen = Endpoint(host, int(port)) if len(port) < 6 and port.isdecimal() else None
            role = Role(state, "lane", MPT, index)
            for address in _addresses(lane.address, seen):
                self.demux.register(address, lane.registration_id, role, done)

    @staticmethod
    def _first_frame(stream: Stream, position: int | None) -> bytes | None:
        """The body of the first frame if it is small; what is there of another one; empty: there is nothing;
        None: not yet.
        """
        if position is None or stream.end is None or stream.end <= position:
            return b""
        cursor = FrameCursor(stream, position)
        length = cursor.length(position)
        if length is None or length > FIRST_FRAME_BYTES or cursor.available() < HEADER_BYTES + length:
            known = length is not None and length > FIRST_FRAME_BYTES
            return stream.read(position, position + 1) if known or stream.finished else None
        return cursor.body(FIRST_FRAME_BYTES) or stream.read(position, position + 1)

    def _stand_alone(self, done: list[TpMessage]) -> None:
        """Messages on a connection whose pipe was opened out of sight, e.g. over shared memory.

        Registration ids of one pipe follow each other: descriptor, reply, then the channel's.
        """
        state = self.demux.open_pipe(self.connection, None)
        state.pipe.visible = Visibility.NO_HANDSHAKE
        state.pipe.reason = "the pipe was opened over a transport that a capture of TCP can't hold"
        state.awaits_channel = True
        self.demux._requested.pop(self.key, None)
        self.assign(Role(state, "descriptor"), done)
        address = self.key[0]
        self.demux.register(address, self.identifier + 1, Role(state, "reply", implied=True), done)
        channel = Role(state, "channel", implied=True)
        self.demux.register(address, self.identifier + 2, channel, done)


class MidstreamHandler(Handler):
    """A connection whose beginning was not captured: it is a pipe's if descriptors are found in it."""

    def __init__(self, demux: Demux, connection: Connection) -> None:
        super().__init__(demux, connection)
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

    def orphan(self) -> Orphan | None:
        """Not a pipe's own connection, so perhaps one of its lanes."""
        return Orphan(self.connection, None) if self._state is None else None

    def finish(self) -> None:
        """Nothing of ours was found: the bytes are another protocol's, or a channel's without its pipe."""
        if self._state is None:
            self._skip()

    def _search(self) -> None:
        connection, demux = self.connection, self.demux
        for stream in connection.streams:
            kind = self._first_type(stream)
            if kind is not None:
                client = stream if kind & TYPE_REQUEST else connection.other(stream)
                connection.client = client
                self._state = demux.open_pipe(connection, None)
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
            demux = self.demux
            search = DescriptorSearch(stream, stream.origin, demux.shapes.lengths, demux.limits)
            self._searches[id(stream)] = search
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


def _begins_like_hello(data: bytes, prefix: bool = False) -> bool:
    """Whether the first frame is a Variant of a structure of one member; `prefix`: as far as it is there."""
    body = data[HEADER_BYTES : HEADER_BYTES + 5]
    for start in (b"\xb8\x00\xb9\x01\xbd", b"\xb8\x01\xb9\x01"):
        if body.startswith(start) or (prefix and start.startswith(body)):
            return True
    return False


def _addresses(text: str, listener: Endpoint | None) -> list[str]:
    """The address in a handshake as the text of an endpoint, and the listener where that is another one.

    Behind address translation only the latter is in the capture.
    """
    out = [text.lower()]
    if listener is not None and str(listener) not in out:
        out.append(str(listener))
    return out


def _mpt_server_hello(body: bytes) -> MptServerHello | None:
    try:
        hello = read_mpt_hello(body)
    except DecodeError:
        return None
    return hello if isinstance(hello, MptServerHello) else None


def _is_cma(body: bytes) -> bool:
    try:
        read_cma_descriptor(body)
    except DecodeError:
        return False
    return True

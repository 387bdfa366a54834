"""Streams → pipes and the store: finds out what each TCP connection is, and feeds it to whom it concerns.

In: the streams that grew. Out: complete `TpMessage`s; aside, the pipes, the entries of the TCPStore, and how
many bytes belong to nobody here. A connection is told by its first bytes from the client, never by its port;
what started before the capture is told by the descriptors in it.

Mirrors `tensorpipe/core/listener_impl.cc`: extra connections are matched by (listener, registration id).
"""

from __future__ import annotations

from dataclasses import dataclass

from rpcinspect.errors import DecodeError, Problem
from rpcinspect.limits import DEFAULT_LIMITS, Limits
from rpcinspect.wire.channel import MPT
from rpcinspect.wire.descriptor import ShapeTable
from rpcinspect.wire.frame import HEADER, HEADER_BYTES, FrameCursor
from rpcinspect.wire.pipe import FROM_CLIENT, FROM_SERVER, PipeState
from rpcinspect.wire.records import Pipe, TpMessage, Visibility
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
SEARCH_BYTES = 1 << 20
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

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self.limits = limits
        self.shapes = ShapeTable(limits)
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
        for handler in list(self._handlers.values()):
            handler.finish()
        for state in self.pipes:
            done += state.finish()
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
        state = PipeState(pipe, self.shapes, self.limits)
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

    def finish(self) -> None:
        """Nothing more will come."""


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
        if isinstance(first, SpontaneousConnection):
            return PipeHandler(demux, connection, first, position)
        return RequestedHandler(demux, connection, first, position)


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

    def advance(self, done: list[TpMessage]) -> None:
        """Feeds both directions."""
        for side, (stream, feed, gap) in enumerate(self._sides):
            position = self._positions[side]
            if position is None:
                position = stream.origin
            end = stream.end
            if position is None or end is None:
                continue
            while position < end:
                hole = stream.next_hole(position) if stream.holes else None
                if hole is not None and hole[0] <= position:
                    gap(hole[1] - position)
                    position = hole[1]
                    continue
                stop = min(end, position + SEARCH_BYTES, end if hole is None else hole[0])
                time_ns = stream.stamp(position, stop)[1]
                for entry in feed(stream.read(position, stop), time_ns):
                    if is_directory_key(entry.key):
                        self.demux.store_entries.append(entry)
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
        self.state.handshake_bytes += position - (client.origin or position)

    def advance(self, done: list[TpMessage]) -> None:
        """Reads the handshake, then leaves the streams to the pipe."""
        if self._settled or self._handshake(done):
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
        state.read_messages(FROM_CLIENT, client.stream, client.position, lost=True)
        server = self.connection.server
        if server is not None and server.origin is not None:
            state.read_messages(FROM_SERVER, server, server.origin, lost=True)

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
        self._unread_hello = False
        self._states: list[PipeState] = []

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
        if self._unread_hello and self._role is not None:
            self._read_channel_hello(self._role, done)
        for state in self._states:
            done += state.advance()

    def finish(self) -> None:
        """A connection that nothing explained is not ours to count as decoded."""
        if self._role is None and not self._states:
            for stream in self.connection.streams:
                if stream.end is not None and stream.origin is not None:
                    present = stream.end - stream.origin - stream.missing(stream.origin, stream.end)
                    self.demux.skipped_bytes += present

    def assign(self, role: Role, done: list[TpMessage]) -> None:
        """The pipe's answer (or the order of ids) says what this connection is for."""
        self._role = role
        state = role.owner
        self._states = [state]
        server = self.connection.other(self.client)
        state.handshake_bytes += self.position - (self.client.origin or self.position)
        start = server.origin if server.origin is not None else self.position
        if role.kind == "descriptor":
            state.pipe.flow = self.client.flow
            state.read_messages(FROM_CLIENT, self.client, self.position)
            state.read_messages(FROM_SERVER, server, start)
        elif role.kind == "lane":
            state.attach_lane(role.channel, role.index, (self.client, server), (self.position, start))
        elif role.kind == "channel" and role.channel == MPT:
            self._unread_hello = role.index == 0
        elif role.kind == "channel" and role.implied:
            self._unread_hello = True
        elif role.kind == "channel":
            streams, starts = (self.client, server), (self.position, start)
            state.attach_connection(role.channel, role.index, streams, starts)
        if self._unread_hello:
            self._read_channel_hello(role, done)
        done += state.advance()

    def _read_channel_hello(self, role: Role, done: list[TpMessage]) -> None:
        """mpt's addresses of lanes; for an implied channel, finds out first which one it is."""
        server = self.connection.other(self.client)
        start = server.origin
        body = None
        if start is not None and server.end is not None and server.end > start:
            body = FrameCursor(server, start).body(self.demux.limits.control_frame_bytes)
        hello: MptServerHello | None = None
        if body is not None:
            hello = _mpt_server_hello(body)
        if hello is not None:
            self._unread_hello = False
            if role.implied:
                role.owner.imply_channel(MPT)
            role.owner.handshake_bytes += HEADER_BYTES + len(body or b"")
            for index, lane in enumerate(hello.lane_advertisements):
                for address in _addresses(lane.address, None):
                    lane_role = Role(role.owner, "lane", MPT, index)
                    self.demux.register(address, lane.registration_id, lane_role, done)
            return
        if role.implied:
            client_body = FrameCursor(self.client, self.position).body(FIRST_FRAME_BYTES)
            sample = body if body is not None else client_body
            if sample is None and self._tensor_bytes() == 0:
                return
            self._unread_hello = False
            if sample is not None and _is_cma(sample):
                role.owner.imply_channel("cma")
            else:
                role.owner.imply_channel("basic")
                origin = start if start is not None else self.position
                streams, starts = (self.client, server), (self.position, origin)
                role.owner.attach_connection("basic", 0, streams, starts)

    def _tensor_bytes(self) -> int:
        server = self.connection.other(self.client)
        sent = (self.client.end or self.position) - self.position
        return sent + ((server.end or 0) - (server.origin or server.end or 0))

    def _stand_alone(self, done: list[TpMessage]) -> None:
        """Messages on a connection whose pipe was opened out of sight, e.g. over shared memory.

        Registration ids of one pipe follow each other: descriptor, reply, then the channel's.
        """
        state = self.demux.open_pipe(self.connection, None)
        state.pipe.visible = Visibility.NO_HANDSHAKE
        state.pipe.reason = "the pipe was opened over a transport that a capture of TCP can't hold"
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
        self._searched: dict[int, int | None] = {id(s): None for s in connection.streams}
        self._state: PipeState | None = None

    def advance(self, done: list[TpMessage]) -> None:
        """Searches until descriptors are found in one direction, then reads both."""
        if self._state is None:
            self._state = self._search()
        if self._state is not None:
            done += self._state.advance()

    def finish(self) -> None:
        """Nothing of ours was found: the bytes are another protocol's, or a channel's without its pipe."""
        if self._state is None:
            for stream in self.connection.streams:
                if stream.end is not None and stream.origin is not None:
                    present = stream.end - stream.origin - stream.missing(stream.origin, stream.end)
                    self.demux.skipped_bytes += present

    def _search(self) -> PipeState | None:
        for stream in self.connection.streams:
            client = self._find(stream)
            if client is not None:
                self.connection.client = client
                server = self.connection.other(client)
                state = self.demux.open_pipe(self.connection, None)
                state.pipe.visible = Visibility.NO_HANDSHAKE
                state.pipe.reason = "the capture starts after the handshake"
                for direction, side in ((FROM_CLIENT, client), (FROM_SERVER, server)):
                    state.read_messages(direction, side, side.origin or 0, lost=True)
                return state
        return None

    def _find(self, stream: Stream) -> Stream | None:
        """The client's stream, told by the type of a message in `stream`; None: nothing found (yet)."""
        position = self._searched[id(stream)]
        if position is None:
            position = stream.origin
        end = stream.end
        if position is None or end is None:
            return None
        while end - position >= SIGNATURE_REACH:
            stop = min(end, position + SEARCH_BYTES)
            data = stream.read(position, stop)
            at = data.find(DESCRIPTOR_SIGNATURE)
            while at >= 0:
                kind = self._message_type(stream, position + at)
                if kind is not None:
                    return stream if kind & TYPE_REQUEST else self.connection.other(stream)
                at = data.find(DESCRIPTOR_SIGNATURE, at + 1)
            position = stop - SIGNATURE_REACH + 1
        self._searched[id(stream)] = position
        return None

    def _message_type(self, stream: Stream, signature: int) -> int | None:
        end = stream.end
        assert end is not None
        for layout, distance in SIGNATURE_OFFSET.items():
            start = signature - distance
            if start < (stream.origin or 0) or end - start < HEADER_BYTES:
                continue
            length = HEADER.unpack(stream.read(start, start + HEADER_BYTES))[0]
            behind = start + HEADER_BYTES + length + HEADER_BYTES
            if length > SEARCH_BYTES or end < behind + 4:
                continue
            try:
                shape = self.demux.shapes.get(
                    stream.read(start + HEADER_BYTES, start + HEADER_BYTES + length)
                )
            except DecodeError:
                continue
            kind = int.from_bytes(stream.read(behind, behind + 4), "little")
            if shape.layout is layout and kind & (TYPE_REQUEST | TYPE_RESPONSE):
                return kind
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

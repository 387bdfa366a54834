"""Connections whose beginning was captured: those that open a pipe, and the extra ones that belong to one.

In: a connection whose first frame said which of the two it is. Out: the pipe's handshake is read, its streams
are left to the pipe, and extra connections find the pipe by (listener, registration id).

Mirrors the establishing half of `tensorpipe/core/pipe_impl.cc` and `tensorpipe/core/listener_impl.cc`.
"""

from __future__ import annotations

from rpcinspect.errors import DecodeError
from rpcinspect.problems import Location, Problem
from rpcinspect.tcp.segment import Endpoint
from rpcinspect.tcp.stream import Connection, Stream
from rpcinspect.tensorpipe.channel_kinds import MPT
from rpcinspect.tensorpipe.control import (
    DESCRIPTOR_SIGNATURE,
    SIGNATURE_OFFSET,
    looks_like_descriptor,
    read_brochure,
    read_brochure_answer,
    read_cma_descriptor,
    read_mpt_hello,
)
from rpcinspect.tensorpipe.control_types import (
    BOOTSTRAP_TRANSPORT,
    TRANSPORT_DESCRIPTOR_ID,
    TRANSPORT_DESCRIPTOR_REPLY_ID,
    BrochureAnswer,
    ControlLayout,
    MptServerHello,
    RequestedConnection,
    SpontaneousConnection,
)
from rpcinspect.tensorpipe.frame import HEADER_BYTES, FrameCursor
from rpcinspect.tensorpipe.nop import LAYER
from rpcinspect.tensorpipe.orphans import LaneCandidate
from rpcinspect.tensorpipe.pipe import FROM_CLIENT, FROM_SERVER, PipeState
from rpcinspect.tensorpipe.records import TpMessage, Visibility
from rpcinspect.tensorpipe.registry import Handler, Registry, Role

FIRST_FRAME_BYTES = 4096
"""A worker's name is at most 128 characters; a longer first frame is not TensorPipe's."""
SIGNATURE_REACH = len(DESCRIPTOR_SIGNATURE) + max(SIGNATURE_OFFSET.values())


class PipeHandler(Handler):
    """A connection that opens a pipe: hello, brochure and answer, then usually the messages."""

    def __init__(
        self, registry: Registry, connection: Connection, hello: SpontaneousConnection, position: int
    ) -> None:
        super().__init__(registry, connection)
        self.state = registry.open_pipe(connection, hello.context_name)
        client = connection.client
        assert client is not None
        self._client = FrameCursor(client, position)
        self._server: FrameCursor | None = None
        self._brochure_seen = False
        self._settled = False
        self._moved = False
        """Messages are on another connection."""
        self._given_up = False
        """Messages of the server are still to be searched for: nothing of it has been captured yet."""
        self.state.handshake_bytes += position - (client.origin or position)

    def advance(self, done: list[TpMessage]) -> None:
        """Reads the handshake, then leaves the streams to the pipe."""
        if self._settled or self._handshake(done):
            if self._given_up:
                self._search_server()
            done += self.state.advance()

    def end(self, done: list[TpMessage]) -> None:
        """A handshake hides no messages: if a damaged length made it wait, or it moved them to where none
        were seen.
        """
        if self._settled and (not self._moved or self.state.reads):
            return
        reason = "messages follow that it moved elsewhere"
        if not self._settled:
            reason = "more bytes were announced than came, and messages follow"
        for cursor in (self._client, self._server):
            if cursor is None:
                continue
            if self.registry.search(cursor.stream, cursor.position).find() is not None:
                self._give_up(f"handshake: {reason}")
                self._search_server()
                done += self.state.advance()
                return

    def _handshake(self, done: list[TpMessage]) -> bool:
        limits, begin = self.registry.limits, self._client.position
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
            if not self._brochure_seen:  # perhaps its length is damaged, and messages lie inside of it
                self._client.position = begin
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
        if length > self.registry.limits.control_frame_bytes:
            raise DecodeError(LAYER, f"a frame of {length:,} bytes")
        if cursor.available() < HEADER_BYTES + length:
            return None
        if cursor.damaged(HEADER_BYTES + length):
            raise DecodeError(LAYER, "not captured whole")
        return cursor.body(self.registry.limits.control_frame_bytes)

    def _give_up(self, reason: str) -> None:
        """Goes on without the handshake: messages can still be found by their descriptors."""
        self._settled = True
        state, client = self.state, self._client
        where = client.stream.location(client.position)
        self.registry.problems.append(Problem(LAYER, reason, where))
        state.pipe.visible = Visibility.NO_HANDSHAKE
        state.pipe.reason = "the handshake was not captured whole"
        state.awaits_channel = state.headless = True
        state.pipe.flow = client.stream.flow
        state.read_messages(FROM_CLIENT, client.stream, client.position, lost=True)
        self._given_up = True

    def _search_server(self) -> None:
        server = self.connection.server
        if server is not None and server.origin is not None:
            self._given_up = False
            self.state.read_messages(FROM_SERVER, server, server.origin, lost=True)

    def _agree(self, answer: BrochureAnswer, layout: ControlLayout, done: list[TpMessage]) -> None:
        state, registry = self.state, self.registry
        state.agree(answer, layout)
        addresses = _addresses(answer.address, state.pipe.server)
        registrations = dict(answer.transport_registration_ids)
        roles: list[tuple[int, Role]] = []
        self._moved = TRANSPORT_DESCRIPTOR_ID in registrations
        if self._moved:
            roles.append((registrations[TRANSPORT_DESCRIPTOR_ID], Role(state, "descriptor")))
        else:
            client, server = self._client, self._server
            assert server is not None
            if answer.transport != BOOTSTRAP_TRANSPORT:
                reason = f"handshake: the transport {answer.transport!r}, to which nothing is moved"
                registry.problems.append(Problem(LAYER, reason, _beginning(server.stream)))
            state.read_messages(FROM_CLIENT, client.stream, client.position)
            state.read_messages(FROM_SERVER, server.stream, server.position)
        if TRANSPORT_DESCRIPTOR_REPLY_ID in registrations:
            roles.append((registrations[TRANSPORT_DESCRIPTOR_REPLY_ID], Role(state, "reply")))
        for name, identifiers in answer.channel_registration_ids:
            roles += [(n, Role(state, "channel", name, index)) for index, n in enumerate(identifiers)]
        for identifier, role in roles:
            for address in addresses:
                registry.register(address, identifier, role, done)


class RequestedHandler(Handler):
    """An extra connection of a pipe: waits until its registration id is explained."""

    def __init__(
        self, registry: Registry, connection: Connection, hello: RequestedConnection, position: int
    ) -> None:
        super().__init__(registry, connection)
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
        """Claims the role once, then feeds the pipe of that role."""
        if not self._claimed:
            self._claimed = True
            self.registry.claim(self, done)
        if self._role is None and self.is_descriptor():
            self._stand_alone(done)
        role = self._role
        if role is not None:
            if self._unattached:
                self._attach(role)
            if self._unread_hello:
                self._read_channel_hello(role, done)
            done += role.owner.advance()

    def orphan(self) -> LaneCandidate | None:
        """Returns the connection as a lane of an unknown pipe; None once the role is known."""
        return LaneCandidate(self.connection, self.position) if self._role is None else None

    def finish(self) -> None:
        """Counts the connection as skipped where no pipe has claimed it."""
        if self._role is None:
            self._skip()

    def assign(self, role: Role, done: list[TpMessage]) -> None:
        """Takes the role that the pipe's answer, or the order of ids, gives to this connection."""
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
            state.pipe.flow, state.connection = self.client.flow, self.connection
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
                reason = "the addresses of mpt's lanes were not captured, so tensors can't be placed"
                self.registry.problems.append(Problem(LAYER, reason, _beginning(server)))
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
        """Registers lanes. Behind address translation they are at the host that the pipe's server has."""
        host = self.client.flow.destination.host
        for index, lane in enumerate(hello.lane_advertisements):
            port = lane.address.rpartition(":")[2]
            seen = Endpoint(host, int(port)) if len(port) < 6 and port.isdecimal() else None
            role = Role(state, "lane", MPT, index)
            for address in _addresses(lane.address, seen):
                self.registry.register(address, lane.registration_id, role, done)

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
        state = self.registry.open_pipe(self.connection, None)
        state.pipe.visible = Visibility.NO_HANDSHAKE
        state.pipe.reason = "the pipe was opened over a transport that a capture of TCP can't hold"
        state.awaits_channel = True
        self.registry.forget(self.key)
        self.assign(Role(state, "descriptor"), done)
        address = self.key[0]
        self.registry.register(address, self.identifier + 1, Role(state, "reply", implied=True), done)
        channel = Role(state, "channel", implied=True)
        self.registry.register(address, self.identifier + 2, channel, done)


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


def _beginning(stream: Stream) -> Location:
    return stream.location(stream.origin if stream.origin is not None else 0)

"""How a pipe begins: who opens which connections and what is said before the first message.

In: a loop and an address to open a pipe to, or connections that a listener accepted. Out: `PipeEnd`s that
are ready. Only uv with basic is offered and accepted; a worker with torch's default transports agrees to
that too. May assume nothing about the other side: frames are small, an address in an answer must be on the
own loopback, and whoever says nothing is closed after the timeout (`PipeEnd` and `Listener` see to it).

Mirrors `tensorpipe/core/listener_impl.cc` and the handshake of `tensorpipe/core/pipe_impl.cc`.
"""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Callable

from rpcinspect.errors import DecodeError, ReplayError
from rpcinspect.replay.connection import Connection
from rpcinspect.replay.loop import READ, Loop
from rpcinspect.replay.loopback import Address, loopback_host, parse_address
from rpcinspect.replay.pipe_end import CPU, PipeEnd
from rpcinspect.wire.tensorpipe import (
    TRANSPORT_DESCRIPTOR_ID,
    TRANSPORT_DESCRIPTOR_REPLY_ID,
    Brochure,
    BrochureAnswer,
    DeviceDescriptors,
    Layout,
    RequestedConnection,
    SpontaneousConnection,
    read_brochure,
    read_brochure_answer,
    read_first_frame,
    write_brochure,
    write_brochure_answer,
    write_first_frame,
)

UV, UV_DOMAIN, BASIC = "uv", "uv:*", "basic"
BASIC_DEVICES: DeviceDescriptors = ((CPU, "any"),)
BROCHURE = write_brochure(Brochure(((UV, UV_DOMAIN),), ((BASIC, BASIC_DEVICES),)), Layout.V1_9)
BACKLOG = 256


def open_pipe(pipe: PipeEnd, name: str, address: Address) -> None:
    """Begins to open a pipe under our `name`; nothing has happened yet when this returns."""
    descriptor = _connect(pipe, address, "descriptor connection")
    if descriptor is None:
        return
    descriptor.on_frame = lambda body: _answered(pipe, address, descriptor, body)
    descriptor.send(write_first_frame(SpontaneousConnection(name)), BROCHURE)
    descriptor.allow(pipe.loop.limits.handshake_bytes)


def _connect(pipe: PipeEnd, address: Address, what: str) -> Connection | None:
    """A connection that is being opened; None if that failed at once, and the pipe with it."""
    sock = socket.socket(address.family, socket.SOCK_STREAM)
    sock.setblocking(False)
    code = sock.connect_ex((address.host, address.port))
    if code not in (0, errno.EINPROGRESS):
        sock.close()
        pipe.lose(f"{what}: could not be opened: {os.strerror(code)}")
        return None
    connection = Connection(pipe.loop, sock, _nothing, _nothing, connecting=True)
    pipe.adopt(connection, what)
    return connection


def _answered(pipe: PipeEnd, address: Address, descriptor: Connection, body: bytes) -> None:
    """The listening side chose: open the connections that it asks for."""
    descriptor.allow(None)
    try:
        answer, layout = read_brochure_answer(body)
        reply_id, channel_id = _check_answer(answer, layout)
        wanted = parse_address(answer.address)
    except (DecodeError, ReplayError) as error:
        pipe.lose(f"handshake: {error}")
        return
    opened = []
    for what, registration_id in (("descriptor-reply connection", reply_id), ("channel", channel_id)):
        connection = _connect(pipe, wanted, what)
        if connection is None:
            return
        connection.send(write_first_frame(RequestedConnection(registration_id)))
        opened.append(connection)
    pipe.start(descriptor, channel=opened[1], reply=opened[0])


def _check_answer(answer: BrochureAnswer, layout: Layout) -> tuple[int, int]:
    """(id of the descriptor-reply connection, id of the channel's). Raises `ReplayError`."""
    ids = dict(answer.transport_registration_ids)
    channel_ids = dict(answer.channel_registration_ids)
    if layout is not Layout.V1_9:
        raise ReplayError("the answer is laid out as in PyTorch 1.8")
    if answer.transport != UV or TRANSPORT_DESCRIPTOR_ID in ids:
        raise ReplayError(
            f"the other side chose the transport {answer.transport[:40]!a}, only uv was offered"
        )
    if TRANSPORT_DESCRIPTOR_REPLY_ID not in ids:
        raise ReplayError("the answer has no id for the descriptor-reply connection")
    if set(channel_ids) != {BASIC} or len(channel_ids[BASIC]) != 1:
        raise ReplayError("the other side did not choose the channel basic with one connection")
    if dict(answer.channel_for_device_pair).get((CPU, CPU)) != BASIC:
        raise ReplayError("the other side did not choose basic for tensors on the CPU")
    return ids[TRANSPORT_DESCRIPTOR_REPLY_ID], channel_ids[BASIC][0]


class Listener:
    """Accepts connections on the loopback and sorts them into pipes."""

    def __init__(
        self,
        loop: Loop,
        host: str,
        port: int,
        new_pipe: Callable[[str], PipeEnd],
        lost: Callable[[str], None],
    ) -> None:
        """`new_pipe` makes the pipe for a client of that name; `lost` hears why a connection without a pipe
        was given up. Port 0: any free one. Raises `ReplayError` if the port is taken.
        """
        self._loop = loop
        self._new_pipe = new_pipe
        self._lost = lost
        self._strangers: dict[Connection, float] = {}
        """Connections that have not said what they are for, and since when."""
        self._registered: dict[int, Callable[[Connection], None]] = {}
        """What to do with the connection that brings this id; each is used once."""
        self._next_id = 0
        self._connections: list[Connection] = []
        family = Address(loopback_host(host), port).family
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            # As TensorPipe does it: connections that just ended don't keep the port.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((host, port))
            self._socket.listen(BACKLOG)
            self._socket.setblocking(False)
            self.address = Address(host, self._socket.getsockname()[1])
            loop.watch(self, self._socket, READ)
        except BaseException as error:
            self._socket.close()
            if isinstance(error, OSError):
                raise ReplayError(f"can't listen on {host} port {port}: {error.strerror}") from error
            raise

    def ready(self, events: int) -> None:
        """Accepts what waits."""
        while True:
            try:
                sock, _ = self._socket.accept()
            except BlockingIOError:
                return
            except OSError as error:  # out of files, or the client is gone already
                self._lost(f"a connection could not be accepted: {error.strerror}")
                return
            self._connections = [other for other in self._connections if not other.closed]
            if len(self._connections) >= self._loop.limits.connections:
                sock.close()
                self._lost(f"more than {len(self._connections):,} connections")
                continue
            self._accept(sock)

    def tick(self, now: float) -> None:
        """Gives up who says nothing."""
        timeout = self._loop.limits.timeout_s
        for connection, since in list(self._strangers.items()):
            if now - since > timeout:
                self._refuse(connection, f"it said nothing for {timeout:g} s")

    def close(self) -> None:
        """Stops listening and closes connections that belong to no pipe yet."""
        self._loop.forget(self)
        self._socket.close()
        for connection in self._strangers:
            connection.close()
        self._strangers.clear()

    def _accept(self, sock: socket.socket) -> None:
        connection = Connection(self._loop, sock, _nothing, _nothing)
        connection.on_frame = lambda body: self._first_frame(connection, body)
        connection.on_lost = lambda reason: self._refuse(connection, reason)
        self._connections.append(connection)
        self._strangers[connection] = time.monotonic()
        connection.allow(self._loop.limits.handshake_bytes)

    def _refuse(self, connection: Connection, reason: str) -> None:
        connection.close()
        if self._strangers.pop(connection, None) is not None:
            self._lost(reason)

    def _first_frame(self, connection: Connection, body: bytes) -> None:
        try:
            first = read_first_frame(body)
        except DecodeError as error:
            self._refuse(connection, f"its first frame can't be read: {error}")
            return
        if isinstance(first, SpontaneousConnection):
            del self._strangers[connection]
            pipe = self._new_pipe(first.context_name)
            pipe.adopt(connection, "descriptor connection")
            connection.on_frame = lambda body: self._brochure(pipe, connection, body)
            return
        expected = self._registered.pop(first.registration_id, None)
        if expected is None:
            self._refuse(connection, f"nothing waits for a connection with id {first.registration_id}")
            return
        del self._strangers[connection]
        connection.allow(None)
        expected(connection)

    def _brochure(self, pipe: PipeEnd, descriptor: Connection, body: bytes) -> None:
        """Answers what a client offers, and waits for the two connections that it is told to open."""
        descriptor.allow(None)
        try:
            brochure, layout = read_brochure(body)
        except DecodeError as error:
            pipe.lose(f"handshake: {error}")
            return
        channels = dict(brochure.channel_device_descriptors)
        offers_uv = dict(brochure.transport_domain_descriptors).get(UV) == UV_DOMAIN
        if layout is not Layout.V1_9 or not offers_uv or CPU not in dict(channels.get(BASIC, ())):
            pipe.lose("handshake: the other side does not offer uv with basic for the CPU")
            return
        arrived: dict[str, Connection] = {}
        ids = {what: self._register(pipe, what, arrived, descriptor) for what in ("reply", "channel")}
        answer = BrochureAnswer(
            transport=UV,
            address=str(self.address),
            transport_registration_ids=((TRANSPORT_DESCRIPTOR_REPLY_ID, ids["reply"]),),
            transport_domain_descriptor=UV_DOMAIN,
            channel_registration_ids=((BASIC, (ids["channel"],)),),
            channel_device_descriptors=((BASIC, BASIC_DEVICES),),
            channel_for_device_pair=(((CPU, CPU), BASIC),),
        )
        descriptor.send(write_brochure_answer(answer, Layout.V1_9))

    def _register(
        self, pipe: PipeEnd, what: str, arrived: dict[str, Connection], descriptor: Connection
    ) -> int:
        """The id of a connection of this pipe; the last that comes makes the pipe ready."""
        registration_id = self._next_id
        self._next_id += 1

        def connected(connection: Connection) -> None:
            if pipe.lost:
                connection.close()
                return
            pipe.adopt(connection, f"{what} connection")
            arrived[what] = connection
            if len(arrived) == 2:
                pipe.start(descriptor, channel=arrived["channel"], reply=arrived["reply"])

        self._registered[registration_id] = connected
        pipe.on_close.append(lambda: self._registered.pop(registration_id, None))
        return registration_id


def _nothing(_: object) -> None:
    """A frame or a loss that nobody waits for yet."""

"""How a pipe begins: who opens which connections and what is said before the first message.

In: a loop and an address to open a pipe to, or connections that a listener accepted. Out: `PeerPipe`s that
are ready. Only uv is offered and accepted, with basic, or mpt_uv where the terms have it; a worker with
torch's default transports agrees to that too. May assume nothing about the other side: frames are small, an
address in an answer must be within reach and on the same host, and whoever says nothing is closed after the
timeout (`PeerPipe` and `Listener` see to it).

Mirrors `tensorpipe/core/listener_impl.cc`, the handshake of `tensorpipe/core/pipe_impl.cc` and that of
`tensorpipe/channel/mpt/channel_impl.cc`.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from itertools import count

from msgspec import Struct, field

from rpcinspect.errors import DecodeError, ReplayError
from rpcinspect.replayer.peers.connection import FrameConnection
from rpcinspect.replayer.peers.loop import READ, Loop
from rpcinspect.replayer.peers.loopback import Address, Reach, any_host, loopback_host, parse_address
from rpcinspect.replayer.peers.pipe_end import CPU, PeerPipe, TensorChannel
from rpcinspect.tensorpipe.channel_kinds import MPT, MPT_LANES
from rpcinspect.tensorpipe.control import (
    read_brochure,
    read_brochure_answer,
    read_first_frame,
    read_mpt_hello,
    write_brochure,
    write_brochure_answer,
    write_first_frame,
    write_mpt_hello,
)
from rpcinspect.tensorpipe.control_types import (
    TRANSPORT_DESCRIPTOR_ID,
    TRANSPORT_DESCRIPTOR_REPLY_ID,
    Brochure,
    BrochureAnswer,
    ControlLayout,
    DeviceDescriptors,
    LaneAdvertisement,
    MptClientHello,
    MptServerHello,
    RequestedConnection,
    SpontaneousConnection,
)

UV, UV_DOMAIN, BASIC = "uv", "uv:*", "basic"
DEVICES: dict[str, DeviceDescriptors] = {
    BASIC: ((CPU, "any"),),
    MPT: ((CPU, ":".join([str(MPT_LANES), *[UV_DOMAIN] * MPT_LANES])),),
}
"""Channel → what it says of its devices; both sides must say the same."""
BACKLOG = 256


class Terms(Struct, frozen=True):
    """Whom a peer talks to, and how."""

    reach: Reach = loopback_host
    channels: tuple[str, ...] = (BASIC,)
    """What may carry tensors; where we choose, the first that the other side has."""

    @property
    def brochure(self) -> bytes:
        """Returns the frame that offers our transports and channels."""
        devices = tuple([(name, DEVICES[name]) for name in self.channels])
        return write_brochure(Brochure(((UV, UV_DOMAIN),), devices), ControlLayout.V1_9)

    @property
    def names(self) -> str:
        """The channels, in words."""
        return " or ".join(self.channels)


LOOPBACK_TERMS = Terms()
"""With workers that we started ourselves."""
MEMBER_TERMS = Terms(any_host, (BASIC, MPT))
"""With the members of a group that others started."""


def open_pipe(pipe: PeerPipe, name: str, address: Address, terms: Terms = LOOPBACK_TERMS) -> None:
    """Begins to open a pipe under our `name`; nothing has happened yet when this returns."""
    hello = write_first_frame(SpontaneousConnection(name)), terms.brochure
    descriptor = _connect(pipe, address, "descriptor connection", *hello)
    descriptor.on_frame = lambda body: _answered(pipe, address, terms, descriptor, body)
    descriptor.allow(pipe.loop.limits.handshake_bytes)


def _connect(pipe: PeerPipe, address: Address, what: str, *hello: bytes) -> FrameConnection:
    """A connection that is being opened, and the frames that it begins with."""
    sock = socket.socket(address.family, socket.SOCK_STREAM)
    connection = FrameConnection(pipe.loop, sock, _nothing, _nothing, connecting=True)
    pipe.adopt(connection, what)
    connection.open(address.host, address.port, *hello)
    return connection


def _answered(
    pipe: PeerPipe, address: Address, terms: Terms, descriptor: FrameConnection, body: bytes
) -> None:
    """The listening side chose: open the connections that it asks for."""
    descriptor.allow(None)
    try:
        answer, layout = read_brochure_answer(body)
        reply_id, name, channel_id = _check_answer(answer, layout, terms)
        wanted = _same_host(answer.address, address, terms)
    except (DecodeError, ReplayError) as error:
        pipe.lose(f"handshake: {error}")
        return
    reply = _connect(
        pipe, wanted, "descriptor-reply connection", write_first_frame(RequestedConnection(reply_id))
    )
    channel = _connect(pipe, wanted, "channel", write_first_frame(RequestedConnection(channel_id)))
    if name == BASIC:
        pipe.start(descriptor, TensorChannel(BASIC, [channel]), reply)
        return

    def told(body: bytes) -> None:
        lanes = _open_lanes(pipe, address, terms, body)
        if lanes is not None:
            _say_no_more(pipe, channel)
            pipe.start(descriptor, TensorChannel(name, lanes), reply)

    channel.on_frame = told
    channel.allow(pipe.loop.limits.handshake_bytes)


def _open_lanes(pipe: PeerPipe, address: Address, terms: Terms, body: bytes) -> list[FrameConnection] | None:
    """The connections that a server's hello asks for; None if it is not in order, and the pipe is lost."""
    try:
        hello = read_mpt_hello(body)
        if not isinstance(hello, MptServerHello) or len(hello.lane_advertisements) != MPT_LANES:
            raise ReplayError(f"the other side does not send the {MPT_LANES} lanes of {MPT}")
        wanted = [_same_host(lane.address, address, terms) for lane in hello.lane_advertisements]
    except (DecodeError, ReplayError) as error:
        pipe.lose(f"handshake: {error}")
        return None
    return [
        _connect(pipe, where, "lane", write_mpt_hello(MptClientHello(lane.registration_id)))
        for where, lane in zip(wanted, hello.lane_advertisements, strict=True)
    ]


def _same_host(text: str, address: Address, terms: Terms) -> Address:
    """Returns the address for another connection of a pipe, which must be on the host of the first one."""
    wanted = parse_address(text, terms.reach)
    if wanted.host != address.host:
        raise ReplayError(f"the worker at {address} directs us to {wanted}, another host")
    return wanted


def _say_no_more(pipe: PeerPipe, control: FrameConnection) -> None:
    """Loses the pipe if anything comes on the control connection of its lanes after the hello."""
    control.on_frame = lambda _: pipe.lose("something came on the control connection of the lanes")
    control.allow(pipe.loop.limits.handshake_bytes)


def _check_answer(answer: BrochureAnswer, layout: ControlLayout, terms: Terms) -> tuple[int, str, int]:
    """Returns (id of the descriptor-reply connection, the channel, id of its connection). Raises
    `ReplayError`."""
    ids = dict(answer.transport_registration_ids)
    channel_ids = dict(answer.channel_registration_ids)
    if layout is not ControlLayout.V1_9:
        raise ReplayError("the answer has the layout of PyTorch 1.8")
    if answer.transport != UV or TRANSPORT_DESCRIPTOR_ID in ids:
        raise ReplayError(
            f"the other side chose the transport {answer.transport[:40]!a}, only uv was offered"
        )
    if TRANSPORT_DESCRIPTOR_REPLY_ID not in ids:
        raise ReplayError("the answer has no id for the descriptor-reply connection")
    name = next(iter(channel_ids), "")
    if len(channel_ids) != 1 or name not in terms.channels or len(channel_ids[name]) != 1:
        raise ReplayError(f"the other side did not choose {terms.names} with one connection")
    if dict(answer.channel_for_device_pair).get((CPU, CPU)) != name:
        raise ReplayError(f"the other side did not choose {terms.names} for tensors on the CPU")
    return ids[TRANSPORT_DESCRIPTOR_REPLY_ID], name, channel_ids[name][0]


class Listener:
    """Accepts connections on the loopback and sorts them into pipes."""

    def __init__(
        self,
        loop: Loop,
        host: str,
        new_pipe: Callable[[str], PeerPipe],
        lost: Callable[[str], None],
        terms: Terms = LOOPBACK_TERMS,
    ) -> None:
        """`new_pipe` makes the pipe for a client of that name; `lost` hears why a connection without a pipe
        was given up. Takes any free port. Raises `ReplayError` if the host is none of this machine.
        """
        self._loop = loop
        self._new_pipe = new_pipe
        self._lost = lost
        self._strangers: dict[FrameConnection, float] = {}
        """Connections that have not said what they are for, and since when."""
        self._registered: dict[int, Callable[[FrameConnection], None]] = {}
        """What to do with the connection that brings this id; each is used once."""
        self._ids = count()
        self._connections: list[FrameConnection] = []
        self._terms = terms
        family = Address(terms.reach(host), 0).family
        ipv6 = family == socket.AF_INET6  # members may be at an IPv4 address in the form of IPv6
        try:
            self._socket = socket.create_server(
                (host, 0), family=family, backlog=BACKLOG, dualstack_ipv6=ipv6
            )
        except (OSError, ValueError) as error:  # `ValueError`: the system has no IPv6
            raise ReplayError(f"can't listen on {host}: {getattr(error, 'strerror', error)}") from error
        self._socket.setblocking(False)
        self.address = Address(host, self._socket.getsockname()[1])
        loop.watch(self, self._socket, READ)
        loop.add_timer(self._check)

    def ready(self, events: int) -> None:
        """Accepts a connection."""
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
            return
        connection = FrameConnection(self._loop, sock, _nothing, _nothing)
        connection.on_frame = lambda body: self._first_frame(connection, body)
        connection.on_lost = lambda reason: self._refuse(connection, reason)
        self._connections.append(connection)
        self._strangers[connection] = time.monotonic()
        connection.allow(self._loop.limits.handshake_bytes)

    def _check(self, now: float) -> None:
        """Gives up connections that send nothing."""
        timeout = self._loop.limits.timeout_s
        for connection, since in list(self._strangers.items()):
            if now - since > timeout:
                self._refuse(connection, f"it sent nothing for {timeout:g} s")

    def close(self) -> None:
        """Stops listening and closes connections that belong to no pipe yet."""
        self._loop.forget(self)
        self._loop.remove_timer(self._check)
        self._socket.close()
        for connection in self._strangers:
            connection.close()
        self._strangers.clear()

    def _refuse(self, connection: FrameConnection, reason: str) -> None:
        connection.close()
        if self._strangers.pop(connection, None) is not None:
            self._lost(reason)

    def _first_frame(self, connection: FrameConnection, body: bytes) -> None:
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

    def _brochure(self, pipe: PeerPipe, descriptor: FrameConnection, body: bytes) -> None:
        """Answers a client's offer, and waits for the connections that the client is told to open."""
        descriptor.allow(None)
        try:
            brochure, layout = read_brochure(body)
        except DecodeError as error:
            pipe.lose(f"handshake: {error}")
            return
        offers_uv = dict(brochure.transport_domain_descriptors).get(UV) == UV_DOMAIN
        name = self._channel_for(brochure)
        if layout is not ControlLayout.V1_9 or not offers_uv or name is None:
            names = self._terms.names
            pipe.lose(f"handshake: the other side does not offer uv with {names} for the CPU")
            return
        arriving = _Arriving(self, pipe, name, descriptor)
        ids = {what: arriving.register(what) for what in ("reply", "channel")}
        answer = BrochureAnswer(
            transport=UV,
            address=str(self.address),
            transport_registration_ids=((TRANSPORT_DESCRIPTOR_REPLY_ID, ids["reply"]),),
            transport_domain_descriptor=UV_DOMAIN,
            channel_registration_ids=((name, (ids["channel"],)),),
            channel_device_descriptors=((name, DEVICES[name]),),
            channel_for_device_pair=(((CPU, CPU), name),),
        )
        descriptor.send(write_brochure_answer(answer, ControlLayout.V1_9))

    def _channel_for(self, brochure: Brochure) -> str | None:
        """The first of ours that the other side has for the CPU. Those of lanes must have as many."""
        offered = dict(brochure.channel_device_descriptors)
        for name in self._terms.channels:
            theirs = dict(offered.get(name, ()))
            if CPU in theirs and (name == BASIC or theirs[CPU] == dict(DEVICES[name])[CPU]):
                return name
        return None

    def register(self, connected: Callable[[FrameConnection], None], pipe: PeerPipe) -> int:
        """The id of a connection that a pipe waits for."""
        registration_id = next(self._ids)
        self._registered[registration_id] = connected
        pipe.on_close.append(lambda: self._registered.pop(registration_id, None))
        return registration_id


class _Arriving(Struct, eq=False):
    """The connections of a pipe that its client opens, until all are there."""

    listener: Listener
    pipe: PeerPipe
    channel: str
    descriptor: FrameConnection
    arrived: dict[str, FrameConnection] = field(default_factory=dict)

    @property
    def lanes(self) -> list[str]:
        """Names of the connections that carry tensors."""
        return ["channel"] if self.channel == BASIC else [f"lane {n}" for n in range(MPT_LANES)]

    def register(self, what: str) -> int:
        """Returns the id by which a connection is recognised."""

        def connected(connection: FrameConnection) -> None:
            self.pipe.adopt(connection, f"{what} connection")
            self.arrived[what] = connection
            if what == "channel" and self.channel != BASIC:
                self._advertise(connection)
            if self.arrived.keys() >= {"reply", "channel", *self.lanes} and not self.pipe.lost:
                lanes = [self.arrived[lane] for lane in self.lanes]
                self.pipe.start(self.descriptor, TensorChannel(self.channel, lanes), self.arrived["reply"])

        return self.listener.register(connected, self.pipe)

    def _advertise(self, control: FrameConnection) -> None:
        """Sends the client the addresses of the lanes: all at this listener, each with an id of its own."""
        address = str(self.listener.address)
        lanes = tuple([LaneAdvertisement(address, self.register(lane)) for lane in self.lanes])
        control.send(write_mpt_hello(MptServerHello(lanes)))
        if not control.closed:
            _say_no_more(self.pipe, control)


def _nothing(_: object) -> None:
    """A frame or a loss that nobody waits for yet."""

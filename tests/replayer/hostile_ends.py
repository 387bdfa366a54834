"""A peer with a hostile client or a hostile server on the other side, ready for messages."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rpcinspect.replayer.peers.loop import Loop, PeerEvent, PeerLimits, PipeLost
from rpcinspect.replayer.peers.peer import Peer
from rpcinspect.tensorpipe.control import frame, read_brochure_answer, write_brochure_answer
from rpcinspect.tensorpipe.control_types import BrochureAnswer, ControlLayout, TpDevice
from tests.replayer.hostile import BROCHURE, HELLO, SECONDS, connect, receive_frame, requested
from tests.replayer.live_calls import device_infos_call

CPU = TpDevice("cpu", 0)


@dataclass
class Hostile:
    """A peer, and three blocking sockets of a pipe that the test speaks by hand."""

    loop: Loop
    peer: Peer
    descriptor: socket.socket
    reply: socket.socket
    channel: socket.socket

    def lost(self, seconds: float = 3.0) -> PipeLost:
        """The loss of the pipe, which must come; nothing else may."""
        (event,) = wait(self.loop, seconds)
        assert isinstance(event, PipeLost)
        return event

    def until_lost(self, seconds: float = 3.0) -> list[PeerEvent]:
        """All up to the loss of the pipe, which must come; the loop may see them in several turns."""
        end = time.monotonic() + seconds
        events: list[PeerEvent] = []
        while not (events and isinstance(events[-1], PipeLost)):
            assert time.monotonic() < end, events
            events += self.loop.wait(0.1)
        return events


def wait(loop: Loop, seconds: float) -> list[PeerEvent]:
    """The first events."""
    return loop.wait(seconds)


def turn(loop: Loop, seconds: float = 0.05) -> None:
    """Lets a peer read what was sent; nothing may come of it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert loop.wait(0.01) == []


@contextmanager
def hostile_client(limits: PeerLimits) -> Iterator[Hostile]:
    """The test asks the peer."""
    with Loop(limits) as loop, contextlib.ExitStack() as stack:
        peer = Peer(loop, "cat", 0)
        descriptor = stack.enter_context(connect(peer.address))
        descriptor.sendall(HELLO + BROCHURE)
        turn(loop)
        answer, _ = read_brochure_answer(receive_frame(descriptor))
        ids = dict(answer.transport_registration_ids)[1], dict(answer.channel_registration_ids)["basic"][0]
        reply, channel = (stack.enter_context(connect(peer.address)) for _ in range(2))
        reply.sendall(requested(ids[0]))
        channel.sendall(requested(ids[1]))
        turn(loop)
        yield Hostile(loop, peer, descriptor, reply, channel)


def good_answer(url: str, **changes: object) -> bytes:
    """The framed answer of a listener at `url` to a brochure."""
    fields: dict[str, object] = {
        "transport": "uv",
        "address": url.removeprefix("uv://"),
        "transport_registration_ids": ((1, 7),),
        "transport_domain_descriptor": "uv:*",
        "channel_registration_ids": (("basic", (8,)),),
        "channel_device_descriptors": (("basic", ((CPU, "any"),)),),
        "channel_for_device_pair": (((CPU, CPU), "basic"),),
    }
    return frame(write_brochure_answer(BrochureAnswer(**(fields | changes)), ControlLayout.V1_9))  # type: ignore[arg-type]


@contextmanager
def hostile_server(limits: PeerLimits) -> Iterator[Hostile]:
    """The peer has asked the test one thing, as message 0."""
    with Loop(limits) as loop, contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        listener.settimeout(SECONDS)
        url = f"uv://127.0.0.1:{listener.getsockname()[1]}"
        peer = Peer(loop, "cat", 0)
        peer.addresses["mouse"] = url
        peer.send("mouse", device_infos_call())

        def accept() -> socket.socket:
            sock = stack.enter_context(listener.accept()[0])
            sock.settimeout(SECONDS)
            return sock

        descriptor = accept()
        turn(loop)
        receive_frame(descriptor)
        receive_frame(descriptor)
        descriptor.sendall(good_answer(url))
        turn(loop)
        reply, channel = accept(), accept()
        turn(loop)
        for _ in range(5):
            receive_frame(descriptor)
        yield Hostile(loop, peer, descriptor, reply, channel)

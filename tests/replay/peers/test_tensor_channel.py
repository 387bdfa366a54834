"""Tensors on the lanes of a channel: of every length, in both directions, and lanes that lie."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from rpcinspect.replay.peers.control_calls import device_infos_call
from rpcinspect.replay.peers.events import PeerLimits, PipeLost, RequestArrived, ResponseArrived
from rpcinspect.replay.peers.handshake import DEVICES, MEMBER_TERMS, Terms
from rpcinspect.replay.peers.loop import Loop
from rpcinspect.replay.peers.loopback import loopback_host
from rpcinspect.replay.peers.peer import Peer
from rpcinspect.wire.channel import MPT, MPT_LANES
from rpcinspect.wire.tensorpipe import frame, write_mpt_hello
from rpcinspect.wire.tensorpipe_types import LaneAdvertisement, MptServerHello
from tests.replay.hostile_ends import CPU, good_answer
from tests.replay.peers.test_peer import call, events_of, ret, table_of

LANES_ONLY = Terms(loopback_host, (MPT,))
LENGTHS = (0, 1, 4, 15, 16, 17, 100, 1 << 20, 0, 3)


@pytest.fixture
def loop(nothing_left: None) -> Iterator[Loop]:
    with Loop(PeerLimits(timeout_s=5.0)) as made:
        yield made


def tensors_of(seed: int) -> tuple[bytes, ...]:
    return tuple([bytes((seed + i) % 251 for i in range(length)) for length in LENGTHS])


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (LANES_ONLY, LANES_ONLY),
        (LANES_ONLY, MEMBER_TERMS),
        (MEMBER_TERMS, LANES_ONLY),
        (Terms(), MEMBER_TERMS),
    ],
    ids=["lanes", "lanes to both", "both to lanes", "basic to both"],
)
def test_every_length_in_both_directions(loop: Loop, ours: Terms, theirs: Terms) -> None:
    one, two = Peer(loop, "one", 1, terms=ours), Peer(loop, "two", 2, terms=theirs)
    one.addresses["two"] = two.address
    for n in range(3):
        one.send("two", call(b"\0%d" % n, table_of(*LENGTHS)), tensors_of(n))
    for n, request in enumerate(events_of(loop, 3)):
        assert isinstance(request, RequestArrived)
        assert request.tensors == tensors_of(n)
        two.answer(request, ret(table=table_of(*LENGTHS)), tensors_of(n + 7))
    for n, answer in enumerate(events_of(loop, 3)):
        assert isinstance(answer, ResponseArrived)
        assert answer.tensors == tensors_of(n + 7)


def test_nothing_in_common(loop: Loop) -> None:
    one, two = Peer(loop, "one", 1, terms=LANES_ONLY), Peer(loop, "two", 2)
    one.addresses["two"] = two.address
    one.send("two", device_infos_call())
    reasons = [event.reason for event in events_of(loop, 2) if isinstance(event, PipeLost)]
    assert "handshake: the other side does not offer uv with basic for the CPU" in reasons


def lanes_at(*where: tuple[str, int]) -> bytes:
    return frame(write_mpt_hello(MptServerHello(tuple([LaneAdvertisement(*one) for one in where]))))


@pytest.mark.parametrize(
    ("hello", "reason"),
    [
        (
            lanes_at(*[("127.0.0.1:1", n) for n in range(MPT_LANES - 1)]),
            "does not tell the 16 lanes of mpt_uv",
        ),
        (lanes_at(*[("192.0.2.1:1", n) for n in range(MPT_LANES)]), "is not on this machine's loopback"),
        (lanes_at(*[("127.0.0.2:1", n) for n in range(MPT_LANES)]), "sends us to 127.0.0.2:1, another host"),
        (lanes_at(*[("nonsense", n) for n in range(MPT_LANES)]), "is no address of a worker"),
        (frame(b"\xb9"), "handshake"),
        (frame(b"x" * 70_000), "a frame of 70,000 bytes came where at most 65,536 must be"),
    ],
)
def test_lanes_that_are_refused(loop: Loop, hello: bytes, reason: str) -> None:
    peer = Peer(loop, "cat", 0, terms=LANES_ONLY)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"uv://127.0.0.1:{listener.getsockname()[1]}"
        peer.addresses["mouse"] = url
        peer.send("mouse", device_infos_call())
        with listener.accept()[0] as descriptor:
            loop.wait(0.1)
            descriptor.sendall(
                good_answer(
                    url,
                    channel_registration_ids=((MPT, (8,)),),
                    channel_device_descriptors=((MPT, DEVICES[MPT]),),
                    channel_for_device_pair=(((CPU, CPU), MPT),),
                )
            )
            loop.wait(0.1)
            with listener.accept()[0], listener.accept()[0] as control:
                control.sendall(hello)
                (event,) = events_of(loop, 1)
    assert isinstance(event, PipeLost)
    assert reason in event.reason

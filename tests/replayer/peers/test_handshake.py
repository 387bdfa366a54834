"""How pipes begin: by hand against our listener and against our client, right and wrong."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator

import pytest

from rpcinspect.replayer.peers.handshake import MEMBER_TERMS
from rpcinspect.replayer.peers.loop import Loop, PeerLimits, PipeLost, RequestArrived
from rpcinspect.replayer.peers.peer import Peer
from rpcinspect.tensorpipe.control import frame, read_brochure_answer, write_brochure
from rpcinspect.tensorpipe.control_types import Brochure, BrochureAnswer, ControlLayout, TpDevice
from rpcinspect.tensorpipe.nop import write_int
from tests.replayer.hostile import BROCHURE, HELLO, connect, message, receive_frame, requested
from tests.replayer.hostile_ends import CPU, good_answer, hostile_client, turn
from tests.replayer.live_calls import device_infos_call

LIMITS = PeerLimits(timeout_s=0.4, connections=8)


@pytest.fixture
def peer(nothing_left: None) -> Iterator[Peer]:
    with Loop(LIMITS) as loop:
        yield Peer(loop, "cat", 0)


def lost(peer: Peer, seconds: float = 3.0) -> PipeLost:
    (event,) = peer.loop.wait(seconds)
    assert isinstance(event, PipeLost)
    return event


def test_what_our_listener_answers(peer: Peer) -> None:
    with connect(peer.address) as sock:
        sock.sendall(HELLO + BROCHURE)
        turn(peer.loop)
        answer, layout = read_brochure_answer(receive_frame(sock))
        assert layout is ControlLayout.V1_9
        assert answer == BrochureAnswer(
            transport="uv",
            address=peer.address.removeprefix("uv://"),
            transport_registration_ids=((1, 0),),
            transport_domain_descriptor="uv:*",
            channel_registration_ids=(("basic", (1,)),),
            channel_device_descriptors=(("basic", ((CPU, "any"),)),),
            channel_for_device_pair=(((CPU, CPU), "basic"),),
        )
        assert lost(peer).reason == "the handshake was not complete within 0.4 s"


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6")
def test_a_listener_at_an_ipv4_address_in_the_form_of_ipv6() -> None:
    with Loop(LIMITS) as loop:
        peer = Peer(loop, "cat", 0, host="::ffff:127.0.0.1", terms=MEMBER_TERMS)
        port = int(peer.address.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), 5) as sock:
            sock.sendall(HELLO + BROCHURE)
            turn(loop)
            answer, _ = read_brochure_answer(receive_frame(sock))
            assert answer.address == f"[::ffff:127.0.0.1]:{port}"


def test_a_pipe_opened_by_hand_carries_messages() -> None:
    with hostile_client(LIMITS) as hostile:
        hostile.descriptor.sendall(message(0x102, 5, b"\0hello", [3]))
        hostile.channel.sendall(frame(b"abc"))
        (event,) = hostile.loop.wait(2)
        # An empty table with a tensor behind it is odd, but not for us to judge.
        assert isinstance(event, RequestArrived)
        assert (event.sender, event.message.id, event.tensors) == ("mouse", 5, (b"abc",))


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "a frame of .* bytes came where at most 65,536 must be"),
        (frame(b"\xff"), "its first frame can't be read"),
        (frame(b""), "its first frame can't be read"),
        (frame(bytes.fromhex("b802b90100")), "its first frame can't be read"),
        (requested(3), "nothing waits for a connection with id 3"),
        (requested(1 << 63), "nothing waits for a connection with id 9223372036854775808"),
        (b"\x0d\0\0", "it sent nothing for 0.4 s"),
        (b"", "it sent nothing for 0.4 s"),
    ],
    ids=["http", "no nop", "empty", "third kind", "unknown id", "absurd id", "half a length", "silence"],
)
def test_strangers_are_turned_away(peer: Peer, sent: bytes, reason: str) -> None:
    start = time.monotonic()
    with connect(peer.address) as sock:
        sock.sendall(sent)
        event = lost(peer)
        assert (event.other, event.pipe, event.inbound) == ("", 0, True)
        assert re.match(reason, event.reason)
        assert time.monotonic() - start < 2
        assert sock.recv(1) == b""


@pytest.mark.parametrize(
    ("brochure", "reason"),
    [
        (frame(b"\xb9"), "handshake: the bytes end where"),
        (frame(write_brochure(Brochure((), ()), ControlLayout.V1_9)), "does not offer uv with basic"),
        (
            frame(
                write_brochure(
                    Brochure((("shm", "shm:x"),), (("basic", ((CPU, "any"),)),)),
                    ControlLayout.V1_9,
                )
            ),
            "does not offer uv with basic",
        ),
        (
            frame(
                write_brochure(
                    Brochure((("uv", "uv:*"),), (("basic", ((TpDevice("cuda", 0), "any"),)),)),
                    ControlLayout.V1_9,
                )
            ),
            "does not offer uv with basic for the CPU",
        ),
        (frame(bytes.fromhex("b9 02 bb") + write_int(1 << 60)), "items"),
    ],
    ids=["cut", "nothing", "shm", "cuda only", "absurd count"],
)
def test_brochures_that_are_refused(peer: Peer, brochure: bytes, reason: str) -> None:
    with connect(peer.address) as sock:
        sock.sendall(HELLO + brochure)
        event = lost(peer)
        assert event.other == "mouse"
        assert reason in event.reason


def test_an_id_is_good_for_one_connection_only(peer: Peer) -> None:
    with connect(peer.address) as sock, connect(peer.address) as one, connect(peer.address) as two:
        sock.sendall(HELLO + BROCHURE)
        turn(peer.loop)
        one.sendall(requested(0))
        turn(peer.loop)
        two.sendall(requested(0))
        assert lost(peer).reason == "nothing waits for a connection with id 0"
        sock.close()
        lost(peer)
        with connect(peer.address) as late:
            late.sendall(requested(1))
            assert lost(peer).reason == "nothing waits for a connection with id 1"


def test_too_many_connections(peer: Peer) -> None:
    socks = [connect(peer.address) for _ in range(12)]
    events = []
    end = time.monotonic() + 3
    while len(events) < 12 and time.monotonic() < end:
        events += peer.loop.wait(0.1)
    reasons = [event.reason for event in events if isinstance(event, PipeLost)]
    assert reasons.count("more than 8 connections") == 4
    assert reasons.count("it sent nothing for 0.4 s") == 8
    for sock in socks:
        sock.close()


# --- our client, a server by hand -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"transport": "shm"}, "the other side chose the transport 'shm', only uv was offered"),
        ({"transport_registration_ids": ((0, 1), (1, 2))}, "only uv was offered"),
        ({"transport_registration_ids": ()}, "no id for the descriptor-reply connection"),
        ({"channel_registration_ids": (("basic", (8, 9)),)}, "basic with one connection"),
        ({"channel_registration_ids": (("mpt_uv", (8,)),)}, "basic with one connection"),
        ({"channel_for_device_pair": ()}, "did not choose basic for tensors on the CPU"),
        ({"address": "192.0.2.7:4711"}, "'192.0.2.7' is not on this machine's loopback"),
        ({"address": "localhost:4711"}, "is not on this machine's loopback"),
        ({"address": "nonsense"}, "is not the address of a worker"),
        ({"address": "127.0.0.1:1"}, "Connection refused"),
    ],
)
def test_answers_that_are_refused(peer: Peer, changes: dict[str, object], reason: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"uv://127.0.0.1:{listener.getsockname()[1]}"
        peer.addresses["mouse"] = url
        message_id = peer.send("mouse", device_infos_call())
        with listener.accept()[0] as sock:
            turn(peer.loop)
            sock.sendall(good_answer(url, **changes))
            event = lost(peer)
    assert (event.other, event.inbound, event.unanswered) == ("mouse", False, (message_id,))
    assert reason in event.reason


@pytest.mark.parametrize("sent", [b"", frame(b"\xb9\x07"), frame(b"\xb9\x07")[:5]])
def test_a_server_without_an_answer(peer: Peer, sent: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        peer.addresses["mouse"] = f"uv://127.0.0.1:{listener.getsockname()[1]}"
        peer.send("mouse", device_infos_call())
        with listener.accept()[0] as sock:
            sock.sendall(sent)
            start = time.monotonic()
            assert re.search("handshake|not complete", lost(peer).reason)
            assert time.monotonic() - start < 2

"""Messages on a pipe whose other side is hostile: half, absurd, endless, out of order."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rpcinspect.replayer.peers.handshake import DEVICES, MEMBER_TERMS, Terms
from rpcinspect.replayer.peers.loop import Loop, PeerLimits, PipeLost, RequestArrived, ResponseArrived
from rpcinspect.replayer.peers.loopback import loopback_host
from rpcinspect.replayer.peers.peer import Peer
from rpcinspect.rpc.message import NO_TENSORS
from rpcinspect.tensorpipe.channel_kinds import MPT, MPT_LANES
from rpcinspect.tensorpipe.control import frame, write_mpt_hello
from rpcinspect.tensorpipe.control_types import LaneAdvertisement, MptServerHello
from tests.replayer.hostile import descriptor, message
from tests.replayer.hostile_ends import CPU, Hostile, good_answer, hostile_client, hostile_server, turn
from tests.replayer.live_calls import device_infos_call
from tests.replayer.peers.test_peer import call, events_of, ret, table_of
from tests.thorough import examples

LIMITS = PeerLimits(
    timeout_s=0.4, payload_bytes=1 << 20, tensor_bytes=1 << 20, tensors=8, pending_messages=4, unanswered=16
)
CALL, RET = 0x102, 0x203
CUDA = bytes.fromhex("b902 bd04") + b"cuda" + b"\x00"


@pytest.fixture
def client(nothing_left: None) -> Iterator[Hostile]:
    with hostile_client(LIMITS) as made:
        yield made


@pytest.fixture
def server(nothing_left: None) -> Iterator[Hostile]:
    with hostile_server(LIMITS) as made:
        yield made


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (frame(b"junk"), "a descriptor that can't be read"),
        (frame(b""), "a descriptor that can't be read"),
        (bytes([255]) * 8, "came where at most"),
        (descriptor([4, 8, 1 << 40, 4]), "a payload of 1,099,511,627,776 bytes is over the limit"),
        (descriptor([4, 8, 1]), "payloads of (4, 8, 1) bytes instead of 4, 8 and two more"),
        (descriptor([8, 4, 1, 1]), "payloads of (8, 4, 1, 1) bytes"),
        (
            descriptor([4, 8, 1, 1], [1 << 62]),
            "tensors of 4,611,686,018,427,387,904 bytes are over the limit",
        ),
        (descriptor([4, 8, 1, 1], [1 << 19] * 3), "tensors of 1,572,864 bytes are over the limit"),
        (descriptor([4, 8, 1, 1], [0] * 9), "9 tensors are over the limit"),
        (descriptor([4, 8, 1, 1], [4], CUDA), "a tensor that is not on the CPU"),
        (descriptor([4, 8, 1, 1]) + frame(b"12345"), "a frame of 5 bytes came where one of 4 must be"),
    ],
)
def test_descriptors_that_are_refused(client: Hostile, sent: bytes, reason: str) -> None:
    client.descriptor.sendall(sent)
    event = client.lost()
    assert reason in event.reason
    assert (event.peer, event.other, event.inbound) == ("cat", "mouse", True)
    assert client.channel.recv(1) == b""


def test_a_message_that_never_ends(client: Hostile) -> None:
    client.descriptor.sendall(descriptor([4, 8, 100, 4]) + frame(b"\x02\x01\0\0"))
    start = time.monotonic()
    assert client.lost().reason == "a message is not complete after 0.4 s"
    assert time.monotonic() - start < 1.5


def test_tensors_that_never_come(client: Hostile) -> None:
    client.descriptor.sendall(message(CALL, 0, b"\0", [4]))
    start = time.monotonic()
    assert client.lost().reason == "a message is not complete after 0.4 s"
    assert time.monotonic() - start < 1.5


def test_a_slow_drip(client: Hostile) -> None:
    data = message(CALL, 0, bytes(200))
    start = time.monotonic()
    events: list[object] = []
    for byte in data:
        try:
            client.descriptor.sendall(bytes([byte]))
        except OSError:
            break
        events += client.loop.wait(0.02)
        if events:
            break
    (event,) = events
    assert isinstance(event, PipeLost)
    assert "is not complete after" in event.reason
    assert time.monotonic() - start < 2


def test_a_tensor_of_another_length(client: Hostile) -> None:
    client.descriptor.sendall(message(CALL, 0, b"\0", [4]))
    client.channel.sendall(frame(b"12345"))
    assert "channel connection: a frame of 5 bytes came where one of 4 must be" in client.lost().reason


def test_tensors_may_come_first_and_are_not_read_before(client: Hostile) -> None:
    client.channel.sendall(frame(b"1234"))
    turn(client.loop)
    client.descriptor.sendall(message(CALL, 0, b"\0", [0, 4]))
    (event,) = client.loop.wait(2)
    assert isinstance(event, RequestArrived)
    assert event.tensors == (b"", b"1234")


def test_messages_wait_for_the_tensors_of_those_before(client: Hostile) -> None:
    client.descriptor.sendall(message(CALL, 0, b"\0", [2, 2]) + message(CALL, 1, b"\0"))
    client.channel.sendall(frame(b"ab"))
    turn(client.loop)
    client.channel.sendall(frame(b"cd"))
    first, second = client.loop.wait(2)
    assert isinstance(first, RequestArrived)
    assert isinstance(second, RequestArrived)
    assert [first.message.id, second.message.id] == [0, 1]
    assert first.tensors == (b"ab", b"cd")


def test_few_messages_are_read_ahead_of_their_tensors(client: Hostile) -> None:
    client.descriptor.sendall(b"".join([message(CALL, i, b"\0", [1]) for i in range(12)]))
    turn(client.loop)
    for i in range(12):
        client.channel.sendall(frame(bytes([i])))
    found = []
    while len(found) < 12:
        events = client.loop.wait(2)
        assert events
        found += events
    assert [e.tensors for e in found if isinstance(e, RequestArrived)] == [(bytes([i]),) for i in range(12)]


def test_endless_requests(client: Hostile) -> None:
    client.descriptor.sendall(b"".join([message(CALL, i, b"\0") for i in range(17)]))
    events = client.until_lost()
    assert [type(event) for event in events] == [RequestArrived] * 16 + [PipeLost]
    assert isinstance(events[-1], PipeLost)
    assert events[-1].reason == "more than 16 requests that have no answer"


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (message(RET, 0), "PYTHON_RET came where only requests may come"),
        (message(0x3C, 0), "UNKNOWN came where only requests may come"),
        (message(CALL, 0) * 2, "request 0 came twice before it was answered"),
    ],
)
def test_what_a_client_may_not_say(client: Hostile, sent: bytes, reason: str) -> None:
    client.descriptor.sendall(sent)
    events = client.until_lost()
    assert isinstance(events[-1], PipeLost)
    assert events[-1].reason == reason


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (message(CALL, 0), "PYTHON_CALL came where only answers may come"),
        (message(RET, 1), "an answer to request 1, which awaits none"),
        (message(RET, -1), "an answer to request -1, which awaits none"),
        (message(RET, 0) * 1000, "an answer to request 0, which awaits none"),
    ],
    ids=["a request", "unknown id", "negative id", "endless answers"],
)
def test_what_a_server_may_not_say(server: Hostile, sent: bytes, reason: str) -> None:
    server.descriptor.sendall(sent)
    events = server.until_lost()
    assert isinstance(events[-1], PipeLost)
    assert events[-1].reason == reason
    assert [type(event) for event in events[:-1]] in ([], [ResponseArrived])


def test_a_descriptor_reply_is_an_error(server: Hostile) -> None:
    server.reply.sendall(frame(b"\xb9\x01\xba\x00"))
    event = server.lost()
    assert "a descriptor reply came" in event.reason
    assert event.unanswered == (0,)


@pytest.mark.parametrize("which", ["descriptor", "reply", "channel"])
def test_any_connection_that_ends_ends_the_pipe(server: Hostile, which: str) -> None:
    server.descriptor.sendall(message(RET, 0, b"", [4])[:-20])
    turn(server.loop)
    getattr(server, which).close()
    event = server.lost()
    assert "closed by the other side" in event.reason or "Connection reset" in event.reason
    assert event.unanswered == (0,)


@given(cut=st.integers(0, 400), flip=st.tuples(st.integers(0, 400), st.integers(1, 255)))
@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_damaged_messages_end_in_a_request_or_a_loss(cut: int, flip: tuple[int, int]) -> None:
    data = bytearray(message(CALL, 0, b"\0payload"))
    data[flip[0] % len(data)] ^= flip[1]
    limits = PeerLimits(timeout_s=1.0, payload_bytes=1 << 16, tensor_bytes=1 << 16)
    with hostile_client(limits) as client:
        client.descriptor.sendall(data[: cut % (len(data) + 1)])
        client.descriptor.close()
        events = client.until_lost()
        assert [type(event) for event in events[:-1]] in ([], [RequestArrived])


def test_the_table_of_these_tests_is_an_empty_one() -> None:
    assert NO_TENSORS in message(CALL, 0)


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
            "does not send the 16 lanes of mpt_uv",
        ),
        (lanes_at(*[("192.0.2.1:1", n) for n in range(MPT_LANES)]), "is not on this machine's loopback"),
        (
            lanes_at(*[("127.0.0.2:1", n) for n in range(MPT_LANES)]),
            "directs us to 127.0.0.2:1, another host",
        ),
        (lanes_at(*[("nonsense", n) for n in range(MPT_LANES)]), "is not the address of a worker"),
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

"""Peers among themselves and against hostile others; live workers are in `test_membership.py`."""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Iterator
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rpcinspect.errors import ReplayError
from rpcinspect.replayer.peers import connection, open_requests
from rpcinspect.replayer.peers import loop as loop_module
from rpcinspect.replayer.peers.handshake import MEMBER_TERMS
from rpcinspect.replayer.peers.loop import (
    Loop,
    PeerEvent,
    PeerLimits,
    PipeLost,
    RequestArrived,
    ResponseArrived,
    Unanswered,
)
from rpcinspect.replayer.peers.peer import Peer
from rpcinspect.rpc.message import NO_TENSORS, MessageType, RpcMessage
from rpcinspect.rpc.tensor import TensorMeta, to_tensor_table
from tests.thorough import examples

CALL, RET = int(MessageType.PYTHON_CALL), int(MessageType.PYTHON_RET)


def call(payload: bytes = b"\0", table: bytes = NO_TENSORS) -> RpcMessage:
    return RpcMessage(CALL, 99, payload, table)


def ret(payload: bytes = b"", table: bytes = NO_TENSORS) -> RpcMessage:
    return RpcMessage(RET, 77, payload, table)


def table_of(*lengths: int) -> bytes:
    """A table of one tensor of bytes for each length."""
    return to_tensor_table(
        [
            TensorMeta(dtype="uint8", sizes=(n,), strides=(1,), storage=i, storage_numel=n)
            for i, n in enumerate(lengths)
        ]
    )


def events_of(loop: Loop, count: int, seconds: float = 5.0) -> list[PeerEvent]:
    found: list[PeerEvent] = []
    end = time.monotonic() + seconds
    while len(found) < count and time.monotonic() < end:
        found += loop.wait(0.1)
    assert len(found) == count, found
    return found


@pytest.fixture
def loop(nothing_left: None) -> Iterator[Loop]:
    with Loop(PeerLimits(timeout_s=5.0)) as made:
        yield made


class Clock:
    """The time of the machine, and what was put before it."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead

    def pass_by(self, seconds: float) -> None:
        self.ahead += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of requests and of the loop."""
    made = Clock()
    for module in (loop_module, open_requests):
        monkeypatch.setattr(module, "time", made)
    return made


@pytest.fixture(params=["127.0.0.1", "::1"])
def host(request: pytest.FixtureRequest) -> str:
    """Both kinds of loopback, where the machine has both."""
    if request.param == "::1":
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError:
            pytest.skip("no IPv6 loopback")
    return str(request.param)


def pair(loop: Loop, host: str = "127.0.0.1") -> tuple[Peer, Peer]:
    one, two = Peer(loop, "one", 1, host=host), Peer(loop, "two", 2, host=host)
    one.addresses["two"], two.addresses["one"] = two.address, one.address
    return one, two


def test_a_request_and_its_answer(loop: Loop, host: str) -> None:
    one, two = pair(loop, host)
    tensors = (b"abc", b"", b"x" * 100_000)
    message_id = one.send("two", call(b"\0question", table_of(3, 0, 100_000)), tensors)
    (request,) = events_of(loop, 1)
    assert isinstance(request, RequestArrived)
    assert (request.peer, request.sender, request.tensors) == ("two", "one", tensors)
    assert request.message == RpcMessage(CALL, message_id, b"\0question", table_of(3, 0, 100_000))
    assert two.answer(request, ret(b"answer", table_of(2)), [b"ok"])
    (answer,) = events_of(loop, 1)
    assert isinstance(answer, ResponseArrived)
    assert (answer.peer, answer.to, answer.tensors, answer.late) == ("one", "two", (b"ok",), False)
    assert answer.message == RpcMessage(RET, message_id, b"answer", table_of(2))
    with pytest.raises(ReplayError, match="was answered before"):
        two.answer(request, ret())


def test_both_ask_and_answers_come_in_any_order(loop: Loop) -> None:
    one, two = pair(loop)
    ids = [one.send("two", call(bytes([0, i]))) for i in range(5)]
    back = two.send("one", call())
    assert ids == [0, 1, 2, 3, 4]
    assert back == 0
    requests = events_of(loop, 6)
    at_two = [e for e in requests if isinstance(e, RequestArrived) and e.peer == "two"]
    assert [e.message.id for e in at_two] == ids
    assert len({e.pipe for e in requests if isinstance(e, RequestArrived)}) == 2
    for request in reversed(at_two):
        two.answer(request, ret(request.message.payload))
    answers = events_of(loop, 5)
    assert [e.message.id for e in answers if isinstance(e, ResponseArrived)] == ids[::-1]


def test_a_pipe_to_oneself(loop: Loop) -> None:
    peer = Peer(loop, "one", 1)
    peer.addresses["one"] = peer.address
    peer.send("one", call())
    (request,) = events_of(loop, 1)
    assert isinstance(request, RequestArrived)
    peer.answer(request, ret(b"me"))
    (answer,) = events_of(loop, 1)
    assert isinstance(answer, ResponseArrived)
    assert answer.message.payload == b"me"


def test_call_waits_for_its_own_answer(loop: Loop) -> None:
    one, two = pair(loop)
    two.send("one", call())
    with pytest.raises(ReplayError, match=r"two did not answer PYTHON_CALL within 0\.2 s"):
        one.call("two", call(), timeout_s=0.2)
    kept = loop.wait(0.0)
    assert [type(event) for event in kept] == [RequestArrived, RequestArrived]
    late = next(event for event in kept if isinstance(event, RequestArrived) and event.peer == "two")
    two.answer(late, ret())
    (answer,) = events_of(loop, 1)
    assert isinstance(answer, ResponseArrived)
    assert answer.late


def test_a_peer_that_never_answers(loop: Loop, clock: Clock) -> None:
    one, _ = pair(loop)
    message_id = one.send("two", call(), timeout_s=60.0)
    assert len(events_of(loop, 1)) == 1
    clock.pass_by(59.0)
    assert loop.wait(0.0) == []
    clock.pass_by(1.0)
    assert events_of(loop, 1) == [Unanswered(peer="one", to="two", message_id=message_id, timeout_s=60.0)]
    clock.pass_by(60.0)
    assert loop.wait(0.0) == []


def test_the_time_of_a_request_is_renewed(loop: Loop, clock: Clock) -> None:
    one, _ = pair(loop)
    message_id = one.send("two", call(), timeout_s=60.0)
    assert len(events_of(loop, 1)) == 1
    clock.pass_by(40.0)
    assert loop.wait(0.0) == []
    one.renew(message_id)
    clock.pass_by(40.0)
    assert loop.wait(0.0) == []
    clock.pass_by(20.0)
    assert events_of(loop, 1) == [Unanswered(peer="one", to="two", message_id=message_id, timeout_s=60.0)]
    one.renew(message_id)
    clock.pass_by(80.0)
    assert loop.wait(0.0) == []


def test_a_closed_peer_takes_its_pipes_along(loop: Loop) -> None:
    one, two = pair(loop)
    ids = tuple(one.send("two", call()) for _ in range(2))
    requests = events_of(loop, 2)
    two.close()
    two.close()
    (lost,) = events_of(loop, 1)
    assert isinstance(lost, PipeLost)
    assert (lost.peer, lost.other, lost.inbound, lost.unanswered) == ("one", "two", False, ids)
    assert "closed by the other side" in lost.reason
    assert isinstance(requests[0], RequestArrived)
    assert not two.answer(requests[0], ret())


@pytest.mark.parametrize(("reset", "reason"), [(False, "closed by the other side"), (True, "reset by peer")])
def test_a_peer_ends_as_a_process_does(loop: Loop, reset: bool, reason: str) -> None:
    one, two = pair(loop)
    one.send("two", call())
    events_of(loop, 1)
    assert two.end(reset=reset)
    (lost,) = events_of(loop, 1)
    assert isinstance(lost, PipeLost)
    assert reason in lost.reason


def test_nobody_listens(loop: Loop) -> None:
    one, two = pair(loop)
    two.close()
    message_id = one.send("two", call())
    (lost,) = events_of(loop, 1)
    assert isinstance(lost, PipeLost)
    assert lost.unanswered == (message_id,)
    assert "Connection refused" in lost.reason
    with pytest.raises(ReplayError, match=r"two: .*Connection refused"):
        one.call("two", call(), timeout_s=2)


def test_an_address_of_another_machine(loop: Loop) -> None:
    with pytest.raises(ReplayError, match=r"can't listen on 192\.0\.2\.1: "):
        Peer(loop, "one", 1, host="192.0.2.1", terms=MEMBER_TERMS)


def test_only_the_loopback(loop: Loop) -> None:
    with pytest.raises(ReplayError, match="not on this machine's loopback"):
        Peer(loop, "one", 1, host="0.0.0.0")
    peer = Peer(loop, "one", 1)
    peer.addresses["far"] = "uv://192.0.2.1:4711"
    with pytest.raises(ReplayError, match="not on this machine's loopback"):
        peer.send("far", call())
    with pytest.raises(ReplayError, match="the address is not known of 'nobody'"):
        peer.send("nobody", call())


def test_only_requests_are_sent_and_only_answers_answer(loop: Loop) -> None:
    one, two = pair(loop)
    with pytest.raises(ReplayError, match="PYTHON_RET is not a request"):
        one.send("two", ret())
    one.send("two", call())
    (request,) = events_of(loop, 1)
    assert isinstance(request, RequestArrived)
    with pytest.raises(ReplayError, match="PYTHON_CALL is not an answer"):
        two.answer(request, call())


def test_tensors_that_can_not_be_rebuilt_are_not_sent(loop: Loop) -> None:
    one, two = pair(loop)
    with pytest.raises(ReplayError, match="PYTHON_CALL: storage 0 needs 4 bytes and has 3"):
        one.send("two", call(b"\0", table_of(4)), [b"123"])
    one.send("two", call())
    (request,) = events_of(loop, 1)
    assert isinstance(request, RequestArrived)
    with pytest.raises(ReplayError, match="PYTHON_RET: its tensor table: "):
        two.answer(request, ret(b"", b"garbage"))
    assert two.answer(request, ret())


def test_forgetting_a_worker_says_nothing(loop: Loop) -> None:
    one, _ = pair(loop)
    one.send("two", call())
    events_of(loop, 1)
    one.forget("two")
    one.forget("nobody")
    (lost,) = events_of(loop, 1)
    assert isinstance(lost, PipeLost)
    assert lost.peer == "two"
    with pytest.raises(ReplayError, match="the address is not known"):
        one.send("two", call())


def test_many_pipes_at_once(loop: Loop) -> None:
    hub = Peer(loop, "hub", 0)
    others = [Peer(loop, f"w{i}", i) for i in range(1, 17)]
    for other in others:
        other.addresses["hub"] = hub.address
        hub.addresses[other.name] = other.address
        other.send("hub", call(), timeout_s=5)
        hub.send(other.name, call(), timeout_s=5)
    peers = {peer.name: peer for peer in [hub, *others]}
    answers = 0
    while answers < 32:
        events = loop.wait(5)
        assert events
        for event in events:
            if isinstance(event, RequestArrived):
                peers[event.peer].answer(event, ret(event.sender.encode()))
            else:
                assert isinstance(event, ResponseArrived)
                assert event.message.payload == event.peer.encode()
                answers += 1


SIZES = st.lists(st.integers(0, 300), max_size=4)


@given(
    messages=st.lists(st.tuples(st.binary(max_size=40), SIZES), min_size=1, max_size=6),
    read=st.integers(1, 64),
    join=st.integers(1, 200),
)
@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_messages_arrive_however_they_are_chopped(
    messages: list[tuple[bytes, list[int]]], read: int, join: int
) -> None:
    fill = itertools.count()
    sent = []
    with (
        mock.patch.object(connection, "READ_BYTES", read),
        mock.patch.object(connection, "JOIN_BYTES", join),
        Loop(PeerLimits(timeout_s=5.0)) as loop,
    ):
        one, _ = pair(loop)
        for payload, sizes in messages:
            tensors = tuple(bytes([next(fill) % 251]) * size for size in sizes)
            sent.append((payload, tensors))
            one.send("two", call(payload, table_of(*sizes)), tensors)
        found = events_of(loop, len(messages))
    assert [(e.message.payload, e.tensors) for e in found if isinstance(e, RequestArrived)] == sent

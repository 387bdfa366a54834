"""Live workers that do everything but answer: what they send is bounded in time and memory and told in the
report, and the session comes to its end with everything closed.

The workers are real peers on the loopback. Where they misbehave they write bytes of their own on the
connection that the player's request came on. tests/replayer/peers has the same for each stage alone.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

import pytest

from rpcinspect.replayer.peers.connection import FrameConnection
from rpcinspect.replayer.peers.loop import DEFAULT_PEER_LIMITS, PeerLimits, RequestArrived, limits_for
from rpcinspect.replayer.peers.loopback import parse_address
from rpcinspect.rpc.command import PythonCall, PythonResp
from rpcinspect.rpc.command_codec import to_payload
from rpcinspect.rpc.message import NO_TENSORS, MessageType, RpcMessage
from tests.fuzz.bounds import bounded
from tests.replayer.hostile import descriptor, message
from tests.replayer.scripted import Played, Scripted, captured_answer, message_of, play
from tests.replayer.talks import NONE, Workers, udf

CALL, RET = int(MessageType.PYTHON_CALL), int(MessageType.PYTHON_RET)
LIMITS = PeerLimits(timeout_s=0.5, bytes_per_s=1 << 20, connections=32)
SECONDS = 10.0
"""A session of three calls against a worker that behaves takes a tenth of a second."""

pytestmark = pytest.mark.usefixtures("nothing_left")


def three_calls() -> Workers:
    """w0, which is played, calls app.f, app.g and app.h of w1."""
    workers = Workers(2)
    for n in range(3):
        workers.call(0, 1, 100 * n, 100 * n + 50, f"app.{'fgh'[n]}", PythonResp(NONE))
    return workers


def connection_of(worker: Scripted, request: RequestArrived) -> FrameConnection:
    """On which the request came, and its answer is to go."""
    found = worker.peer._pipes[request.pipe]._descriptor
    assert found is not None
    return found


def raw(worker: Scripted, request: RequestArrived, data: bytes) -> None:
    """Bytes instead of an answer."""
    connection = connection_of(worker, request)
    connection._queue(data)
    connection._write()
    if not connection.closed:
        connection._watch()


def against(misbehaves: Callable[[Scripted, RequestArrived], None], **more: object) -> Played:
    """The first request meets this, the others an answer as captured."""
    workers = three_calls()
    first: list[RequestArrived] = []

    def does(worker: Scripted, request: RequestArrived) -> None:
        if not first:
            first.append(request)
            misbehaves(worker, request)
            return
        answer = captured_answer(workers, request)
        assert answer is not None
        worker.peer.answer(request, answer)

    options: dict[str, object] = {"timeout_s": 0.5, "limits": LIMITS, **more}
    began = time.monotonic()
    with bounded(SECONDS, 150):
        played = play(workers, does, **options)  # type: ignore[arg-type]
    assert time.monotonic() - began < 3 * SECONDS
    return played


def told(played: Played) -> str:
    """What the report says of the first call."""
    first = min(played.steps)
    assert played.steps[first].result in ("failed", "unanswered"), played.results()
    return played.steps[first].text or ""


def answer(number: int, kind: int = RET) -> bytes:
    return message(kind, number, to_payload(PythonResp(NONE)))


UNTRUE: dict[str, tuple[Callable[[RequestArrived], bytes], str]] = {
    "half a frame": (lambda r: answer(r.message.id)[:-9], "is not complete after"),
    "half a length": (lambda r: b"\x10\0\0", "is not complete after"),
    "another id": (lambda r: answer(r.message.id + 7), "awaits none"),
    "a negative id": (lambda r: answer(-1), "awaits none"),
    "a request": (lambda r: answer(r.message.id, CALL), "where only answers may come"),
    "no type": (lambda r: answer(r.message.id, 0x3C), "where only answers may come"),
    "a frame of 2^60": (lambda r: (1 << 60).to_bytes(8, "little"), "came where at most"),
    "a payload of 2^40": (lambda r: descriptor([4, 8, 1 << 40, 4]), "is over the limit"),
    "a tensor of 2^62": (lambda r: descriptor([4, 8, 1, 1], [1 << 62]), "over the limit"),
    "junk": (lambda r: b"\x40\0\0\0\0\0\0\0" + b"\xff" * 64, "a descriptor that can't be read"),
    "endless answers": (lambda r: answer(r.message.id + 1) * 20_000, "awaits none"),
}


@pytest.mark.parametrize("name", UNTRUE)
def test_what_is_no_answer_ends_the_pipe_and_is_told(name: str) -> None:
    """The calls behind it are made over a new pipe, and answered."""
    makes, reason = UNTRUE[name]
    played = against(lambda worker, request: raw(worker, request, makes(request)), timeout_s=5.0)
    assert reason in told(played)
    assert played.results()[1:] == ["identical"] * 2 or set(played.results()) <= {"failed", "unanswered"}


def test_two_answers() -> None:
    """The first one counts; the second costs the pipe, which is opened again."""

    def twice(worker: Scripted, request: RequestArrived) -> None:
        raw(worker, request, answer(request.message.id) * 2)

    results = against(twice).results()
    assert results[0] == "identical"
    assert set(results) <= {"identical", "failed"}


def test_no_answer_ever() -> None:
    played = against(lambda worker, request: None)
    assert played.results() == ["unanswered", "identical", "identical"]
    assert played.wall_s < SECONDS


def test_a_slow_drip() -> None:
    """A byte now and then is no progress that is waited for without an end."""

    def drip(worker: Scripted, request: RequestArrived) -> None:
        data = answer(request.message.id)
        sent = [0]

        def more(now: float) -> None:
            connection = connection_of(worker, request) if request.pipe in worker.peer._pipes else None
            if connection is None or connection.closed or sent[0] >= len(data) - 20:
                return
            raw(worker, request, data[sent[0] : sent[0] + 1])
            sent[0] += 1

        worker.peer.loop.add_timer(more)

    played = against(drip, timeout_s=20.0)
    assert "is not complete after" in told(played)
    assert played.wall_s < SECONDS


def test_gigabytes() -> None:
    """What is far larger than all that was captured is refused when it is announced."""
    limits = limits_for(1000)
    assert limits.tensor_bytes == limits.payload_bytes == 1 << 28
    assert limits_for(1 << 30).payload_bytes == DEFAULT_PEER_LIMITS.payload_bytes
    huge = descriptor([4, 8, 1, len(NO_TENSORS)], [(1 << 28) + 1])
    played = against(lambda worker, request: raw(worker, request, huge), limits=limits)
    assert "tensors of 268,435,457 bytes are over the limit" in told(played)


def test_a_flood_of_requests() -> None:
    """2,000 requests of 100 KB that nobody captured: each is told, none is kept."""
    payload = to_payload(PythonCall(udf("app.k") + bytes(100_000), False))

    def floods(worker: Scripted, request: RequestArrived) -> None:
        for _ in range(2_000):
            worker.peer.send("w0", RpcMessage(CALL, 0, payload, NO_TENSORS))
        worker.peer.answer(request, message_of(PythonResp(NONE)))

    workers = three_calls()
    played = against(floods, limits=PeerLimits(timeout_s=5.0), timeout_s=5.0)
    assert len(workers.calls()) == 3
    assert set(played.results()) <= {"identical", "unanswered", "failed"}


def test_a_flood_of_connections() -> None:
    """To a played worker's listener; more than it takes are closed at once, and the session goes on."""
    socks: list[socket.socket] = []

    def floods(worker: Scripted, request: RequestArrived) -> None:
        address = parse_address(worker.peer.addresses["w0"])
        for _ in range(200):
            sock = socket.socket()
            sock.setblocking(False)
            sock.connect_ex((address.host, address.port))
            socks.append(sock)
        worker.peer.answer(request, message_of(PythonResp(NONE)))

    try:
        assert (
            against(floods, limits=PeerLimits(timeout_s=2.0, connections=32)).results() == ["identical"] * 3
        )
    finally:
        for sock in socks:
            sock.close()

"""Frames on one non-blocking connection: chopped anyhow, too long, trickling, never read."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpcinspect.replayer.peers.connection import FrameConnection
from rpcinspect.replayer.peers.loop import Loop, PeerLimits
from rpcinspect.replayer.peers.membership import PREFIX
from rpcinspect.replayer.peers.peer import Peer
from rpcinspect.replayer.peers.store_client import StoreClient
from rpcinspect.replayer.workers.live_group import LiveGroup
from rpcinspect.tensorpipe.control import frame
from tests.replayer.live_calls import device_infos_call, run
from tests.thorough import examples

QUICK = PeerLimits(timeout_s=0.2)


@dataclass
class End:
    """A connection of ours, the raw socket at its other end, and what came of it."""

    loop: Loop
    connection: FrameConnection
    other: socket.socket
    frames: list[bytes] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    def settle(self, seconds: float = 0.0) -> None:
        """Lets the loop do what there is to do."""
        end = time.monotonic() + seconds
        self.loop.wait(0.001)
        while time.monotonic() < end and not self.lost:
            self.loop.wait(0.01)


def make_end(loop: Loop) -> End:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        other = socket.create_connection(listener.getsockname(), 5)
        ours, _ = listener.accept()
    frames: list[bytes] = []
    lost: list[str] = []
    return End(loop, FrameConnection(loop, ours, frames.append, lost.append), other, frames, lost)


@pytest.fixture
def end() -> Iterator[End]:
    with Loop(QUICK) as loop:
        made = make_end(loop)
        with made.other:
            yield made


def test_the_first_frames_go_out_with_the_opening() -> None:
    """Before the loop does anything: whoever is killed now has said its hello."""
    with Loop(QUICK) as loop, socket.create_server(("127.0.0.1", 0)) as listener:
        frames: list[bytes] = []
        lost: list[str] = []
        connection = FrameConnection(loop, socket.socket(), frames.append, lost.append, connecting=True)
        connection.open(*listener.getsockname(), b"hello", b"offer")
        other, _ = listener.accept()
        with other:
            assert other.recv(100) == frame(b"hello") + frame(b"offer")
            assert (connection.opened, connection.queued_bytes) == (True, 0)
            connection.allow(5)
            other.sendall(frame(b"reply"))
            loop.wait(0.2)
        assert (frames, lost) == ([b"reply"], [])


@pytest.mark.parametrize("host", ["127.0.0.1", "255.255.255.255"])
def test_who_can_not_be_reached_is_told_by_the_loop(host: str) -> None:
    """Nobody listens; such an address can't even be tried."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    with Loop(QUICK) as loop:
        lost: list[str] = []
        connection = FrameConnection(loop, socket.socket(), lambda _: None, lost.append, connecting=True)
        connection.open(host, port, b"hello")
        assert lost == []
        loop.wait(0.2)
        assert connection.closed
        (reason,) = lost
        assert reason.startswith("could not be opened: ")


@given(
    bodies=st.lists(st.binary(max_size=40), max_size=6),
    cuts=st.lists(st.integers(1, 30), min_size=1, max_size=8),
)
@settings(max_examples=examples(60), deadline=None)
def test_frames_arrive_however_they_are_chopped(bodies: list[bytes], cuts: list[int]) -> None:
    data = b"".join([frame(body) for body in bodies])
    with Loop(QUICK) as loop:
        end = make_end(loop)
        with end.other:
            end.connection.allow(40)
            turn = 0
            while data:
                size = cuts[turn % len(cuts)]
                turn += 1
                end.other.sendall(data[:size])
                data = data[size:]
                end.settle()
            for _ in range(100):
                if len(end.frames) == len(bodies):
                    break
                loop.wait(0.01)
            assert end.frames == bodies
            assert not end.lost


def test_nothing_is_read_until_it_is_allowed(end: End) -> None:
    end.other.sendall(frame(b"one") + frame(b"two"))
    end.settle(0.05)
    assert end.frames == []
    end.connection.on_frame = lambda body: (end.frames.append(body), end.connection.allow(None))  # type: ignore[func-returns-value]
    end.connection.allow(3)
    end.settle(0.05)
    assert end.frames == [b"one"]
    end.connection.allow(3, exact=True)
    assert end.frames == [b"one", b"two"]


@pytest.mark.parametrize(
    ("allowed", "exact", "sent", "reason"),
    [
        (4, False, 5, "a frame of 5 bytes came where at most 4 must be"),
        (4, True, 3, "a frame of 3 bytes came where one of 4 must be"),
        (1 << 31, False, 1 << 62, "a frame of 4,611,686,018,427,387,904 bytes came"),
    ],
)
def test_a_wrong_length_is_seen_before_the_body(
    end: End, allowed: int, exact: bool, sent: int, reason: str
) -> None:
    end.connection.allow(allowed, exact=exact)
    end.other.sendall(sent.to_bytes(8, "little"))
    end.settle(0.1)
    assert len(end.lost) == 1
    assert reason in end.lost[0]
    assert end.connection.closed


def test_a_frame_that_trickles_in_is_given_up(end: End) -> None:
    end.connection.allow(1 << 30)
    end.other.sendall((1 << 30).to_bytes(8, "little"))
    start = time.monotonic()
    while not end.lost and time.monotonic() - start < 3:
        end.other.sendall(b"x")
        end.loop.wait(0.02)
    assert end.lost[0].startswith("a frame is not complete after")
    assert time.monotonic() - start < 1


@pytest.mark.parametrize("sent", [b"", b"\x03", frame(b"abc")[:-1]])
def test_an_end_inside_a_frame(end: End, sent: bytes) -> None:
    end.connection.allow(10)
    end.other.sendall(sent)
    end.other.close()
    end.settle(0.1)
    where = f" inside a frame ({len(sent)} bytes of it came)" if sent else ""
    assert end.lost == [f"closed by the other side{where}"]


def test_frames_before_the_end_are_handed_on(end: End) -> None:
    end.connection.allow(10)
    end.other.sendall(frame(b"abc") + frame(b""))
    end.other.close()
    end.settle(0.1)
    assert end.frames == [b"abc", b""]
    assert end.lost == ["closed by the other side"]


def test_who_does_not_read_is_given_up(end: End) -> None:
    end.connection.allow(10)
    start = time.monotonic()
    end.connection.send(bytes(1 << 26))
    assert end.connection.queued_bytes > 0
    end.settle(3)
    assert end.lost == ["the other side has read nothing for 0.2 s"]
    assert time.monotonic() - start < 1.5
    end.connection.send(b"harmless")


def test_much_is_written_while_the_other_side_reads(end: End) -> None:
    bodies = [bytes([i]) * size for i, size in enumerate((0, 1, 1 << 16, (1 << 16) + 1, 1 << 22))]
    end.connection.send(*bodies)
    wanted = b"".join([frame(body) for body in bodies])
    end.other.settimeout(0.01)
    found = bytearray()
    while len(found) < len(wanted):
        end.loop.wait(0.0)
        try:
            found += end.other.recv(1 << 20)
        except TimeoutError:
            continue
    assert found == wanted
    assert end.connection.queued_bytes == 0


@pytest.mark.parametrize("wait_s", [None, 0.0, 0.001])
def test_a_pipe_that_is_closed_at_once_leaves_the_listener_alive(
    wait_s: float | None, group: LiveGroup
) -> None:
    """TensorPipe's listener never listens again after a connection that ended without a hello."""
    group.start("worker1", 1)
    with StoreClient("127.0.0.1", group.port, prefix=PREFIX) as store:
        address = store.get("addrs/worker1").decode()
    for _ in range(20):
        with Loop() as loop:
            peer = Peer(loop, "hasty", 7)
            peer.addresses["worker1"] = address
            peer.send("worker1", device_infos_call())
            if wait_s is not None:
                loop.wait(wait_s)
    assert run(group, "worker1", "builtins", "len", "four") == 4

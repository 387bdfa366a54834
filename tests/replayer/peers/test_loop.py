"""The loop: events in order, finite waits, everything closed at the end."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from msgspec.structs import fields

from rpcinspect.errors import ReplayError
from rpcinspect.replayer.peers import loop
from rpcinspect.replayer.peers.control_calls import GetDeviceInfos, control_answer
from rpcinspect.replayer.peers.loop import (
    DEFAULT_PEER_LIMITS,
    Loop,
    PeerEvent,
    PeerLimits,
    PipeLost,
    RequestArrived,
    Unanswered,
)
from rpcinspect.replayer.peers.peer import Peer
from tests.replayer.live_calls import device_infos_call


def test_every_bound_is_finite_and_used() -> None:
    folder = Path(loop.__file__).parents[1]
    sources = "".join(
        [path.read_text(encoding="utf-8") for path in folder.rglob("*.py") if path.name != "loop.py"]
    )
    for bound in fields(PeerLimits):
        assert 0 < getattr(DEFAULT_PEER_LIMITS, bound.name) < 1 << 40
        assert f"limits.{bound.name}" in sources, f"nothing looks at {bound.name}"


def test_events_can_be_compared() -> None:
    one, two = (
        PipeLost(peer="a", other="b", pipe=1, inbound=False, reason="r", unanswered=(0,)) for _ in range(2)
    )
    assert one == two
    assert len({one, two}) == 1


def event(number: int) -> Unanswered:
    return Unanswered(peer="p", to="q", message_id=number, timeout_s=1.0)


def test_events_come_in_order_and_once() -> None:
    with Loop() as loop:
        for number in range(3):
            loop.post(event(number))
        assert loop.wait(1.0) == [event(0), event(1), event(2)]
        start = time.monotonic()
        assert loop.wait(0.1) == []
        assert 0.08 < time.monotonic() - start < 1.0


def test_waiting_for_one_event_keeps_the_others() -> None:
    with Loop() as loop:
        for number in range(5):
            loop.post(event(number))
        assert loop.wait_until(lambda e: e == event(2), 1.0) == event(2)
        assert loop.wait_until(lambda e: e == event(9), 0.05) is None
        loop.post(event(5))
        assert loop.wait(0.0) == [event(0), event(1), event(3), event(4), event(5)]


def test_an_error_while_waiting_loses_nothing() -> None:
    def fail(_: PeerEvent) -> bool:
        raise KeyboardInterrupt

    with Loop() as loop:
        loop.post(event(0))
        loop.post(event(1))
        with pytest.raises(KeyboardInterrupt):
            loop.wait_until(fail, 1.0)
        assert loop.wait(0.0) == [event(0), event(1)]


def test_timers_run_while_nothing_happens() -> None:
    seen: list[float] = []
    with Loop() as loop:
        loop.add_timer(seen.append)
        loop.wait(0.2)
        assert len(seen) >= 2
        loop.remove_timer(seen.append)
        loop.remove_timer(seen.append)


def test_closing_closes_every_socket() -> None:
    before = len(os.listdir("/proc/self/fd"))
    loop = Loop()
    one, two = Peer(loop, "one", 1), Peer(loop, "two", 2)
    one.addresses["two"] = two.address
    one.send("two", device_infos_call())
    assert isinstance(loop.wait(5)[0], RequestArrived)
    loop.close()
    loop.close()
    assert len(os.listdir("/proc/self/fd")) == before
    with pytest.raises(ReplayError, match="the loop is closed"):
        loop.wait(0.0)
    with pytest.raises(ReplayError, match="the loop is closed"):
        Peer(loop, "three", 3)


class Written:
    """A tap that keeps what it sees."""

    def __init__(self) -> None:
        self.ends: list[tuple[str, bool]] = []
        self.sent = bytearray()
        self.received = bytearray()

    def opened(self, local: tuple[str, int], remote: tuple[str, int], accepted: bool) -> None:
        self.ends.append(("opened", accepted))

    def data(self, local: tuple[str, int], remote: tuple[str, int], sent: bool, data: bytes) -> None:
        if sent:
            self.sent += data
        else:
            self.received += data

    def closed(self, local: tuple[str, int], remote: tuple[str, int]) -> None:
        self.ends.append(("closed", False))


def test_a_tap_sees_every_byte_of_both_directions() -> None:
    tap = Written()
    with Loop(tap=tap) as loop:
        one, two = Peer(loop, "one", 1), Peer(loop, "two", 2)
        one.addresses["two"] = two.address
        one.send("two", device_infos_call())
        (request,) = loop.wait(5)
        assert isinstance(request, RequestArrived)
        two.answer(request, control_answer(GetDeviceInfos()))
        loop.wait(5)
    assert len(tap.sent) == len(tap.received)
    assert device_infos_call().payload in tap.sent
    assert tap.ends.count(("opened", True)) == tap.ends.count(("opened", False)) == 3
    assert tap.ends.count(("closed", False)) == 6

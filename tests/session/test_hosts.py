"""Hosts whose messages to each other were not captured."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rpcinspect.pipeline import Decoding
from rpcinspect.session.hosts import clocks, host_of, unseen_hosts
from rpcinspect.session.model import Session
from rpcinspect.tcp.segment import Endpoint, Flow
from tests.places import recorded


@pytest.fixture(scope="module")
def session() -> Session:
    with Decoding([str(recorded("reports/replay/nested.pcap"))]) as decoding:
        list(decoding.records())
        return decoding.session


def of_hosts(session: Session, *pairs: tuple[str, str]) -> Session:
    """The session with one pipe for each pair of hosts."""
    pipes = [replace(session.pipes[0], flow=Flow(Endpoint(a, 1), Endpoint(b, 2))) for a, b in pairs]
    workers = tuple(replace(one, addresses=()) for one in session.workers)
    return replace(session, pipes=tuple(pipes), workers=workers)


def test_one_host_of_three(session: Session) -> None:
    assert unseen_hosts(of_hosts(session, ("a", "b"), ("c", "a"), ("a", "a"))) == ("a", ["b", "c"])


@pytest.mark.parametrize(
    "pairs", [[("a", "b")], [("a", "b"), ("b", "c"), ("c", "a")], [("a", "a")], [("a", "b"), ("c", "d")], []]
)
def test_nothing_is_known_to_be_missing(session: Session, pairs: list[tuple[str, str]]) -> None:
    assert unseen_hosts(of_hosts(session, *pairs)) == (None, [])


def test_addresses() -> None:
    assert host_of("uv://10.0.0.1:4711") == "10.0.0.1"
    assert host_of("[::1]:80") == "::1"


def test_a_worker_of_ipv6_is_of_the_host_of_its_pipes(session: Session) -> None:
    seen = of_hosts(session, ("::1", "::2"), ("::1", "::1"))
    worker = replace(session.workers[0], addresses=("[::1]:5", "[::2]:5"))
    assert unseen_hosts(replace(seen, workers=(worker,))) == (None, [])


def test_logs_have_the_clocks_of_their_callers_hosts(session: Session) -> None:
    assert set(clocks(session).values()) == {("capture", 0)}
    logs = [str(recorded(f"reports/job/two_{one}.rpclog")) for one in "ab"]
    with Decoding(logs) as decoding:
        list(decoding.records())
        assert set(clocks(decoding.session).values()) == {("host", "10.77.0.1"), ("host", "10.77.0.2")}

"""Connections that nobody took: by a recorded job, and made segments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rpcinspect.pipeline import Decoding
from rpcinspect.sources.packets import PacketSource
from rpcinspect.tcp.refusals import PATIENCE_NS, Refusal, hosts_that_talk, reached, refusals
from rpcinspect.tcp.stream import Connection
from tests.builders import ACK, RST, SYN, Captured, packet, pcap_file
from tests.places import recorded

A, B, C = "10.0.0.1", "10.0.0.2", "10.0.0.3"
SECOND = 1_000_000_000


def syn(port: int, host: str = A) -> bytes:
    return packet(b"", f"{host}:{port}", f"{B}:80", sequence=7, flags=SYN)


def reply(port: int, flags: int, host: str = A) -> bytes:
    return packet(b"", f"{B}:80", f"{host}:{port}", sequence=90, acknowledgment=8, flags=flags)


def connections(folder: Path, packets: Sequence[tuple[float, bytes]]) -> list[Connection]:
    path = folder / "made.pcap"
    path.write_bytes(pcap_file([Captured(data, int(at * SECOND)) for at, data in packets]))
    with Decoding([str(path)]) as decoding:
        for _ in decoding.records():
            pass
        front = decoding._source
        assert isinstance(front, PacketSource)
        return front._tcp.connections


def test_a_store_that_is_not_there(tmp_path: Path) -> None:
    found = connections(
        tmp_path,
        [(1, syn(1000)), (1, reply(1000, RST | ACK)), (2.5, syn(1001)), (2.5, reply(1001, RST | ACK))],
    )
    assert refusals(found) == (
        Refusal(host=A, server=f"{B}:80", count=2, first_ns=SECOND, last_ns=SECOND * 5 // 2, silent=False),
    )
    assert reached(found, [f"{B}:80"]) == frozenset()


def test_who_comes_through_later_was_not_refused(tmp_path: Path) -> None:
    first = [(1.0, syn(1000)), (1.0, reply(1000, RST | ACK))]
    taken = [(2.0, syn(1001)), (2.0, reply(1001, SYN | ACK))]
    again = [(3.0, syn(1002)), (3.0, reply(1002, RST | ACK))]
    found = connections(tmp_path, [*first, *taken])
    assert refusals(found) == ()
    assert reached(found, [f"{B}:80", f"{C}:80"]) == {f"{B}:80"}
    (late,) = refusals(connections(tmp_path, [*first, *taken, *again]))
    assert (late.count, late.first_ns) == (1, 3 * SECOND)
    other = [(2.0, syn(1001, C)), (2.0, reply(1001, SYN | ACK, C))]
    (alone,) = refusals(connections(tmp_path, [*first, *other]))
    assert alone.host == A


def test_who_gets_no_answer_asks_again(tmp_path: Path) -> None:
    (silent,) = refusals(connections(tmp_path, [(1, syn(1000)), (1 + PATIENCE_NS / SECOND, syn(1000))]))
    assert (silent.silent, silent.count) == (True, 1)
    assert refusals(connections(tmp_path, [(1, syn(1000))])) == ()


def test_a_connection_that_was_there_before_is_not_refused(tmp_path: Path) -> None:
    data = packet(b"x" * 20, f"{A}:1000", f"{B}:80", sequence=8, acknowledgment=91)
    found = connections(tmp_path, [(1, data), (1, reply(1000, RST))])
    assert refusals(found) == ()
    found = connections(tmp_path, [(1, syn(1000)), (1, reply(1000, SYN | ACK)), (1, reply(1000, RST))])
    assert refusals(found) == ()


def test_hosts_that_talk(tmp_path: Path) -> None:
    found = connections(tmp_path, [(1, syn(1000)), (1, reply(1000, SYN | ACK)), (1, syn(1000, C))])
    assert hosts_that_talk(found) == {(A, B), (B, A)}


def test_the_sixteen_of_two_restarts() -> None:
    with Decoding([str(recorded("reports/findings/elastic.pcap"))]) as decoding:
        for _ in decoding.records():
            pass
        found = decoding.wire_facts.refusals
        begin_ns = decoding.session.captures[0].first_time_ns or 0
    assert sum(one.count for one in found) == 16
    assert sorted({round((one.first_ns - begin_ns) / SECOND, 1) for one in found}) == [10.0, 15.7]

"""What either side of a connection says: places, gaps, and ends that nobody else has."""

from __future__ import annotations

from rpcinspect.export.pcap.flows import CLIENT, HIGHEST_PORT, SERVER, Ports, Talk
from rpcinspect.tcp.ranges import Extent
from rpcinspect.tcp.segment import Endpoint

A, B = Endpoint("10.0.0.1", 1000), Endpoint("10.0.0.2", 5000)


def test_places_count_what_was_said_and_what_is_missing() -> None:
    talk = Talk(A, B, 5)
    talk.greet(CLIENT, b"hello")
    talk.say(7, 0, CLIENT, b"abc")
    talk.skip(CLIENT, 10)
    talk.say(9, 1, CLIENT, Extent(4, ((0, 2, 4),)))
    talk.say(8, 1, SERVER, b"x")
    talk.say(8, 1, SERVER, b"")
    assert [(p.time_ns, p.side, p.at) for p in talk.pieces] == [(5, 0, 0), (7, 0, 5), (9, 0, 18), (8, 1, 0)]
    assert talk.lengths == [22, 1]
    assert talk.last_ns() == 9


def test_an_empty_talk_ends_where_it_begins() -> None:
    assert Talk(A, B, 5).last_ns() == 5


def test_made_up_ends_are_nobody_elses() -> None:
    taken = {Endpoint("h", HIGHEST_PORT), Endpoint("h", HIGHEST_PORT - 2)}
    ports = Ports(taken)
    assert [ports.take("h").port - HIGHEST_PORT for _ in range(3)] == [-1, -3, -4]
    assert ports.take("other") == Endpoint("other", HIGHEST_PORT)
    many = [ports.take("h") for _ in range(70_000)]
    assert taken.isdisjoint(many)
    assert min(end.port for end in many) >= 1024

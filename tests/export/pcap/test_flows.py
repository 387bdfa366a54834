"""What either side of a connection says: places, gaps, and ends that nobody else has."""

from __future__ import annotations

from rpcinspect.export.pcap.flows import (
    CLIENT,
    HIGHEST_PORT,
    SERVER,
    ExtentPart,
    Ports,
    Talk,
    captured_ranges,
    read_part,
)
from rpcinspect.tcp.ranges import Extent
from rpcinspect.tcp.segment import Endpoint

A, B = Endpoint("10.0.0.1", 1000), Endpoint("10.0.0.2", 5000)


def test_places_count_what_was_said_and_what_is_missing() -> None:
    talk = Talk(A, B, 5)
    talk.greet(CLIENT, b"hello")
    talk.say(7, 0, CLIENT, b"abc")
    talk.skip(CLIENT, 10)
    talk.say(9, 1, CLIENT, ExtentPart(Extent(6, ((0, 0, 6),)), 2, 6))
    talk.say(8, 1, SERVER, b"x")
    talk.say(8, 1, SERVER, b"")
    assert [(p.time_ns, p.side, p.at) for p in talk.pieces] == [(5, 0, 0), (7, 0, 5), (9, 0, 18), (8, 1, 0)]
    assert talk.lengths == [22, 1]
    assert talk.last_ns() == 9


def test_an_empty_talk_ends_where_it_begins() -> None:
    assert Talk(A, B, 5).last_ns() == 5


def test_what_was_not_captured_is_left_out() -> None:
    extent = Extent(10, ((0, 100, 3), (0, 200, 2)), ((3, 6), (8, 10)))
    assert list(captured_ranges(extent)) == [(0, 3), (6, 8)]
    read: list[Extent] = []

    def reader(wanted: Extent) -> bytes:
        read.append(wanted)
        return b"abc\0\0\0de\0\0"

    assert list(read_part(ExtentPart(extent, 0, 10), reader)) == [(0, b"abc"), (6, b"de")]
    assert list(read_part(ExtentPart(extent, 2, 7), reader)) == [(0, b"c"), (4, b"d")]
    assert read == [extent, extent]  # once for each part
    assert list(read_part(ExtentPart(extent, 3, 6), reader)) == []
    assert len(read) == 2


def test_made_up_ends_are_nobody_elses() -> None:
    taken = {Endpoint("h", HIGHEST_PORT), Endpoint("h", HIGHEST_PORT - 2)}
    ports = Ports(taken)
    assert [ports.take("h").port - HIGHEST_PORT for _ in range(3)] == [-1, -3, -4]
    assert ports.take("other") == Endpoint("other", HIGHEST_PORT)
    many = [ports.take("h") for _ in range(70_000)]
    assert taken.isdisjoint(many)
    assert min(end.port for end in many) >= 1024

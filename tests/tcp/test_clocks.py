"""Clocks of two hosts: one capture of the link between them, made into what sniffers on both would have.

No two machines with clocks of their own made these: the offset and the way are put in by the test.
"""

from __future__ import annotations

import random
import struct
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpcinspect.pipeline import Decoding
from rpcinspect.session.hosts import clocks, sniffers_of
from rpcinspect.session.model import Session
from tests.places import content, recorded
from tests.thorough import examples
from tests.truth import CAPTURES

HOSTS = "torch/hosts4.pcap"
"""Workers on 10.9.0.1 and 10.9.0.2, seen on the link between them."""
FIRST = bytes([10, 9, 0, 1])
SOURCE = slice(26, 30)
"""Of the IPv4 source address in an Ethernet frame."""


def seen_at(
    data: bytes, first_host: bool, way_ns: int, clock_ns: int, jitter: random.Random, *, skip: int = 0
) -> bytes:
    """The capture as a sniffer on one of the hosts has it: earlier what it sent, later what it received."""
    out, at, number = [data[:24]], 24, 0
    while at < len(data):
        seconds, micros, captured, length = struct.unpack_from("<IIII", data, at)
        frame = data[at + 16 : at + 16 + captured]
        own = (frame[SOURCE] == FIRST) == first_host
        way = way_ns + jitter.randrange(way_ns // 4 + 1)
        time_ns = seconds * 10**9 + micros * 1000 + (-way if own else way) + clock_ns
        if number >= skip:
            out.append(struct.pack("<IIII", *divmod(time_ns // 1000, 10**6), captured, length) + frame)
        at += 16 + captured
        number += 1
    return b"".join(out)


def session_of(*paths: Path) -> Session:
    with Decoding([str(path) for path in paths]) as decoding:
        for _ in decoding.records():
            pass
        return decoding.session


def both(folder: Path, *, way_ns: int, clock_ns: int, seed: int = 0, skip: int = 0) -> tuple[Path, Path]:
    data, jitter = content(HOSTS), random.Random(seed)
    paths = folder / "first.pcap", folder / "second.pcap"
    paths[0].write_bytes(seen_at(data, True, way_ns, 0, jitter))
    paths[1].write_bytes(seen_at(data, False, way_ns, clock_ns, jitter, skip=skip))
    return paths


@settings(max_examples=examples(12), deadline=None)
@given(
    clock_ns=st.integers(-(10**10), 10**10),
    way_ns=st.integers(5_000, 2_000_000),
    seed=st.integers(0, 100),
    turned=st.booleans(),
)
def test_the_offset_lies_within_what_is_told(
    tmp_path_factory: pytest.TempPathFactory, clock_ns: int, way_ns: int, seed: int, turned: bool
) -> None:
    paths = both(tmp_path_factory.mktemp("clocks"), way_ns=way_ns, clock_ns=clock_ns, seed=seed)
    session = session_of(*(reversed(paths) if turned else paths))
    assert session.captures[0].clock is None
    clock = session.captures[1].clock
    assert clock is not None
    really = -clock_ns if turned else clock_ns
    assert abs(clock.offset_ns - really) <= clock.uncertainty_ns + 1000  # pcap counts microseconds
    assert clock.uncertainty_ns <= 2 * (way_ns + way_ns // 4) + 1000
    assert clock.connections > 3


def test_times_are_set_right_where_the_clocks_surely_differ(tmp_path: Path) -> None:
    plain = session_of(recorded(HOSTS))
    session = session_of(*both(tmp_path, way_ns=50_000, clock_ns=3 * 10**9))
    clock = session.captures[1].clock
    assert clock is not None
    assert clock.certain
    assert session.totals.by_type == plain.totals.by_type
    for capture in session.captures:
        assert capture.first_time_ns is not None
        assert abs(capture.first_time_ns - (plain.captures[0].first_time_ns or 0)) < 1_000_000
    order = [session.messages.id[row] for row in session.order]
    assert order == [plain.messages.id[row] for row in plain.order]


def test_a_host_whose_own_traffic_comes_later_in_time_is_put_in_order(tmp_path: Path) -> None:
    """The second capture alone has the end of the run: with its own clock, that end would come first."""
    data, jitter = content(HOSTS), random.Random(1)
    whole = seen_at(data, False, 50_000, -(10**9) * 3600, jitter)
    first, second = tmp_path / "first.pcap", tmp_path / "second.pcap"
    cut = len(data) * 3 // 4
    at = 24
    while at < cut:
        at += 16 + struct.unpack_from("<I", data, at + 8)[0]
    first.write_bytes(seen_at(data[:at], True, 50_000, 0, jitter))
    second.write_bytes(whole)
    session = session_of(first, second)
    plain = session_of(recorded(HOSTS))
    assert [session.messages.id[row] for row in session.order] == [
        plain.messages.id[row] for row in plain.order
    ]
    times = [session.messages.time_ns[row] for row in session.order]
    assert all(a <= b for a, b in pairwise(times))
    assert times[-1] - times[0] < 3600 * 10**9


def test_clocks_that_may_be_the_same_are_left_alone(tmp_path: Path) -> None:
    session = session_of(*both(tmp_path, way_ns=400_000, clock_ns=100_000))
    clock = session.captures[1].clock
    assert clock is not None
    assert not clock.certain
    assert clock.shift_ns == 0


def test_a_capture_that_starts_late_is_enough(tmp_path: Path) -> None:
    session = session_of(*both(tmp_path, way_ns=50_000, clock_ns=-(10**8), skip=300))
    clock = session.captures[1].clock
    assert clock is not None
    assert abs(clock.offset_ns + 10**8) <= clock.uncertainty_ns + 1000


def test_one_file_given_twice_has_one_clock(tmp_path: Path) -> None:
    copy = tmp_path / "copy.pcap"
    copy.write_bytes(content(HOSTS))
    clock = session_of(recorded(HOSTS), copy).captures[1].clock
    assert clock is not None
    assert (clock.offset_ns, clock.uncertainty_ns, clock.certain) == (0, 0, False)


def test_a_third_capture_is_as_unsure_as_the_second_that_it_is_compared_with(tmp_path: Path) -> None:
    first, second = both(tmp_path, way_ns=400_000, clock_ns=3 * 10**9)
    third = tmp_path / "third.pcap"
    third.write_bytes(second.read_bytes())
    clocks = [capture.clock for capture in session_of(first, second, third).captures[1:]]
    assert clocks[0] is not None
    assert clocks[1] is not None
    assert clocks[1].uncertainty_ns >= clocks[0].uncertainty_ns > 100_000


def test_captures_of_different_hosts_say_nothing_of_their_clocks() -> None:
    assert session_of(recorded(HOSTS), CAPTURES / "basic_chain.pcap").captures[1].clock is None


def cut(folder: Path, *edges: int, without: frozenset[int] = frozenset()) -> list[Path]:
    """The capture as a sniffer has it that begins another file at some packets, and does not see others."""
    data = content(HOSTS)
    files, at, number = [[data[:24]]], 24, 0
    while at < len(data):
        end = at + 16 + int.from_bytes(data[at + 8 : at + 12], "little")
        if number in edges:
            files.append([data[:24]])
        if number not in without:
            files[-1].append(data[at:end])
        at, number = end, number + 1
    paths = [folder / f"{n}.pcap" for n in range(len(files))]
    for path, parts in zip(paths, files, strict=True):
        path.write_bytes(b"".join(parts))
    return paths


def test_files_of_one_sniffer_go_on_where_those_before_end(tmp_path: Path) -> None:
    session = session_of(*cut(tmp_path, 200, 300))
    assert [(one.vantage.goes_on, one.clock) for one in session.captures] == [
        (None, None),
        (0, None),
        (1, None),
    ]
    assert list(sniffers_of(session).values()) == [0, 0, 0]
    assert len(set(clocks(session).values())) == 1


def test_a_file_that_goes_on_has_the_clock_of_the_one_before(tmp_path: Path) -> None:
    first, second = both(tmp_path, way_ns=50_000, clock_ns=10**9)
    data, edge = second.read_bytes(), 24
    for _ in range(300):
        edge += 16 + int.from_bytes(data[edge + 8 : edge + 12], "little")
    second.write_bytes(data[:edge])
    third = tmp_path / "third.pcap"
    third.write_bytes(data[:24] + data[edge:])
    assert session_of(first, second, third).captures[2].clock is not None  # both have what the first has
    alone = session_of(recorded("basic_chain.pcap"), second, third)
    assert [one.vantage.goes_on for one in alone.captures] == [None, None, 1]
    assert list(sniffers_of(alone).values()) == [0, 1, 1]


def test_files_with_the_same_bytes_or_earlier_times_do_not_go_on(tmp_path: Path) -> None:
    first, second = cut(tmp_path, 250)
    assert session_of(second, first).captures[1].vantage.goes_on is None
    early = bytearray(second.read_bytes())
    for at, at_packet in packets(early):
        early[at : at + 4] = (at_packet - 3600).to_bytes(4, "little")
    second.write_bytes(early)
    assert session_of(first, second).captures[1].vantage.goes_on is None


def packets(data: bytes | bytearray) -> list[tuple[int, int]]:
    """Where each packet's header is, and its second."""
    found, at = [], 24
    while at < len(data):
        found.append((at, int.from_bytes(data[at : at + 4], "little")))
        at += 16 + int.from_bytes(data[at + 8 : at + 12], "little")
    return found


def test_a_host_that_is_at_an_end_of_all_connections_made_the_capture() -> None:
    paths = [recorded(f"reports/hosts/forget.host{host}.pcap") for host in (2, 0, 3, 1)]
    at = [one.vantage.hosts for one in session_of(*paths).captures]
    assert at == [{"10.77.0.3"}, {"10.77.0.1"}, {"10.77.0.4"}, {"10.77.0.2"}]


def test_one_connection_that_goes_on_is_enough(tmp_path: Path) -> None:
    """Rotated files may lack packets: what the sniffer dropped."""
    whole = session_of(*cut(tmp_path, 250))
    holes = session_of(*cut(tmp_path, 250, without=frozenset(range(248, 250))))
    assert whole.captures[1].vantage.goes_on == 0
    assert holes.captures[1].vantage.goes_on in (0, None)
    gone = session_of(*cut(tmp_path, 250, without=frozenset(range(100, 252))))
    assert gone.captures[1].clock is None


@pytest.mark.parametrize("order", [(0, 2, 1, 3), (2, 0, 3, 1)])
def test_a_file_may_go_on_from_either_of_two_hosts(tmp_path: Path, order: tuple[int, ...]) -> None:
    """Both begin their next file at the same packet, so that each goes on where the other's first ends."""
    files = []
    for host, path in enumerate(both(tmp_path, way_ns=50_000, clock_ns=0)):
        data = path.read_bytes()
        edge = [at for at, _ in packets(data)][250]
        for number, part in enumerate((data[:edge], data[:24] + data[edge:])):
            files.append(tmp_path / f"{host}.{number}.pcap")
            files[-1].write_bytes(part)
    goes_on = [one.vantage.goes_on for one in session_of(*(files[n] for n in order)).captures]
    assert goes_on[:3] == [None, None, None]

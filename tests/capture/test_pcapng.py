"""pcapng: sections, interfaces, clocks, the three packet blocks; cut and damaged."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rpcinspect.capture import CaptureReader, Reading
from rpcinspect.capture.pcapng import NO_LINK_TYPE
from rpcinspect.errors import CaptureError, UnknownFormatError
from tests.builders import (
    Captured,
    enhanced,
    interface,
    obsolete,
    pcapng_block,
    pcapng_file,
    section,
    simple,
)
from tests.thorough import examples

Row = tuple[int, bytes, int, int, int]
ReadAll = Callable[[bytes], tuple[list[Row], CaptureReader]]


NATIVE = Reading(reader="native")
"""Otherwise tshark, a process each time, is asked for what is no capture."""


@pytest.fixture
def read_all(tmp_path: Path) -> ReadAll:
    """Reads bytes as a file: (number, data, time, original length, link type) of each, and the reader."""

    def read(data: bytes) -> tuple[list[Row], CaptureReader]:
        path = tmp_path / "capture"
        path.write_bytes(data)
        rows = []
        with CaptureReader(str(path), reading=NATIVE) as reader:
            for block in reader.blocks():
                assert len(block) > 0
                for row in range(len(block)):
                    offset, caplen = int(block.offset[row]), int(block.caplen[row])
                    start = offset - block.window_offset
                    payload = reader.pread(offset, caplen)
                    assert block.window[start : start + caplen] == payload
                    time_ns, length = int(block.time_ns[row]), int(block.length[row])
                    rows.append(
                        (block.first_number + row, payload, time_ns, length, int(block.link_type[row]))
                    )
        return rows, reader

    return read


def test_literal_bytes(read_all: ReadAll) -> None:
    data = bytes.fromhex(
        "0a0d0d0a 1c000000 4d3c2b1a 0100 0000 ffffffffffffffff 1c000000"  # section header, little-endian, 1.0
        "01000000 14000000 7100 0000 00000000 14000000"  # interface 0: cooked (113), no snap length, µs
        "06000000 24000000 00000000"  # enhanced packet, 36 bytes, interface 0
        "01000000 02000000 03000000 09000000 abcdef00 24000000"  # time 2^32 + 2 µs, 3 of 9 bytes, padding
    )
    rows, reader = read_all(data)
    assert rows == [(1, b"\xab\xcd\xef", ((1 << 32) + 2) * 1000, 9, 113)]
    assert (reader.format, reader.packets, reader.bytes, reader.problems) == ("pcapng", 1, len(data), [])


@pytest.mark.parametrize("order", ["<", ">"])
def test_all_packet_blocks(order: str, read_all: ReadAll) -> None:
    data = (
        section(order)
        + interface(order, link_type=1, snap_length=4)
        + interface(order, link_type=101)
        + simple(order, b"s0")
        + enhanced(order, b"enhanced", ticks=7, interface_id=1, length=99)
        + simple(order, b"abcd", length=60)  # cut to the snap length of interface 0
        + obsolete(order, b"old", ticks=8, interface_id=1, drops=5)
        + pcapng_block(order, 5, bytes(12))  # interface statistics
        + pcapng_block(order, 0x12345, b"unknown")
        + enhanced(order, b"", ticks=9)
    )
    rows, reader = read_all(data)
    assert rows == [
        (1, b"s0", 0, 2, 1),
        (2, b"enhanced", 7000, 99, 101),
        (3, b"abcd", 7000, 60, 1),  # no time of its own
        (4, b"old", 8000, 3, 101),
        (5, b"", 9000, 0, 1),
    ]
    assert reader.problems == []


@pytest.mark.parametrize(
    ("resolution", "offset_s", "ticks", "time_ns"),
    [
        (None, None, 5, 5_000),
        (9, None, (1 << 60) + 1, (1 << 60) + 1),
        (3, None, 5, 5_000_000),
        (0, None, 5, 5_000_000_000),
        (12, None, 5_999, 5),
        (40, None, 5_999, 0),
        (0x80, None, 5, 5_000_000_000),  # 2^0
        (0x80 | 10, None, 1024 + 512, 1_500_000_000),
        (0x80 | 32, None, (1 << 32) * 1_700_000_000 + (1 << 30), 1_700_000_000_250_000_000),
        (0x80 | 60, None, 3 << 59, 1_500_000_000),
        (0xFF, None, 3 << 59, 187_500_000),  # finer than 2^-63 s is read as 2^-63 s
        (9, 1_700_000_000, 5, 1_700_000_000_000_000_005),
        (6, -2, 5_000_000, 3_000_000_000),
        (0, None, 1 << 63, (1 << 62) // 1_000_000_000 * 1_000_000_000),  # no room: the latest time there is
    ],
)
@pytest.mark.parametrize("order", ["<", ">"])
def test_clocks(
    order: str, resolution: int | None, offset_s: int | None, ticks: int, time_ns: int, read_all: ReadAll
) -> None:
    described = interface(order, resolution=resolution, offset_s=offset_s)
    rows, _ = read_all(
        section(order) + interface(order) + described + enhanced(order, b"x", ticks=ticks, interface_id=1)
    )
    assert rows == [(1, b"x", time_ns, 1, 1)]


def test_sections_have_their_own_order_and_interfaces(read_all: ReadAll) -> None:
    data = (
        section("<")
        + interface("<", link_type=1)
        + enhanced("<", b"one", ticks=1)
        + section(">")
        + interface(">", link_type=276, resolution=9)
        + enhanced(">", b"two", ticks=2)
        + section(">")
        + enhanced(">", b"three", ticks=3)
    )
    rows, reader = read_all(data)
    assert rows == [(1, b"one", 1000, 3, 1), (2, b"two", 2, 3, 276), (3, b"three", 3000, 5, NO_LINK_TYPE)]
    assert [(problem.location.packet, problem.layer) for problem in reader.problems] == [(3, "capture")]


def test_many_sections_in_one_window_take_linear_time(read_all: ReadAll) -> None:
    part = section("<") + interface("<") + enhanced("<", b"x", ticks=1)
    rows, _ = read_all(part * 3000)
    assert [row[0] for row in rows] == list(range(1, 3001))


def test_blocks_that_wireshark_shows_take_a_number(read_all: ReadAll) -> None:
    custom = pcapng_block("<", 0xBAD, struct.pack("<I", 32473) + b"data")
    journal = pcapng_block("<", 9, b"__REALTIME_TIMESTAMP=1\n")
    data = section("<") + custom + interface("<") + enhanced("<", b"a") + journal + enhanced("<", b"b")
    rows, reader = read_all(data)
    assert [(row[0], row[1]) for row in rows] == [(2, b"a"), (4, b"b")]
    assert reader.packets == 2


def test_captured_length_beyond_the_block(read_all: ReadAll) -> None:
    packet = bytearray(enhanced("<", b"abcd", ticks=1))
    packet[20] = 200
    rows, reader = read_all(section() + interface() + bytes(packet) + enhanced("<", b"next", ticks=2))
    assert [row[0] for row in rows] == [1, 2]
    assert rows[1][1] == b"next"
    assert [problem.location.packet for problem in reader.problems] == [1]


def test_length_that_is_not_padded(read_all: ReadAll) -> None:
    body = struct.pack("<IIIII", 0, 0, 1, 3, 3) + b"abc"
    size = len(body) + 12  # 35, but the next block starts at 36
    packet = struct.pack("<II", 6, size) + body + struct.pack("<I", size) + b"\0"
    rows, reader = read_all(section() + interface() + packet + enhanced("<", b"next", ticks=2))
    assert [row[1] for row in rows] == [b"abc", b"next"]
    assert reader.problems == []


@pytest.mark.parametrize("order", ["<", ">"])
def test_cut_at_every_length(order: str, read_all: ReadAll) -> None:
    head = section(order) + interface(order)
    first, second = enhanced(order, b"one", ticks=1), simple(order, b"second")
    whole = head + first + second
    edges = {len(section(order)), len(head), len(head + first)}
    for size in range(28, len(whole)):
        rows, reader = read_all(whole[:size])
        assert len(reader.problems) == (0 if size in edges else 1)
        there = size - len(head)
        if there >= 28:
            assert rows[0][:3] == (1, b"one"[: there - 28], 1000)
        there -= len(first)
        if there >= 12:
            assert rows[1][:4] == (2, b"second"[: there - 12], 1000, 6)


@pytest.mark.parametrize(
    ("data", "error", "text"),
    [
        (section()[:27], CaptureError, "27 of 28 bytes"),
        (section()[:8] + bytes(20), UnknownFormatError, "byte-order magic"),
        (section()[:12] + b"\2" + section()[13:], UnknownFormatError, "version 2"),
    ],
)
def test_not_a_capture(data: bytes, error: type[CaptureError], text: str, read_all: ReadAll) -> None:
    with pytest.raises(error, match=text):
        read_all(data)


@pytest.mark.parametrize(
    "damage",
    [
        struct.pack("<II", 6, 8) + bytes(40),  # shorter than a block can be
        struct.pack("<II", 6, 28) + bytes(40),  # shorter than an enhanced packet can be
        struct.pack("<II", 0x77, 1 << 31) + bytes(40),
        bytes(40),
        section()[:8] + bytes(40),
        section()[:12] + b"\2" + section()[13:],
    ],
)
def test_damage_ends_the_reading(damage: bytes, read_all: ReadAll) -> None:
    good = section() + interface() + enhanced("<", b"good", ticks=1)
    rows, reader = read_all(good + damage + enhanced("<", b"lost", ticks=2))
    assert [row[1] for row in rows] == [b"good"]
    assert [problem.layer for problem in reader.problems] == ["capture"]
    assert f"{len(good):,}" in reader.problems[0].reason


def test_packets_larger_than_a_window(read_all: ReadAll, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rpcinspect.capture.source.WINDOW", 64)
    packets = [Captured(bytes([size]) * size, size) for size in (3, 0, 20, 100, 1, 64, 48, 200, 5)]
    rows, reader = read_all(pcapng_file(packets))
    assert [row[1:3] for row in rows] == [(one.data, one.time_ns) for one in packets]
    assert [row[0] for row in rows] == list(range(1, 10))
    assert reader.problems == []


SMALL = (
    section()
    + interface(resolution=9)
    + enhanced("<", b"one")
    + simple("<", b"two")
    + section(">")
    + simple(">", b"3")
)


@settings(
    max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    changes=st.lists(st.tuples(st.integers(0, len(SMALL) - 1), st.integers(0, 255)), max_size=4),
    size=st.integers(0, len(SMALL)),
)
def test_damage_is_a_problem_or_a_capture_error(
    changes: list[tuple[int, int]], size: int, read_all: ReadAll
) -> None:
    data = bytearray(SMALL)
    for at, value in changes:
        data[at] = value
    try:
        rows, reader = read_all(bytes(data[:size]))
    except CaptureError:
        return
    assert sum(len(row[1]) for row in rows) <= size
    assert reader.packets == len(rows)

"""Classic pcap in all its variants, whole, cut and damaged."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rpcinspect.capture import CaptureReader, Reading, pcap
from rpcinspect.capture.pcap import pcap_header, pcap_record
from rpcinspect.errors import CaptureError, UnknownFormatError
from tests.builders import Captured, pcap_file
from tests.thorough import examples

PACKETS = [
    Captured(b"first", 1_700_000_000_123_456_789),
    Captured(b"", 0),
    Captured(b"cut by snap length", 4_000_000_000_000_001_000, 1500),
]

ReadAll = Callable[[bytes], tuple[list[tuple[bytes, int, int]], CaptureReader]]


NATIVE = Reading(reader="native")
"""Otherwise tshark, a process each time, is asked for what is no capture."""


@pytest.fixture
def read_all(tmp_path: Path) -> ReadAll:
    """Reads bytes as a file: (data, time, original length) of each packet, and the closed reader."""

    def read(data: bytes) -> tuple[list[tuple[bytes, int, int]], CaptureReader]:
        path = tmp_path / "capture"
        path.write_bytes(data)
        rows = []
        with CaptureReader(str(path), reading=NATIVE) as reader:
            for block in reader.blocks():
                for offset, caplen, length, time_ns in zip(
                    block.offset.tolist(),
                    block.caplen.tolist(),
                    block.length.tolist(),
                    block.time_ns.tolist(),
                    strict=True,
                ):
                    start = offset - block.window_offset
                    assert block.window[start : start + caplen] == reader.pread(offset, caplen)
                    rows.append((reader.pread(offset, caplen), time_ns, length))
        return rows, reader

    return read


def test_literal_bytes(read_all: ReadAll) -> None:
    data = bytes.fromhex(
        "d4c3b2a1 0200 0400 00000000 00000000"  # magic (microseconds, little), version 2.4, zone, accuracy
        "00000400 01000000"  # snap length 262,144, Ethernet
        "02000000 03000000 02000000 09000000 abcd"  # 2 s, 3 µs, 2 of 9 bytes
    )
    rows, reader = read_all(data)
    assert rows == [(b"\xab\xcd", 2_000_003_000, 9)]
    assert (reader.format, reader.packets, reader.bytes, reader.problems) == ("pcap", 1, len(data), [])
    assert (reader.first_time_ns, reader.last_time_ns) == (2_000_003_000, 2_000_003_000)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("nanoseconds", [True, False])
@pytest.mark.parametrize("modified", [True, False])
def test_variants(order: str, nanoseconds: bool, modified: bool, read_all: ReadAll) -> None:
    data = pcap_file(PACKETS, order=order, nanoseconds=nanoseconds, modified=modified)
    rows, reader = read_all(data)
    unit = 1 if nanoseconds and not modified else 1000
    assert rows == [(one.data, one.time_ns // unit * unit, one.original) for one in PACKETS]
    assert (reader.format, reader.packets, reader.bytes) == ("pcap", 3, len(data))
    assert reader.problems == []
    assert reader.first_time_ns == 0


def test_fcs_and_flag_bits_are_no_link_type(tmp_path: Path) -> None:
    path = tmp_path / "capture"
    path.write_bytes(pcap_file(PACKETS, network=0xF4000000 | 276))
    with CaptureReader(str(path)) as reader:
        (block,) = reader.blocks()
    assert block.link_type.tolist() == [276] * 3


def test_lengths_are_swapped_before_version_2_3(read_all: ReadAll) -> None:
    record = struct.pack("<IIII", 1, 0, 60, 2) + b"ab"  # original length first
    rows, _ = read_all(pcap_file([], version=(2, 2)) + record)
    assert rows == [(b"ab", 1_000_000_000, 60)]


def test_original_length_below_captured(read_all: ReadAll) -> None:
    rows, reader = read_all(pcap_file([Captured(b"four", 0, 2)]))
    assert rows == [(b"four", 0, 4)]
    assert reader.problems == []


@pytest.mark.parametrize("modified", [True, False])
def test_cut_at_every_length(modified: bool, read_all: ReadAll) -> None:
    packets = [Captured(b"one", 1000), Captured(b"second", 2000)]
    whole = pcap_file(packets, modified=modified)
    header = 24 if modified else 16
    second = len(whole) - 6 - header
    for size in range(24, len(whole)):
        rows, reader = read_all(whole[:size])
        problems = [(problem.layer, problem.location.packet) for problem in reader.problems]
        if size in (24, second):
            assert problems == []
        elif size < second:
            assert problems == [("capture", 1)]
        else:
            assert problems == [("capture", 2)]
        assert (b"one", 1000, 3) in rows or size < second
        if size >= second + header:  # the part of the data that is there is a packet of its own
            assert rows[1] == (b"second"[: size - second - header], 2000, 6)


@pytest.mark.parametrize(
    ("data", "error", "text"),
    [
        (b"", CaptureError, "empty file"),
        (pcap_file([])[:23], CaptureError, "23 of 24 bytes"),
        (pcap_file([], version=(1, 4)), UnknownFormatError, "version 1.4"),
        (b"snoop\0\0\0" + bytes(40), UnknownFormatError, "snoop"),
        (b"{}", UnknownFormatError, "starts with '{}'"),
    ],
)
def test_not_a_capture(data: bytes, error: type[CaptureError], text: str, read_all: ReadAll) -> None:
    with pytest.raises(error, match=text) as caught:
        read_all(data)
    assert "\n" not in str(caught.value)


def test_absurd_length_stops_with_a_problem(read_all: ReadAll) -> None:
    good = pcap_file([Captured(b"good", 7)])
    rows, reader = read_all(good + struct.pack("<IIII", 0, 0, 1 << 31, 1 << 31) + bytes(100))
    assert rows == [(b"good", 7, 4)]
    told = [(problem.location.packet, problem.reason) for problem in reader.problems]
    assert told == [(2, "a record of 2,147,483,648 bytes can't be: damage at byte 44 of the file")]


def test_length_beyond_the_file_and_the_snap_length_is_damage(read_all: ReadAll) -> None:
    data = pcap_file([Captured(b"good", 7)]) + struct.pack("<IIII", 0, 0, 1 << 24, 1 << 24) + bytes(100)
    rows, reader = read_all(data)
    assert len(rows) == 1
    assert len(reader.problems) == 1


def test_packets_larger_than_a_window(read_all: ReadAll, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rpcinspect.capture.source.WINDOW", 64)
    packets = [Captured(bytes([size]) * size, size) for size in (3, 0, 20, 100, 1, 64, 48, 200, 5)]
    rows, reader = read_all(pcap_file(packets))
    assert rows == [(one.data, one.time_ns, len(one.data)) for one in packets]
    assert reader.problems == []
    assert reader.packets == 9


def test_numbers_go_on_over_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rpcinspect.capture.source.WINDOW", 64)
    path = tmp_path / "capture"
    path.write_bytes(pcap_file([Captured(b"abcd", 1)] * 50))
    following = 1
    with CaptureReader(str(path), 3) as reader:
        for block in reader.blocks():
            assert (block.capture, block.first_number) == (3, following)
            following += len(block)
    assert following == 51


def test_written_files_are_read(read_all: ReadAll) -> None:
    packets = [(1_700_000_000_000_001_000, b"abc"), (2_000, b"")]
    written = pcap_header(101) + b"".join(pcap_record(time_ns, data) for time_ns, data in packets)
    assert written == pcap_file([Captured(data, time_ns) for time_ns, data in packets], link_type=101)
    rows, _ = read_all(written)
    assert rows == [(data, time_ns, len(data)) for time_ns, data in packets]


SMALL = pcap_file([Captured(b"first", 1), Captured(b"", 2), Captured(bytes(40), 3)])


@settings(
    max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    changes=st.lists(st.tuples(st.integers(0, len(SMALL) - 1), st.integers(0, 255)), max_size=4),
    size=st.integers(0, len(SMALL)),
    modified=st.booleans(),
)
def test_damage_is_a_problem_or_a_capture_error(
    changes: list[tuple[int, int]], size: int, modified: bool, read_all: ReadAll
) -> None:
    data = bytearray(SMALL)
    if modified:
        data[:4] = b"\x34\xcd\xb2\xa1"
    for at, value in changes:
        data[at] = value
    try:
        rows, reader = read_all(bytes(data[:size]))
    except CaptureError:
        return
    assert sum(len(row[0]) for row in rows) <= size
    assert reader.packets == len(rows)
    assert len(reader.problems) <= 1


def test_magics_are_all_of_four_bytes() -> None:
    assert all(len(magic) == 4 for magic in pcap.MAGICS)

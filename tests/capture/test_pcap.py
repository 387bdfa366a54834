"""Classic pcap in all its variants, whole, cut and damaged."""

from __future__ import annotations

import gzip
import io
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rpcinspect.capture import CaptureReader, PacketBlock, open_capture, pcap
from rpcinspect.capture.pcap import write_pcap
from rpcinspect.errors import CaptureError, UnknownFormatError
from tests.builders import Captured, pcap_file

PACKETS = [
    Captured(b"first", 1_700_000_000_123_456_789),
    Captured(b"", 0),
    Captured(b"cut by snap length", 4_000_000_000_000_001_000, 1500),
]

ReadAll = Callable[[bytes], tuple[list[tuple[bytes, int, int]], CaptureReader]]


@pytest.fixture
def read_all(tmp_path: Path) -> ReadAll:
    """Reads bytes as a file: (data, time, original length) of each packet, and the closed reader."""

    def read(data: bytes) -> tuple[list[tuple[bytes, int, int]], CaptureReader]:
        path = tmp_path / "capture"
        path.write_bytes(data)
        rows = []
        with open_capture(str(path)) as reader:
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
    with open_capture(str(path)) as reader:
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
        (b"{}", UnknownFormatError, "7b 7d"),
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
    assert [(problem.location.packet, "2,147,483,648" in problem.reason) for problem in reader.problems] == [
        (2, True)
    ]


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
    with open_capture(str(path), 3) as reader:
        for block in reader.blocks():
            assert (block.capture, block.first_number) == (3, following)
            following += len(block)
    assert following == 51


# --- large packets, of which the first bytes are read ---


@pytest.fixture
def small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """What tells large packets, in small files."""
    monkeypatch.setattr("rpcinspect.capture.source.WINDOW", 512)
    for name, value in (
        ("LARGE_PACKET", 100),
        ("HEAD", 60),
        ("SKIMMED_PACKETS", 8),
        ("SKIMMED_BYTES", 2_000),
    ):
        monkeypatch.setattr(pcap, name, value)


def columns(block: PacketBlock) -> list[list[int]]:
    return [c.tolist() for c in (block.offset, block.caplen, block.length, block.time_ns, block.link_type)]


def skimmed(path: Path) -> tuple[list[list[int]], int, CaptureReader]:
    """All columns of a file, how many packets were read by their first bytes, and the closed reader."""
    found: list[list[int]] = [[] for _ in range(5)]
    count = 0
    with open_capture(str(path)) as reader:
        for block in reader.blocks():
            assert block.first_number == len(found[0]) + 1
            for column, more in zip(found, columns(block), strict=True):
                column += more
            if block.heads is None:
                continue
            count += len(block)
            whole = block.heads.whole()
            assert columns(whole) == columns(block)
            assert whole.first_number == block.first_number
            seen = zip(block.heads.at.tolist(), block.heads.seen.tolist(), whole.offset.tolist(), strict=True)
            for at, size, offset in seen:
                start = offset - whole.window_offset
                assert block.window[at : at + size] == whole.window[start : start + size]
    return found, count, reader


SIZES = [*range(400, 100, -11), 0, 1, 700, 3_000, 90, 59, 60, 61, *[5] * 40, *[300] * 12]


def test_large_packets_are_read_by_their_heads(small_is_large: None, tmp_path: Path) -> None:
    packets = [Captured(bytes([size % 251]) * size, 1_000 + size, size + 7) for size in SIZES]
    data = pcap_file(packets)
    (tmp_path / "whole").write_bytes(data)
    found, count, reader = skimmed(tmp_path / "whole")
    assert found[1] == SIZES
    assert found[2] == [size + 7 for size in SIZES]
    assert found[3] == [1_000 + size for size in SIZES]
    assert 20 < count < len(SIZES)
    assert reader.problems == []
    assert reader.bytes == len(data)
    with gzip.open(tmp_path / "packed", "wb") as packed:
        packed.write(data)
    again, count, _ = skimmed(tmp_path / "packed")
    assert again == found
    assert count == 0  # it must be unpacked from its beginning anyway


def test_cut_among_large_packets(
    small_is_large: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = pcap_file([Captured(bytes(size), size) for size in SIZES[:24]])
    path = tmp_path / "cut"
    for size in range(600, len(data), 13):
        path.write_bytes(data[:size])
        with monkeypatch.context() as usual:
            usual.setattr(pcap, "LARGE_PACKET", 1 << 40)
            expected, count, plain = skimmed(path)
        assert count == 0
        found, _, reader = skimmed(path)
        assert found == expected
        assert reader.problems == plain.problems
        assert reader.bytes == plain.bytes


def test_damage_among_large_packets(small_is_large: None, tmp_path: Path) -> None:
    data = pcap_file([Captured(bytes(300), n) for n in range(20)])
    at = 24 + 12 * 316
    (tmp_path / "x").write_bytes(data[:at] + struct.pack("<IIII", 0, 0, 1 << 30, 1 << 30) + data[at + 16 :])
    found, count, reader = skimmed(tmp_path / "x")
    assert len(found[0]) == 12
    assert count > 0
    assert [(p.location.packet, "damage" in p.reason) for p in reader.problems] == [(13, True)]


@pytest.mark.parametrize("nanoseconds", [True, False])
def test_written_files_are_read(nanoseconds: bool, read_all: ReadAll) -> None:
    stream = io.BytesIO()
    packets = [(1_700_000_000_000_001_000, b"abc"), (2_000, b"")]
    assert write_pcap(stream, packets, link_type=101, nanoseconds=nanoseconds) == 2
    same = pcap_file(
        [Captured(data, time_ns) for time_ns, data in packets], link_type=101, nanoseconds=nanoseconds
    )
    assert stream.getvalue() == same
    rows, _ = read_all(stream.getvalue())
    assert rows == [(data, time_ns, len(data)) for time_ns, data in packets]


SMALL = pcap_file([Captured(b"first", 1), Captured(b"", 2), Captured(bytes(40), 3)])


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
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

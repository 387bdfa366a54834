"""Large packets by their first bytes: the same columns, bytes and problems as by windows."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct

from rpcinspect.capture import CaptureReader, PacketBlock, skim
from rpcinspect.errors import CaptureError
from rpcinspect.problems import Problem
from tests.builders import (
    Captured,
    enhanced,
    interface,
    obsolete,
    pcap_file,
    pcapng_block,
    pcapng_file,
    section,
    simple,
)
from tests.thorough import examples, some

Write = Callable[[list[Captured]], bytes]

FORMATS: dict[str, Write] = {
    "pcap": pcap_file,
    "modified pcap, big-endian": partial(pcap_file, order=">", modified=True),
    "pcapng": pcapng_file,
    "pcapng, big-endian": partial(pcapng_file, order=">"),
}
SIZES = [*range(400, 100, -11), 0, 1, 700, 3_000, 90, 59, 60, 61, *[5] * 40, *[300] * 12]


@pytest.fixture(autouse=True)
def small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """What tells large packets, in small files."""
    monkeypatch.setattr("rpcinspect.capture.source.WINDOW", 512)
    monkeypatch.setattr(skim, "LARGE_PACKET", 100)
    monkeypatch.setattr(skim, "HEAD", 60)
    monkeypatch.setattr(skim, "SKIMMED_PACKETS", 8)
    monkeypatch.setattr(skim, "SKIMMED_BYTES", 2_000)


@pytest.fixture(params=FORMATS)
def write(request: pytest.FixtureRequest) -> Write:
    """Makes a capture file of packets."""
    return FORMATS[request.param]


class Found(Struct, frozen=True):
    """What a file gave."""

    packets: list[tuple[int, ...]]
    """Number, offset, captured length, length, time and link type of each."""
    problems: list[Problem]
    read_to: int


def columns(block: PacketBlock) -> list[tuple[int, ...]]:
    number = range(block.first_number, block.first_number + len(block))
    rest = (block.offset, block.caplen, block.length, block.time_ns, block.link_type)
    return list(zip(number, *(column.tolist() for column in rest), strict=True))


def read(path: Path) -> tuple[Found, int]:
    """All that a file gives, and how many packets were read by their first bytes."""
    data = path.read_bytes()
    packets: list[tuple[int, ...]] = []
    count = 0
    with CaptureReader(str(path)) as reader:
        for block in reader.blocks():
            whole = block
            packets += columns(block)
            assert reader.bytes >= (block.offset + block.caplen).max()
            if block.heads is not None:
                count += len(block)
                whole = block.heads.whole()
                assert columns(whole) == columns(block)
                assert whole.heads is None
                heads = zip(block.heads.at.tolist(), block.heads.seen.tolist(), strict=True)
                for (at, seen), (_, offset, caplen, *_) in zip(heads, columns(block), strict=True):
                    assert seen == min(caplen, 60)
                    assert block.window[at : at + seen] == data[offset : offset + seen]
            if reader.compression is None:
                end = whole.window_offset + len(whole.window)
                assert whole.window == data[whole.window_offset : end]
                assert whole.offset.min() >= whole.window_offset
                assert (whole.offset + whole.caplen).max() <= end
    return Found(packets, reader.problems, reader.bytes), count


def same_both_ways(path: Path) -> tuple[Found, int]:
    """As `read`, which gives what a walk by windows alone does."""
    with pytest.MonkeyPatch.context() as usual:
        usual.setattr(skim, "LARGE_PACKET", 1 << 40)
        expected, none = read(path)
    assert none == 0
    found, count = read(path)
    assert found == expected
    return found, count


def test_large_packets_are_read_by_their_heads(write: Write, tmp_path: Path) -> None:
    data = write([Captured(bytes([size % 251]) * size, 1_000_000 * size, size + 7) for size in SIZES])
    (tmp_path / "whole").write_bytes(data)
    found, count = same_both_ways(tmp_path / "whole")
    assert [(number, *rest) for number, _, *rest in found.packets] == [
        (number, size, size + 7, 1_000_000 * size, 1) for number, size in enumerate(SIZES, 1)
    ]
    assert 20 < count < len(SIZES)
    assert found.problems == []
    assert found.read_to == len(data)
    with gzip.open(tmp_path / "packed", "wb") as packed:
        packed.write(data)
    again, count = read(tmp_path / "packed")
    assert again.packets == found.packets
    assert count == 0  # it must be unpacked from its beginning anyway


def test_cut_among_large_packets(write: Write, tmp_path: Path) -> None:
    """Quick, at each fourth of the places, which is several in each packet."""
    data = write([Captured(bytes(size), size) for size in SIZES[:24]])
    path = tmp_path / "cut"
    for size in some(range(600, len(data), 13)):
        path.write_bytes(data[:size])
        same_both_ways(path)


def test_cut_at_every_place_of_the_last_packet(write: Write, tmp_path: Path) -> None:
    packets = [*(Captured(bytes(300), n) for n in range(11)), Captured(bytes(130), 11)]
    data, before = write(packets), len(write(packets[:-1]))
    path = tmp_path / "cut"
    for size in range(before, len(data) + 1):
        path.write_bytes(data[:size])
        found, count = same_both_ways(path)
        assert count > 0
        assert len(found.problems) == (size not in (before, len(data)))


@pytest.mark.parametrize("value", [0, 1, 0x7F, 0xFF])
def test_damage_at_every_place(write: Write, value: int, tmp_path: Path) -> None:
    """Of the fifth packet and what is around its bytes, and of the first byte of that behind it."""
    packets = [Captured(b"\x11" * size, size) for size in (300, 301, 302, 303, 62, 305, 306)]
    data, first, end = write(packets), len(write(packets[:4])), len(write(packets[:5]))
    path = tmp_path / "damaged"
    counts = set()
    for place in range(first, end + 1):
        path.write_bytes(data[:place] + bytes([value]) + data[place + 1 :])
        counts.add(same_both_ways(path)[1])
    assert max(counts) == 6 - (max(counts) < 6)


def test_a_length_that_cannot_be(write: Write, tmp_path: Path) -> None:
    packets = [Captured(bytes(300), n) for n in range(20)]
    data, at = write(packets), len(write(packets[:12]))
    path = tmp_path / "x"
    path.write_bytes(data[:at] + b"\x7f\0\0\x7f" * 4 + data[at + 16 :])
    found, count = same_both_ways(path)
    assert len(found.packets) == 12
    assert count > 0
    assert [problem.location.packet for problem in found.problems] == [13]


def test_a_file_that_grows_or_shrinks(write: Write, tmp_path: Path) -> None:
    packets = [Captured(bytes(300), n) for n in range(40)]
    data = write(packets)
    path = tmp_path / "growing"
    path.write_bytes(data[:4_000])
    with CaptureReader(str(path)) as reader:
        blocks = reader.blocks()
        block = next(blocks)
        while block.heads is None:
            block = next(blocks)
        with path.open("ab") as more:
            more.write(data[4_000:])
        number = block.first_number + len(block)
        for block in blocks:
            assert block.first_number == number
            number += len(block)
        assert number == 41
        assert reader.problems == []
        assert block.heads is not None
        path.write_bytes(data[:-1])
        with pytest.raises(CaptureError, match="shorter"):
            block.heads.whole()


# --- what only pcapng has ---


@pytest.mark.parametrize("order", ["<", ">"])
def test_other_blocks_among_large_packets(order: str, tmp_path: Path) -> None:
    """Each ends what is read by heads, which goes on behind it."""
    large = [enhanced(order, bytes(300), ticks=n, interface_id=n % 2, length=400) for n in range(1, 9)]
    others = [
        simple(order, bytes(200)),  # has the time of the packet before it
        obsolete(order, bytes(201), ticks=77, interface_id=1),
        pcapng_block(order, 5, bytes(12)),
        pcapng_block(order, 9, b"takes a number"),
        enhanced(order, bytes(300), ticks=99, interface_id=2),  # not described
        interface(order, link_type=113, resolution=0x80),
        enhanced(order, bytes(300), ticks=7, interface_id=2),
        section(order) + interface(order, link_type=276) + enhanced(order, bytes(100), ticks=5),
    ]
    described = section(order) + interface(order, resolution=9) + interface(order, link_type=101)
    some = b"".join(large)
    path = tmp_path / "mixed"
    for other in others:
        path.write_bytes(described + some + other + some + other + some)
        found, count = same_both_ways(path)
        assert len(found.packets) >= 24
        assert count > 12


def test_contradictions_are_told_once_for_each_section(tmp_path: Path) -> None:
    """However the packets fall into windows."""
    packet = bytearray(enhanced("<", bytes(300)))
    packet[8] = 1
    packet[20:24] = struct.pack("<I", 1_000)
    part = section() + interface() + enhanced("<", bytes(300)) + bytes(packet) * 10
    path = tmp_path / "contradictions"
    path.write_bytes(part * 2)
    found, _ = same_both_ways(path)
    assert [problem.location.packet for problem in found.problems] == [2, 2, 13, 13]


def test_contradictions_are_told_in_the_order_of_packets(tmp_path: Path) -> None:
    too_long = bytearray(enhanced("<", bytes(300)))
    too_long[20:24] = struct.pack("<I", 1_000)
    path = tmp_path / "contradictions"
    for size in (0, 300):  # in one window, and in several
        unknown = enhanced("<", bytes(size), interface_id=1)
        path.write_bytes(section() + interface() + unknown + bytes(too_long) * 9)
        found, _ = same_both_ways(path)
        assert [problem.location.packet for problem in found.problems] == [1, 2]


def unusual(order: str, data: bytes, ticks: int, interface_id: int, more: int, options: int) -> bytes:
    """An enhanced packet with any captured length, and options (epb_flags, comments) or none, not padded."""
    flags = struct.pack(order + "HHI", 2, 4, 1) * options
    body = (
        struct.pack(order + "IIIII", interface_id, ticks, ticks, max(len(data) + more, 0), len(data)) + data
    )
    body += (bytes(-len(data) % 4) + flags) if options else b""
    size = len(body) + 12
    packet = struct.pack(order + "II", 6, size) + body + struct.pack(order + "I", size)
    return packet + bytes(-len(packet) % 4)


@st.composite
def pieces(draw: st.DrawFn, order: str) -> bytes:
    data = draw(st.sampled_from((b"a", b"", b"\xff"))) * draw(
        st.sampled_from((0, 59, 63, 200, 301, 302, 700))
    )
    ticks = draw(st.sampled_from((0, 1, 0xFFFFFFFF)))
    chosen = draw(st.sampled_from((0, 0, 1, 1, 2, 200)))
    kind = draw(st.integers(0, 15))
    if kind < 7:
        return enhanced(order, data, ticks=ticks << 7, interface_id=chosen)
    if kind < 11:
        more, options = draw(st.sampled_from((0, 0, 1, 30, 1 << 27, -3))), draw(st.integers(0, 4))
        return unusual(order, data, ticks, chosen, more, options)
    return (
        simple(order, data, length=len(data) + 3),
        obsolete(order, data, ticks=ticks, interface_id=chosen),
        pcapng_block(order, 9, data),
        pcapng_block(order, 5, data),
        unusual("><"[order == ">"], data, ticks, chosen, 0, 1),
    )[kind - 11]


@st.composite
def files(draw: st.DrawFn) -> bytes:
    out = b""
    for _ in range(draw(st.integers(1, 3))):
        order = draw(st.sampled_from("<>"))
        out += section(order)
        out += interface(order, link_type=draw(st.sampled_from((1, 101))), snap_length=250)
        out += interface(order, resolution=draw(st.sampled_from((3, 9, 0x8A))), offset_s=1_700_000_000)
        usual = enhanced(order, bytes(300), ticks=5) * draw(st.integers(0, 12))
        out += usual + b"".join(draw(st.lists(pieces(order), max_size=25)))
    return out


@settings(
    max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    data=files(),
    size=st.one_of(st.none(), st.integers(28, 20_000)),
    changes=st.lists(st.tuples(st.integers(28, 20_000), st.integers(0, 255)), max_size=2),
)
def test_any_file(data: bytes, size: int | None, changes: list[tuple[int, int]], tmp_path: Path) -> None:
    damaged = bytearray(data[:size])
    for place, value in changes:
        if place < len(damaged):
            damaged[place] = value
    path = tmp_path / "any"
    path.write_bytes(damaged)
    same_both_ways(path)

"""Segments that came in IP fragments, as rows of a block, as streams, and as tshark sees them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpcinspect.capture.block import SegmentBlock
from rpcinspect.tcp.segment import Segmenter
from tests.builders import (
    ACK,
    FIN,
    SYN,
    Captured,
    ethernet,
    ipv4,
    ipv4_fragments,
    ipv6_fragments,
    packet,
    packet_block,
    pcap_file,
    tcp,
    udp,
    vxlan,
)
from tests.tensorpipe.reading import read_streams
from tests.thorough import examples

A4, B4, A6, B6 = "10.0.0.1", "10.0.0.2", "fd00::1", "fd00::2"
PAYLOAD = bytes(range(100, 180))
FRAGMENTS: list[Callable[..., list[bytes]]] = [
    lambda body, cuts, **more: ipv4_fragments(body, A4, B4, cuts, **more),
    lambda body, cuts, **more: ipv6_fragments(body, A6, B6, cuts, **more),
]
FLOWS = [f"{A4}:5000>{B4}:6000", f"[{A6}]:5000>[{B6}]:6000"]


def segment(payload: bytes = PAYLOAD, sequence: int = 1000, flags: int = ACK) -> bytes:
    return tcp(payload, 5000, 6000, sequence=sequence, acknowledgment=7, flags=flags)


def rows(block: SegmentBlock) -> list[tuple[int, int, int, bytes, int]]:
    """(packet, sequence, flags, bytes in the window, length) of each row."""
    columns = (block.packet, block.sequence, block.flags, block.offset, block.captured, block.length)
    return [
        (number, sequence, flags, block.window[at - block.window_offset :][:captured], length)
        for number, sequence, flags, at, captured, length in zip(*(c.tolist() for c in columns), strict=True)
    ]


@pytest.mark.parametrize("version", [0, 1])
def test_one_row_for_each_piece(version: int) -> None:
    parts = FRAGMENTS[version](segment(flags=SYN | ACK | FIN), [40, 64])
    frames = [ethernet(part) + b"trailer" for part in parts]
    segmenter = Segmenter()
    block = segmenter.feed(packet_block([*frames[1:], packet(b"x"), frames[0]]))
    # 20 bytes of header in the first; sequence numbers count the SYN, which the first row has, as the last
    # has the FIN
    assert rows(block)[1:] == [
        (4, 1000, SYN | ACK, PAYLOAD[:20], 20),
        (4, 1021, ACK, PAYLOAD[20:44], 24),
        (4, 1045, ACK | FIN, PAYLOAD[44:], 36),
    ]
    assert rows(block)[0][0] == 3
    assert set(block.acknowledgment[1:].tolist()) == {7}
    assert [str(flow) for flow in segmenter.flows][-1:] == [FLOWS[version]]
    assert segmenter.other == {"ip fragment": 2}


@pytest.mark.parametrize("version", [0, 1])
def test_a_first_part_without_the_rest(version: int) -> None:
    parts = FRAGMENTS[version](segment(flags=ACK | FIN), [40, 64])
    segmenter = Segmenter()
    assert rows(segmenter.feed(packet_block([ethernet(parts[0])]))) == [(1, 1000, ACK, PAYLOAD[:20], 20)]
    assert segmenter.other == {}
    assert len(segmenter.feed(packet_block([ethernet(parts[1])]))) == 0
    assert segmenter.other == {"incomplete ip fragment": 1}


@pytest.mark.parametrize("version", [0, 1])
def test_a_header_that_is_cut_in_the_middle(version: int) -> None:
    frames = [ethernet(part) for part in FRAGMENTS[version](segment(), [8, 16, 24])]
    segmenter = Segmenter()
    block = segmenter.feed(packet_block(frames))
    assert rows(block) == [(4, 1000, ACK, PAYLOAD[:4], 4), (4, 1004, ACK, PAYLOAD[4:], 76)]
    assert segmenter.other == {"ip fragment": 3}


def test_snap_length() -> None:
    parts = FRAGMENTS[0](segment(), [40, 64])
    frames = [Captured(ethernet(part)[:50], length=14 + len(part)) for part in parts]  # 16 bytes behind IP
    segmenter = Segmenter()
    assert len(segmenter.feed(packet_block(frames))) == 0
    assert segmenter.other == {"cut header": 1, "ip fragment": 2}
    frames = [Captured(ethernet(part)[:60], length=14 + len(part)) for part in parts]  # 26 bytes
    assert rows(Segmenter().feed(packet_block(frames)))[1:] == [
        (3, 1000, ACK, PAYLOAD[:6], 20),
        (3, 1020, ACK, PAYLOAD[20:44], 24),
        (3, 1044, ACK, PAYLOAD[44:70], 36),
    ]


def test_overlaps_that_differ_are_conflicts(tmp_path: Path) -> None:
    whole = segment(flags=SYN | ACK)
    other = whole[:56] + bytes(len(whole) - 56)
    parts = ipv4_fragments(whole, A4, B4, [64])[:1] + ipv4_fragments(other, A4, B4, [56])[1:]
    path = tmp_path / "capture"
    path.write_bytes(pcap_file([Captured(ethernet(frame)) for frame in parts]))
    stream = read_streams([path])[FLOWS[0]]
    assert stream.content == PAYLOAD[:44] + bytes(36)
    assert stream.conflicts == [(36, 8, 2)]


def test_what_is_no_tcp_or_no_segment() -> None:
    segmenter = Segmenter()
    frames = [ethernet(part) for part in ipv4_fragments(bytes(40), A4, B4, [16], protocol=17)]
    frames += [ethernet(part) for part in ipv4_fragments(bytes(40), A4, B4, [16], protocol=6)]
    assert len(segmenter.feed(packet_block(frames))) == 0
    assert segmenter.other == {"ip fragment": 2, "udp": 1, "bad tcp header": 1}


def test_a_tunnel_in_fragments_and_fragments_in_a_tunnel() -> None:
    def tunnel(body: bytes) -> bytes:
        return udp(vxlan(ethernet(body)), 4789)

    outer = ipv4_fragments(
        tunnel(ipv4(segment(), A4, B4)), "192.168.0.1", "192.168.0.2", [96], protocol=17, number=5
    )
    inner = [
        ethernet(ipv4(tunnel(part), "192.168.0.1", "192.168.0.2", protocol=17))
        for part in ipv4_fragments(segment(sequence=2000), A4, B4, [40], number=6)
    ]
    both = [
        ethernet(part)
        for number, whole in enumerate(ipv4_fragments(segment(sequence=3000), A4, B4, [40], number=7))
        for part in ipv4_fragments(
            tunnel(whole), "192.168.0.1", "192.168.0.2", [64], protocol=17, number=10 + number
        )
    ]
    segmenter = Segmenter()
    block = segmenter.feed(packet_block([*map(ethernet, outer), *inner, *both]))
    found: dict[int, bytes] = {}
    for _, sequence, _, data, _ in rows(block):
        found.setdefault(sequence, data)
        if len(data) > len(found[sequence]):
            found[sequence] = data
    for base in (1000, 2000, 3000):
        ours = {sequence - base: data for sequence, data in found.items() if base <= sequence < base + 1000}
        content = bytearray(80)
        for at, data in ours.items():
            content[at : at + len(data)] = data
        assert bytes(content) == PAYLOAD, base
    assert len(set(block.packet.tolist())) + sum(segmenter.other.values()) == 8
    assert [str(flow) for flow in segmenter.flows] == [FLOWS[0]]


@pytest.mark.parametrize("version", [0, 1])
def test_streams_and_their_places(version: int, tmp_path: Path) -> None:
    """Every order of fragments, each in a block of its own or all in one."""
    path = tmp_path / "capture"
    for order in permutations(range(3)):
        parts = [ethernet(part) for part in FRAGMENTS[version](segment(), [40, 64])]
        frames = [ethernet(part) for part in FRAGMENTS[version](segment(b"before", 994), [], number=9)]
        frames += [parts[at] for at in order]
        frames += [ethernet(part) for part in FRAGMENTS[version](segment(b"after", 1080), [], number=9)]
        path.write_bytes(pcap_file([Captured(frame, at) for at, frame in enumerate(frames)]))
        stream = read_streams([path])[FLOWS[version]]
        assert stream.content == b"before" + PAYLOAD + b"after"
        assert (stream.holes, stream.conflicts) == ([], [])
        data = path.read_bytes()
        assert b"".join(data[at : at + size] for _, at, size in stream.pieces) == stream.content


@given(st.data())
@settings(max_examples=examples(60), deadline=None)
def test_any_fragments_in_any_blocks(data: st.DataObject) -> None:
    """Segments in fragments, shuffled a little, fed block by block: nothing is lost, mixed up or invented."""
    frames: list[bytes] = []
    stream = data.draw(st.binary(min_size=1, max_size=400))
    at = 0
    while at < len(stream):
        size = data.draw(st.integers(1, 120))
        whole = segment(stream[at : at + size], 1000 + at)
        cuts = sorted(data.draw(st.sets(st.integers(1, (len(whole) - 1) // 8), max_size=4)))
        frames += [
            ethernet(part) for part in FRAGMENTS[0](whole, [8 * cut for cut in cuts], number=len(frames))
        ]
        at += size
    order = data.draw(st.permutations(range(len(frames))))
    segmenter, model, seen, number = Segmenter(), {}, 0, 0
    while number < len(frames):
        size = data.draw(st.integers(1, 8))
        chunk = [frames[at] for at in order[number : number + size]]
        block = segmenter.feed(packet_block(chunk, first_number=number + 1, window_offset=0))
        seen += len(set(block.packet.tolist()))
        for sequence, length in zip(block.sequence.tolist(), block.length.tolist(), strict=True):
            model.update(dict.fromkeys(range(sequence - 1000, sequence - 1000 + length)))
        number += len(chunk)
    assert sorted(model) == list(range(len(stream)))
    assert seen + sum(segmenter.other.values()) == len(frames)
    assert "incomplete ip fragment" not in segmenter.other


@pytest.mark.parametrize("version", [0, 1])
def test_tshark_sees_the_same(version: int, tmp_path: Path) -> None:
    if shutil.which("tshark") is None:
        pytest.skip("tshark is not installed")
    frames = [
        part
        for cuts in ([40, 64], [8, 16], [24])
        for part in FRAGMENTS[version](
            segment(PAYLOAD, 1000 + 80 * len(cuts)), cuts, number=40 + len(cuts) + cuts[0]
        )
    ]
    path = tmp_path / "capture"
    path.write_bytes(pcap_file([Captured(ethernet(frame)) for frame in frames]))
    command = ["tshark", "-n", "-r", str(path), "-T", "fields", "-Y", "tcp.len > 0"]
    for field in ("frame.number", "tcp.seq_raw", "tcp.len"):
        command += ["-e", field]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    seen = {
        int(line.split("\t")[0]): tuple(map(int, line.split("\t")[1:])) for line in done.stdout.splitlines()
    }
    found: dict[int, tuple[int, int]] = {}
    block = Segmenter().feed(packet_block([ethernet(frame) for frame in frames]))
    for number, sequence, _, _, length in rows(block):
        first, before = found.get(number, (sequence, 0))
        found[number] = (first, before + length)
    assert {number: found[number] for number in seen} == seen
    assert sorted(seen) == [3, 6, 8]

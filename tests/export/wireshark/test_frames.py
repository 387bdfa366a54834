"""The packets of a message are those in which tshark has any of its bytes, retransmissions included."""

from __future__ import annotations

import shutil
import struct
from bisect import bisect_right
from pathlib import Path

import pytest

from rpcinspect.errors import OutputError
from rpcinspect.export.wireshark.frames import MessageFrames, frames_of
from rpcinspect.pipeline import Decoding, make_index
from rpcinspect.tensorpipe.records import TpMessage
from tests.places import content, recorded
from tests.tshark import carriers, frames, needs_tshark


def found_in(*paths: Path) -> tuple[list[TpMessage], MessageFrames]:
    """The messages of captures in the order of completion, and the packets of each by its place there."""
    with Decoding([str(path) for path in paths]) as decoding:
        messages = [record.tp for record in decoding.records()]
        return messages, frames_of(decoding, enumerate(messages))


def listed(found: MessageFrames) -> dict[tuple[int, int], list[int]]:
    """(message, capture) → packets."""
    return {(number, capture): its.packet.tolist() for number, capture, its in found.each()}


def record_ends(data: bytes) -> list[int]:
    """Where each packet of a little-endian pcap ends."""
    ends, at = [], 24
    while at < len(data):
        at += 16 + struct.unpack_from("<I", data, at + 8)[0]
        ends.append(at)
    return ends


@needs_tshark
@pytest.mark.parametrize(
    "name",
    [
        "basic_chain.pcap",
        "draws.pcap",
        "transport_matrix_uv_mpt.pcap",
        pytest.param("torch/stress_basic.pcap", marks=pytest.mark.slow),
    ],
)
def test_packets_are_those_that_tshark_sees(name: str) -> None:
    path = recorded(name)
    ends = record_ends(content(name))
    messages, found = found_in(path)

    def copies(flow: str, packet: int, start: int, end: int) -> set[int]:
        return {one.number for one in carriers(path, flow, packet) if one.start < end and start < one.end}

    def expected(tp: TpMessage) -> set[int]:
        numbers = copies(str(tp.flow), tp.packet, tp.offset, tp.offset + tp.length)
        for tensor in tp.tensors:
            assert tensor.extent is not None
            for _, offset, length in tensor.extent.pieces:
                frame = frames(path)[bisect_right(ends, offset)]
                sent = next(s for s in carriers(path, frame.flow, frame.number) if s.number == frame.number)
                start = sent.start + offset - (ends[frame.number - 1] - len(frame.payload))
                numbers |= copies(frame.flow, frame.number, start, start + length)
        return numbers

    for row, capture, its in found.each():
        assert capture == 0
        assert messages[row].packet in its.packet[its.begins == 1].tolist()
        assert its.packet[0] == messages[row].first_packet
        assert its.time_ns.tolist() == [frames(path)[number - 1].time_ns for number in its.packet.tolist()]
    assert listed(found) == {(row, 0): sorted(expected(tp)) for row, tp in enumerate(messages)}


def test_an_index_tells_the_same(tmp_path: Path) -> None:
    path = tmp_path / "run.pcap"
    shutil.copy(recorded("basic_chain.pcap"), path)
    _, before = found_in(path)
    make_index([str(path)])
    messages, after = found_in(path)
    assert len(messages) == 24
    assert listed(after) == listed(before)


def test_a_second_capture_of_the_same_packets_has_copies(tmp_path: Path) -> None:
    """Of the second only copies are seen; where the first has lost packets, the others are there."""
    data, ends = content("basic_chain.pcap"), record_ends(content("basic_chain.pcap"))
    whole, first = tmp_path / "whole.pcap", tmp_path / "first.pcap"
    whole.write_bytes(data)
    first.write_bytes(data[: ends[360]] + data[ends[399] :])  # without packets 362 to 400
    messages, found = found_in(first, whole)
    _, alone = found_in(whole)
    expected = {number: packets for (number, _), packets in listed(alone).items()}
    place = {number: tp.first_ns for number, tp in enumerate(messages)}
    other = {tp.first_ns: number for number, tp in enumerate(found_in(whole)[0])}
    assert len(messages) == 24
    for (number, capture), packets in listed(found).items():
        all_of_it = expected[other[place[number]]]
        if capture == 1:
            assert packets == all_of_it
        else:
            assert packets == [n if n < 362 else n - 39 for n in all_of_it if not 362 <= n <= 400]


def test_logs_have_no_packets() -> None:
    with Decoding([str(recorded("attacks/d_f11_class.rpclog"))]) as decoding:
        messages = [record.tp for record in decoding.records()]
        with pytest.raises(OutputError, match="a log holds messages without their packets"):
            frames_of(decoding, enumerate(messages))

"""The packets of a message are those in which tshark has any of its bytes, retransmissions included."""

from __future__ import annotations

import struct
from bisect import bisect_right
from pathlib import Path

import pytest

from rpcinspect.capture import CaptureReader
from rpcinspect.export.wireshark.frames import FrameFinder, MessageFrames
from rpcinspect.pipeline import Decoding
from rpcinspect.sources.packets import segments_alone
from rpcinspect.tcp.segment import Segmenter
from rpcinspect.tensorpipe.records import TpMessage
from tests.places import content, recorded
from tests.tshark import Sent, carriers, frames, needs_tshark


def found_in(*paths: Path) -> tuple[list[TpMessage], MessageFrames]:
    """The messages of captures in the order of completion, and the packets of each by its place there."""
    finder, messages = FrameFinder(), []
    with Decoding([str(path) for path in paths]) as decoding:
        for record in decoding.records():
            messages.append(record.tp)
            finder.add(record.row, record.tp)
    for number, path in enumerate(paths):
        segmenter = Segmenter()
        with CaptureReader(str(path), number) as reader:
            finder.look(number, segmenter.flows, segments_alone(reader, segmenter))
    return messages, finder.found()


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
                sent: Sent = next(s for s in carriers(path, frame.flow, frame.number) if s.number == frame.number)
                start = sent.start + offset - (ends[frame.number - 1] - len(frame.payload))
                numbers |= copies(frame.flow, frame.number, start, start + length)
        return numbers

    seen = {}
    for row, capture, its in found.each():
        seen[row] = its.packet.tolist()
        assert capture == 0
        assert messages[row].packet in its.packet[its.begins == 1].tolist()
        assert its.time_ns.tolist() == [frames(path)[number - 1].time_ns for number in seen[row]]
    assert sorted(seen) == list(range(len(messages)))
    assert seen == {row: sorted(expected(tp)) for row, tp in enumerate(messages)}
    assert all(numbers[0] == tp.first_packet for numbers, tp in zip(seen.values(), messages, strict=True))

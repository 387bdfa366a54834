"""The packets that a message is said to lie in are those in which tshark has its bytes."""

from __future__ import annotations

import struct
from bisect import bisect_right
from itertools import count

import pytest

from rpcinspect.pipeline import Decoding
from rpcinspect.tensorpipe.records import TpMessage
from tests.places import content, recorded
from tests.tshark import carriers, frames, needs_tshark

HEADER, RECORD = 24, 16


def record_ends(data: bytes) -> list[int]:
    """Where each packet of a little-endian pcap ends."""
    ends, at = [], HEADER
    while at < len(data):
        at += RECORD + struct.unpack_from("<I", data, at + 8)[0]
        ends.append(at)
    return ends


@needs_tshark
@pytest.mark.parametrize(
    "name",
    [
        "basic_chain.pcap",
        "draws.pcap",
        pytest.param("transport_matrix_uv_mpt.pcap", marks=pytest.mark.slow),
        pytest.param("torch/stress_basic.pcap", marks=pytest.mark.slow),
    ],
)
def test_packets_of_messages(name: str) -> None:
    """Captures with split messages, retransmissions, tensors on several connections and before their
    descriptors."""
    path, data = recorded(name), content(name)
    ends = record_ends(data)

    def first_copies(tp: TpMessage) -> set[int]:
        """Numbers of the packets that hold the first copy of each byte of the message."""
        found, left = set(), set(range(tp.offset, tp.offset + tp.length))
        for sent in carriers(path, str(tp.flow), tp.packet):
            if sent.end <= tp.offset or tp.offset + tp.length <= sent.start:
                continue
            own = left.intersection(range(sent.start, sent.end))
            if own:
                found.add(sent.number)
                left -= own
        assert not left
        for tensor in tp.tensors:
            assert tensor.extent is not None
            for _, offset, length in tensor.extent.pieces:
                number = 1 + bisect_right(ends, offset)
                assert data[offset : offset + length] in frames(path)[number - 1].payload
                found.add(number)
        return found

    spread = count()
    with Decoding([str(path)]) as decoding:
        for record in decoding.records():
            tp = record.tp
            packets = first_copies(tp)
            assert (tp.first_packet, tp.last_packet) == (min(packets), max(packets))
            times = [frames(path)[number - 1].time_ns for number in packets]
            assert (tp.first_ns, tp.last_ns) == (min(times), max(times))
            if tp.first_packet < tp.packet or tp.last_packet > tp.packet + 100:
                next(spread)
    if "stress" in name:
        assert next(spread) > 100

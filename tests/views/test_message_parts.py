"""What a message's frames consist of, against the streams that tshark follows."""

from __future__ import annotations

import struct
from pathlib import Path

from rpcinspect.rpc.record import RpcRecord
from rpcinspect.views.message_parts import PAYLOADS, StreamPart, stream_parts
from tests.places import recorded
from tests.views.opened import CAPTURES, opened
from tests.views.text.test_detail import followed


def framed(record: RpcRecord) -> bytes:
    """The frames that these parts make, with their lengths in front."""
    lengths = [len(record.tp.descriptor_body), *(one.length for one in record.tp.descriptor.payloads)]
    data = b"".join(part.data for part in stream_parts(record))
    out = b""
    for length in lengths:
        out, data = out + struct.pack("<Q", length) + data[:length], data[length:]
    assert not data
    return out


def test_parts_make_the_stream() -> None:
    streams = followed(CAPTURES / "profiled_legacy.pcap")
    with opened(Path("profiled_legacy.pcap")) as capture:
        for record in capture.records:
            start = record.tp.offset
            whole = streams[str(record.tp.flow)][start : start + record.tp.length]
            assert framed(record) == whole
            for part in stream_parts(record):
                assert part.data == whole[part.start - start : part.start - start + part.length]
                assert part.missing == 0


def test_a_cut_payload_says_how_much_is_missing() -> None:
    cut = 0
    with opened(recorded("torch/snap300.pcap")) as capture:
        for record in capture.records:
            lost = record.tp.payload_missing
            if lost is None:
                continue
            parts = {part.name: part for part in stream_parts(record)}
            for name, missing in zip(PAYLOADS, lost, strict=True):
                part = parts[name]
                assert part.missing == missing
                assert part.length == record.tp.descriptor.payloads[PAYLOADS.index(name)].length
                assert len(part.data) + missing <= part.length
                cut += missing > 0
    assert cut


def test_parts_of_a_log_count_from_their_own_beginning() -> None:
    with opened(recorded("reports/hostile/placement_list.rpclog")) as capture:
        for record in capture.records:
            expected = [
                StreamPart(name, 0, data, len(data))
                for name, data in zip(PAYLOADS, record.tp.payloads, strict=True)
            ]
            assert list(stream_parts(record)) == expected

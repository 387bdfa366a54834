"""Packets to segments: fields, flows, order, counts; and the same rows as tshark on real captures."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rpcinspect.capture import CaptureReader, PacketBlock
from rpcinspect.capture.block import SegmentBlock
from rpcinspect.tcp.segment import Endpoint, Flow, Segmenter
from tests.builders import (
    ACK,
    FIN,
    PSH,
    SYN,
    Captured,
    by_heads,
    ethernet,
    gre,
    ipv4,
    ipv4_fragments,
    ipv6,
    packet,
    packet_block,
    tcp,
)
from tests.places import foreign, recorded
from tests.thorough import each_kind, examples

A, B = "10.0.0.1:5000", "10.0.0.2:6000"
A6, B6 = "[2001:db8::1]:5000", "[::1]:6000"


def payloads(block: SegmentBlock) -> list[bytes]:
    starts = (block.offset - block.window_offset).tolist()
    return [
        block.window[start : start + size]
        for start, size in zip(starts, block.captured.tolist(), strict=True)
    ]


def test_literal_bytes() -> None:
    frame = bytes.fromhex(
        "020000000002 020000000001 0800"  # Ethernet
        "45 00 0033 0001 4000 40 06 0000 0a000001 0a000002"  # IPv4, total length 51
        "1388 1770 fffffff0 00000007"  # ports 5000 and 6000, sequence, acknowledgment
        "80 18 ffff 0000 0000"  # 32 bytes of header, PSH and ACK
        "0101080a 00000001 00000002"  # options: time stamps
    )
    # total length 51 is less than both headers: the segment would have -1 bytes
    segmenter = Segmenter()
    assert len(segmenter.feed(packet_block([frame]))) == 0
    assert segmenter.other == {"bad tcp header": 1}
    frame = frame[:17] + b"\x37" + frame[18:] + b"abcdef"  # 55 = 20 + 32 + 3: the rest is a trailer
    block = segmenter.feed(packet_block([Captured(frame, 99)], capture=2, first_number=7))
    assert (block.capture, block.packet.tolist(), block.time_ns.tolist()) == (2, [7], [99])
    assert (block.sequence.tolist(), block.acknowledgment.tolist()) == ([0xFFFFFFF0], [7])
    assert block.flags.tolist() == [PSH | ACK]
    assert (payloads(block), block.length.tolist()) == ([b"abc"], [3])
    assert [str(flow) for flow in segmenter.flows] == ["10.0.0.1:5000>10.0.0.2:6000"]


@pytest.mark.parametrize("link_type", [0, 1, 12, 14, 101, 108, 113, 276])
def test_both_versions_in_file_order(link_type: int) -> None:
    frames = [
        packet(b"", A, B, sequence=1, flags=SYN, link_type=link_type),
        packet(b"six", A6, B6, sequence=2, acknowledgment=3, link_type=link_type),
        packet(b"four", B, A, sequence=4, options=b"\1\1\1", link_type=link_type),
        packet(b"", B6, A6, sequence=5, flags=FIN | ACK, link_type=link_type),
    ]
    segmenter = Segmenter()
    block = segmenter.feed(packet_block(frames, link_type=link_type))
    assert block.packet.tolist() == [1, 2, 3, 4]
    assert block.sequence.tolist() == [1, 2, 4, 5]
    assert block.acknowledgment.tolist() == [0, 3, 0, 0]
    assert block.flags.tolist() == [SYN, ACK, ACK, FIN | ACK]
    assert payloads(block) == [b"", b"six", b"four", b""]
    assert [str(segmenter.flows[flow]) for flow in block.flow.tolist()] == [
        f"{A}>{B}",
        f"{A6}>{B6}",
        f"{B}>{A}",
        f"{B6}>{A6}",
    ]
    assert segmenter.other == {}


def test_several_link_types_in_one_block() -> None:
    types = [1, 101, 1, 113, 999]
    frames = [
        packet(bytes([row]), sequence=row, link_type=link if link != 999 else 1)
        for row, link in enumerate(types)
    ]
    segmenter = Segmenter()
    block = segmenter.feed(packet_block(frames, link_type=types, first_number=11))
    assert block.packet.tolist() == [11, 12, 13, 14]
    assert block.sequence.tolist() == [0, 1, 2, 3]
    assert len(segmenter.flows) == 1  # the link layer is no part of a flow
    assert segmenter.other == {"link type 999": 1}


def test_flows_stay_over_blocks() -> None:
    segmenter = Segmenter()
    first = segmenter.feed(packet_block([packet(b"a", A, B)]))
    second = segmenter.feed(packet_block([packet(b"b", B, A), packet(b"c", A, B)]))
    assert (first.flow.tolist(), second.flow.tolist()) == ([0], [1, 0])


def test_flow_with_itself() -> None:
    segmenter = Segmenter()
    segmenter.feed(packet_block([packet(b"", A, A), packet(b"", A, A)]))
    assert len(segmenter.flows) == 1


def test_cut_by_snap_length() -> None:
    whole = packet(b"0123456789", A, B, options=bytes(12))
    segmenter = Segmenter()
    block = segmenter.feed(
        packet_block([Captured(whole[:size], length=len(whole)) for size in range(len(whole) + 1)])
    )
    # 14 Ethernet + 20 IPv4 + 20 TCP: below, nothing is known; the options may be cut
    assert block.packet.tolist() == list(range(55, len(whole) + 2))
    assert set(block.length.tolist()) == {10}
    assert block.captured.tolist() == [max(0, size - 66) for size in range(54, len(whole) + 1)]
    assert segmenter.other == {"cut header": 54}


def test_what_is_counted() -> None:
    segmenter = Segmenter()
    frames = [
        ethernet(b"?", kind=0x0806),
        ethernet(b"?", kind=0x1234),
        ethernet(b"?", kind=0x0806),
        ethernet(ipv4(b"12345678", "1.1.1.1", "2.2.2.2", protocol=17)),
        ethernet(ipv6(b"12345678", "::1", "::2", protocol=58)),
        ethernet(ipv4(tcp(b"", 1, 2)[:12] + b"\x40" + bytes(7), "1.1.1.1", "2.2.2.2")),
        b"short",
    ]
    block = segmenter.feed(packet_block(frames))
    assert len(block) == 0
    assert segmenter.other == {
        "arp": 2,
        "ethertype 0x1234": 1,
        "udp": 1,
        "icmp": 1,
        "bad tcp header": 1,
        "cut header": 1,
    }


def test_empty_block() -> None:
    block = Segmenter().feed(packet_block([]))
    assert len(block) == 0
    assert block.flags.dtype == np.uint8


def test_texts() -> None:
    flow = Flow(Endpoint("10.0.0.1", 80), Endpoint("fe80::1", 8080))
    assert str(flow) == "10.0.0.1:80>[fe80::1]:8080"
    assert str(flow.reversed) == "[fe80::1]:8080>10.0.0.1:80"


@settings(max_examples=examples(150), deadline=None)
@given(data=st.data())
def test_any_bytes_are_a_segment_or_counted(data: st.DataObject) -> None:
    frames = data.draw(
        st.lists(
            st.one_of(
                st.binary(max_size=80),
                st.builds(
                    lambda frame, at, value, size: (
                        frame[: at % len(frame)] + bytes([value]) + frame[at % len(frame) + 1 :]
                    )[:size],
                    st.sampled_from([packet(b"abc", A, B), packet(b"abc", A6, B6)]),
                    st.integers(0, 200),
                    st.integers(0, 255),
                    st.integers(0, 200),
                ),
            ),
            max_size=5,
        )
    )
    link_type = data.draw(st.sampled_from([0, 1, 101, 113, 228, 229, 276, 999]))
    block = packet_block(frames, link_type=link_type)
    segmenter = Segmenter()
    segments = segmenter.feed(block)
    assert len(segments) + sum(segmenter.other.values()) == len(frames)
    assert np.all(segments.captured >= 0)
    assert np.all(segments.captured <= segments.length)
    assert np.all(
        segments.offset + segments.captured
        <= block.window_offset + len(block.window) + (segments.captured == 0) * 100
    )
    again = Segmenter()
    assert rows_of(again, again.feed(by_heads(block, data.draw(st.integers(0, 100))))) == rows_of(
        segmenter, segments
    )
    assert again.other == segmenter.other


# --- packets of which only the first bytes are there ---


def rows_of(segmenter: Segmenter, block: SegmentBlock) -> list[tuple[object, ...]]:
    flows = [str(segmenter.flows[index]) for index in block.flow.tolist()]
    columns = (block.packet, block.time_ns, block.sequence, block.acknowledgment, block.flags)
    columns = (*columns, block.offset, block.captured, block.length)
    return list(zip(flows, *(column.tolist() for column in columns), strict=True))


LARGE = bytes(5_000)
INNER = ipv4(tcp(LARGE, 1, 2), "1.1.1.1", "2.2.2.2")
LONG = (60, bytes([99, *bytes(798)]))
OTHERS = {
    "a small packet of another protocol": ethernet(b"?", kind=0x0806),
    "another protocol": ethernet(ipv4(LARGE, "1.1.1.1", "2.2.2.2", protocol=17)),
    "a fragment": ethernet(ipv4_fragments(tcp(LARGE, 1, 2), "1.1.1.1", "2.2.2.2", [2_000])[0]),
    "a tunnel": ethernet(ipv4(gre(INNER), "3.3.3.3", "4.4.4.4", protocol=47)),
    "a tunnel that ends before what is in it": ethernet(
        ipv4(gre(INNER)[:600], "3.3.3.3", "4.4.4.4", protocol=47) + bytes(LARGE)
    ),
    "a header that is too long": ethernet(ipv6(tcp(LARGE, 1, 2), "::1", "::2", extensions=[LONG])),
    "no header": LARGE,
}


@pytest.mark.parametrize("size", [0, 13, 54, 66, 120, 6_000])
@pytest.mark.parametrize("other", OTHERS)
def test_heads_tell_what_whole_packets_tell(other: str, size: int) -> None:
    large = [packet(LARGE, A, B, options=bytes(12)), packet(LARGE, A6, B6), packet(b"", B, A)]
    cut = Captured(large[0][:200], length=len(large[0]))
    block = packet_block([*large, cut, OTHERS[other], *large])
    first, second = Segmenter(), Segmenter()
    assert rows_of(second, second.feed(by_heads(block, size))) == rows_of(first, first.feed(block))
    assert second.other == first.other


def test_payloads_of_large_packets_are_not_read() -> None:
    block = packet_block([packet(LARGE, A, B), packet(LARGE, B, A), packet(LARGE, A6, B6)])
    heads = by_heads(block, 100)
    assert heads.heads is not None

    def never() -> PacketBlock:
        raise AssertionError("the heads are enough")

    segments = Segmenter().feed(replace(heads, heads=replace(heads.heads, whole=never)))
    assert segments.captured.tolist() == [len(LARGE)] * 3
    assert not segments.window


# --- against tshark ---

FIELDS = (
    *("frame.number", "frame.time_epoch"),
    *("ip.src", "ipv6.src", "tcp.srcport", "ip.dst", "ipv6.dst", "tcp.dstport"),
    *("tcp.seq_raw", "tcp.ack_raw", "tcp.len", "tcp.flags"),
)

TORCH = ["hosts4.pcap", "kitchen.pcap", "snap300.pcap", "chan_mpt.pcap", "stress_lossy.pcap"]
THIRD_PARTY = [
    "be_ns__PcapPlusPlus__nanosecs_big_endian.pcap",
    "kuznetzov__pcap-parser__modified-format.pcap",
    "ng_multi_iface_tcp__nDPI__custom_rules_same-ip_multiple_ports.pcapng",
    "ng_le_be_sections__pcapng-test-generator__test202.pcapng",
    "ng_simple_packet__pcapng-test-generator__test201.pcapng",
    "ng_tsoffset__gopacket__test008.pcapng",
    "gzip_tcp__scapy__dcerpc_privacy_krb.pcapng.gz",
    "le_ns__tcpdump__tcp-handshake-nano.pcap",
    "sll_tcp__tcpdump__mptcp-aa-echo.pcap",
    "sll2_tcp__zeek__openjdk-25.0.2-zeek.org.pcap",
    "raw101_tcp__suricata-verify__input.pcap",
    "raw12__PcapPlusPlus__many_interfaces-1.pcapng",
    "raw12__PcapPlusPlus__four_ipv6_http_streams.pcap",
    "dlt228_229_tcp__suricata-verify__input.pcap",
    "null_tcp__tcpdump__tcp_rst_diag_payload-trunc.pcap",
    "null_tcp__arkime__smtp-html.pcap",
    "vlan_tcp__suricata-verify__input.pcap",
    "ipv6_exthdr_tcp__zeek__ip6-hoa-tcp-good-chksum.pcap",
    "snaplen_cut_tcp__tcpdump__tcp_rst_data-trunc.pcap",
    "iplen0_tso_tcp__tcpflow__bug7.pcap",
    "iplen0_tso_tcp__tcpdump__ipv4_tcp_http_xml_tso.pcap",
    "seq_wrap__PcapPlusPlus__one_tcp_stream_max_seq.pcap",
    "keepalive__nDPI__h323.pcap",
]


def seen_by_tshark(path: Path) -> list[tuple[object, ...]]:
    command = ["tshark", "-n", "-r", str(path), "-o", "ip.defragment:FALSE", "-T", "fields"]
    for field in FIELDS:
        command += ["-e", field]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    rows: list[tuple[object, ...]] = []
    for line in done.stdout.splitlines():
        number, time, v4, v6, source, v4_to, v6_to, destination, sequence, ack, length, flags = line.split(
            "\t"
        )
        if sequence:
            seconds, _, fraction = time.partition(".")
            rows.append(
                (
                    int(number),
                    int(seconds) * 1_000_000_000 + int(fraction.ljust(9, "0")[:9]),
                    str(Flow(Endpoint(v4 or v6, int(source)), Endpoint(v4_to or v6_to, int(destination)))),
                    int(sequence),
                    int(ack),
                    int(length),
                    int(flags, 16) & 0x3F,
                )
            )
    return rows


@pytest.mark.parametrize(
    "name",
    [
        *(f"torch/{name}" for name in TORCH),
        *(f"thirdparty/{name}" for name in each_kind(THIRD_PARTY, lambda name: name.partition("__")[0])),
    ],
)
def test_rows_are_those_of_tshark(name: str) -> None:
    """Quick, of one capture of each kind; its name begins with what is odd about it."""
    if shutil.which("tshark") is None:
        pytest.skip("tshark is not installed")
    path = recorded(name) if name.startswith("torch/") else foreign(name)
    segmenter = Segmenter()
    rows: list[tuple[object, ...]] = []
    with CaptureReader(str(path)) as reader:
        for packets in reader.blocks():
            block = segmenter.feed(packets)
            columns = (
                block.packet,
                block.time_ns,
                block.flow,
                block.sequence,
                block.acknowledgment,
                block.length,
                block.flags,
            )
            for number, time_ns, flow, *rest in zip(*(column.tolist() for column in columns), strict=True):
                rows.append((number, time_ns, str(segmenter.flows[flow]), *rest))
    assert rows == seen_by_tshark(path)


def test_every_packet_of_every_capture_is_a_segment_or_counted() -> None:
    for path in sorted(foreign("thirdparty").glob("*pcap*")):
        if "invalid-version-1" in path.name:
            continue
        segmenter, segments = Segmenter(), set()
        with CaptureReader(str(path)) as reader:
            for packets in reader.blocks():
                segments |= set(segmenter.feed(packets).packet.tolist())
        assert len(segments) + sum(segmenter.other.values()) == reader.packets, path.name

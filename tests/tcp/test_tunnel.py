"""Packets in packets: what comes out is what was put in, and the same as tshark sees."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpcinspect.tcp.link import LINKS, MAX_NESTING
from rpcinspect.tcp.segment import Segmenter
from tests.builders import (
    Captured,
    ethernet,
    geneve,
    gre,
    ipv4,
    ipv6,
    link_frame,
    mpls,
    packet_block,
    pcap_file,
    ppp,
    pppoe,
    snap,
    tcp,
    udp,
    vxlan,
)
from tests.thorough import examples

Wrap = Callable[[bytes], bytes]
"""Puts an IP packet into a frame."""


def inner(version: int, number: int) -> bytes:
    segment = tcp(b"payload", 5000, 6000, sequence=number)
    if version == 4:
        return ipv4(segment, "10.0.0.1", "10.0.0.2")
    return ipv6(segment, "fd00::1", "fd00::2")


def kind(packet: bytes) -> int:
    return 0x0800 if packet[0] >> 4 == 4 else 0x86DD


def by_4(body: bytes, protocol: int) -> bytes:
    return ethernet(ipv4(body, "192.168.0.1", "192.168.0.2", protocol=protocol))


def by_6(body: bytes, protocol: int) -> bytes:
    return ethernet(ipv6(body, "fe80::1", "fe80::2", protocol=protocol))


def ip_in_ip(packet: bytes) -> int:
    return 4 if packet[0] >> 4 == 4 else 41


ENCAPSULATIONS: dict[str, Wrap] = {
    "three VLAN tags": lambda p: ethernet(p, tags=[(0x88A8, 1), (0x8100, 2), (0x8100, 3)]),
    "older outer tags": lambda p: ethernet(p, tags=[(0x9100, 2), (0x8100, 3)]),
    "802.3 with SNAP": lambda p: ethernet(snap(p), kind=len(snap(p))),
    "MPLS": lambda p: ethernet(mpls(p, [1000, 2000, 3000]), kind=0x8847, tags=[(0x8100, 4)]),
    "PPPoE": lambda p: ethernet(pppoe(p), kind=0x8864),
    "provider backbone": lambda p: ethernet(b"\0\0\0\5" + ethernet(p), kind=0x88E7),
    "VN-Tag": lambda p: ethernet(bytes(4) + kind(p).to_bytes(2, "big") + p, kind=0x8926),
    "IP in IPv4": lambda p: by_4(p, ip_in_ip(p)),
    "IP in IPv6": lambda p: by_6(p, ip_in_ip(p)),
    "GRE": lambda p: by_4(gre(p), 47),
    "GRE over IPv6": lambda p: by_6(gre(p), 47),
    "GRE with a key": lambda p: by_4(gre(p, key=True), 47),
    "GRE with all": lambda p: by_4(gre(p, checksum=True, key=True, sequence=True), 47),
    "GRE with Ethernet": lambda p: by_4(gre(ethernet(p), 0x6558, key=True), 47),
    "GRE with MPLS": lambda p: by_4(gre(mpls(p), 0x8847), 47),
    "GRE with PPP": lambda p: by_4(
        gre(ppp(p, framed=True), 0x880B, key=True, sequence=True, version=1, acknowledgment=True), 47
    ),
    "GRE with short PPP": lambda p: by_4(gre(ppp(p, short=True), 0x880B, key=True, version=1), 47),
    "ERSPAN 1": lambda p: by_4(gre(ethernet(p), 0x88BE), 47),
    "ERSPAN 2": lambda p: by_4(gre(b"\x10\1\0\1" + bytes(4) + ethernet(p), 0x88BE, sequence=True), 47),
    "ERSPAN 3": lambda p: by_4(gre(b"\x20\1\0\1" + bytes(8) + ethernet(p), 0x22EB, sequence=True), 47),
    "ERSPAN 3, longer": lambda p: by_4(
        gre(b"\x20\1\0\1" + bytes(7) + b"\1" + bytes(8) + ethernet(p), 0x22EB, sequence=True), 47
    ),
    "VXLAN": lambda p: by_4(udp(vxlan(ethernet(p)), 4789), 17),
    "VXLAN over IPv6": lambda p: by_6(udp(vxlan(ethernet(p, tags=[(0x8100, 7)])), 4789), 17),
    "VXLAN of Linux": lambda p: by_4(udp(vxlan(ethernet(p)), 8472), 17),
    "Geneve": lambda p: by_4(udp(geneve(ethernet(p)), 6081), 17),
    "Geneve with options": lambda p: by_4(
        udp(geneve(p, kind(p), options=bytes.fromhex("0102000100000000")), 6081), 17
    ),
    "MPLS in UDP": lambda p: by_4(udp(mpls(p), 6635), 17),
    "MPLS in IP": lambda p: by_4(mpls(p), 137),
    "EtherIP": lambda p: by_4(b"\x30\0" + ethernet(p), 97),
    "a tunnel in a tunnel": lambda p: by_4(udp(vxlan(by_6(gre(p), 47)), 4789), 17),
    "behind an authentication header": lambda p: by_4(bytes([ip_in_ip(p), 4]) + bytes(22) + p, 51),
}

LINK_TYPES: dict[int, list[Wrap]] = {
    1: list(ENCAPSULATIONS.values()),
    **{
        link_type: [lambda p, link_type=link_type: link_frame(link_type, p)]  # type: ignore[misc]
        for link_type in LINKS
        if link_type != 1
    },
}


@pytest.mark.parametrize("name", ENCAPSULATIONS)
@pytest.mark.parametrize("version", [4, 6])
def test_the_innermost_segment_counts(name: str, version: int) -> None:
    whole = ENCAPSULATIONS[name](inner(version, 7))
    segmenter = Segmenter()
    block = segmenter.feed(packet_block([whole, whole + b"trailer"]))
    host = "10.0.0.{}" if version == 4 else "[fd00::{}]"
    assert [str(flow) for flow in segmenter.flows] == [f"{host.format(1)}:5000>{host.format(2)}:6000"]
    assert (block.packet.tolist(), block.sequence.tolist()) == ([1, 2], [7, 7])
    assert (block.captured.tolist(), block.length.tolist()) == ([7, 7], [7, 7])
    at = int(block.offset[0]) - block.window_offset
    assert block.window[at : at + 7] == b"payload"
    assert segmenter.other == {}


@pytest.mark.parametrize("name", ENCAPSULATIONS)
def test_every_cut_of_a_tunnel_is_counted_or_a_cut_segment(name: str) -> None:
    whole = ENCAPSULATIONS[name](inner(4, 7))
    frames = [Captured(whole[:size], length=len(whole)) for size in range(len(whole))]
    segmenter = Segmenter()
    block = segmenter.feed(packet_block(frames))
    assert len(block) + sum(segmenter.other.values()) == len(frames)
    assert block.packet.tolist() == list(range(len(whole) - 6, len(whole) + 1))
    assert block.captured.tolist() == list(range(7))
    assert set(block.length.tolist()) == {7}


def test_a_segment_inside_and_outside_of_its_tunnel_has_one_flow() -> None:
    segmenter = Segmenter()
    packet = inner(4, 7)
    block = segmenter.feed(packet_block([ethernet(packet), ENCAPSULATIONS["VXLAN"](packet)]))
    assert block.flow.tolist() == [0, 0]


def test_what_is_no_tunnel() -> None:
    packet = inner(4, 7)
    frames = [
        by_4(udp(packet, 53), 17),
        by_4(udp(vxlan(ethernet(packet), flags=0), 4789), 17),  # no network's number
        by_4(udp(vxlan(ethernet(packet)), 53, source_port=4789), 17),  # the port of the sender
        by_4(udp(geneve(ethernet(packet), version=1), 6081), 17),
        by_4(gre(packet, routing=True), 47),
        by_4(gre(packet, version=2), 47),
        by_4(gre(packet, 0x0003), 47),  # no EtherType
        by_4(gre(b"", 0x0806), 47),
        by_4(udp(vxlan(ethernet(ipv4(bytes(8), "1.1.1.1", "1.1.1.2", protocol=17))), 4789), 17),
        by_4(b"\0\0", 17),
    ]
    segmenter = Segmenter()
    assert len(segmenter.feed(packet_block(frames))) == 0
    assert segmenter.other == {"udp": 5, "not ip": 3, "arp": 1, "cut header": 1}


def test_nesting_ends() -> None:
    packet = inner(4, 7)
    for _ in range(MAX_NESTING):
        packet = ipv4(packet, "192.168.0.1", "192.168.0.2", protocol=4)
    segmenter = Segmenter()
    assert len(segmenter.feed(packet_block([packet], link_type=101))) == 1
    packet = ipv4(packet, "192.168.0.1", "192.168.0.2", protocol=4)
    assert len(segmenter.feed(packet_block([packet], link_type=101))) == 0
    assert segmenter.other == {"ip in ip": 1}


@settings(max_examples=examples(200), deadline=None)
@given(
    name=st.sampled_from(sorted(ENCAPSULATIONS)),
    changes=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=4),
    size=st.integers(0, 250),
)
def test_any_damage_is_a_segment_or_counted(name: str, changes: list[tuple[int, int]], size: int) -> None:
    frame = bytearray(ENCAPSULATIONS[name](inner(4, 7)))
    for at, value in changes:
        frame[at % len(frame)] = value
    segmenter = Segmenter()
    block = segmenter.feed(packet_block([Captured(bytes(frame[:size]), length=len(frame))]))
    assert len(set(block.packet.tolist())) + sum(segmenter.other.values()) == 1


@pytest.mark.parametrize("link_type", LINK_TYPES)
def test_tshark_sees_the_same(link_type: int, tmp_path: Path) -> None:
    if shutil.which("tshark") is None:
        pytest.skip("tshark is not installed")
    frames = [
        wrap(inner(version, 100 + number))
        for version in (4, 6)
        if (link_type, version) not in ((228, 6), (229, 4))
        for number, wrap in enumerate(LINK_TYPES[link_type])
    ]
    path = tmp_path / "capture"
    path.write_bytes(pcap_file([Captured(frame) for frame in frames], link_type=link_type))
    command = ["tshark", "-n", "-r", str(path), "-T", "fields", "-d", "udp.port==8472,vxlan"]
    for field in ("frame.number", "tcp.srcport", "tcp.dstport", "tcp.seq_raw", "tcp.len"):
        command += ["-e", field]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    seen = [tuple(map(int, line.split("\t"))) for line in done.stdout.splitlines()]
    segmenter = Segmenter()
    block = segmenter.feed(packet_block(frames, link_type=link_type))
    ours = zip(block.packet.tolist(), block.sequence.tolist(), block.length.tolist(), strict=True)
    assert [(number, 5000, 6000, sequence, length) for number, sequence, length in ours] == seen
    assert len(seen) == len(frames)

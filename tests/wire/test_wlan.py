"""802.11 data frames and the headers that capture drivers put before them."""

from __future__ import annotations

import struct

import pytest

from rpcinspect.wire.link import LINKS, network_headers
from rpcinspect.wire.rows import IPV4, NOT_IP, WLAN_CONTROL, WLAN_ENCRYPTED, WLAN_PART, Rows
from tests.builders import ipv4, packet_block, radiotap, snap, wlan

IP = ipv4(b"", "1.2.3.4", "5.6.7.8")
BODY = snap(IP)


def read(frames: list[bytes], link_type: int = 105) -> list[tuple[int, bytes, int]]:
    """(row, bytes from the network header on, kind) of each frame, ordered by row."""
    block = packet_block(frames, link_type=link_type)
    rows, kind = network_headers(block.window, Rows.of_block(block), LINKS[link_type])
    columns = (rows.row.tolist(), rows.at.tolist(), rows.end.tolist(), kind.tolist())
    return sorted((row, block.window[at:end], number) for row, at, end, number in zip(*columns, strict=True))


def test_literal_bytes() -> None:
    frame = bytes.fromhex(
        "88 01 2c00"  # QoS data, to the distribution system, duration
        "020000000001 020000000002 020000000003"  # access point, from, to
        "5000 0000"  # sequence control, QoS control
        "aaaa03 000000 0800 45"  # 802.2 with SNAP, IPv4
    )
    assert read([frame]) == [(0, b"\x45", IPV4)]


@pytest.mark.parametrize("subtype", [0, 1, 2, 3, 8, 9, 10, 11])
@pytest.mark.parametrize("flags", [0, 1, 2, 3, 0x08, 0x83])
def test_data_frames(subtype: int, flags: int) -> None:
    flags &= 0x7F if subtype < 8 else 0xFF  # HT control only in QoS frames
    assert read([wlan(BODY, subtype=subtype, flags=flags)]) == [(0, IP, IPV4)]


def test_what_is_not_read() -> None:
    frames = [
        wlan(b"", subtype=4),  # null
        wlan(b"", subtype=12),  # QoS null
        b"\x80\0" + bytes(30),  # beacon
        b"\xd4\0",  # acknowledgment, cut
        wlan(BODY, flags=0x41),  # protected
        wlan(BODY, flags=5),  # more fragments
        wlan(BODY, fragment=1),
        wlan(BODY, quality=0x80),  # several frames in one
        wlan(b"\x42\x42\3" + bytes(9)),
    ]
    assert [(row, kind) for row, _, kind in read(frames)] == [
        (0, WLAN_CONTROL),
        (1, WLAN_CONTROL),
        (2, WLAN_CONTROL),
        (3, WLAN_CONTROL),
        (4, WLAN_ENCRYPTED),
        (5, WLAN_PART),
        (6, WLAN_PART),
        (7, WLAN_PART),
        (8, NOT_IP),
    ]


@pytest.mark.parametrize("words", [1, 2, 3])
@pytest.mark.parametrize("stamp", [False, True])
@pytest.mark.parametrize("flags", [None, 0, 0x10, 0x20, 0x30])
def test_radiotap(words: int, stamp: bool, flags: int | None) -> None:
    padded = flags is not None and flags & 0x20 != 0
    frames = [
        radiotap(wlan(BODY, padded=padded, flags=to), words=words, stamp=stamp, flags=flags) for to in (1, 3)
    ]
    assert read(frames, 127) == [(0, IP, IPV4), (1, IP, IPV4)]


def test_radiotap_headers_that_can_not_be() -> None:
    good = radiotap(wlan(BODY), flags=0)
    frames = [
        struct.pack("<BBHI", 0, 0, 7, 0) + wlan(BODY),  # shorter than itself
        struct.pack("<BBHI", 0, 0, 0xFFFF, 0) + wlan(BODY),  # longer than the packet
        struct.pack("<BBHI", 0, 0, 8, 0x80000002) + wlan(BODY),  # more words than there is room for
        *(good[:size] for size in range(9)),
    ]
    assert [(row, kind) for row, _, kind in read(frames, 127)] == [(2, IPV4)]


def test_prism_in_both_byte_orders_and_avs() -> None:
    frames = [
        struct.pack("<II16s120x", 0x44, 144, b"wlan0") + wlan(BODY),
        struct.pack(">II16s120x", 0x44, 144, b"wlan0") + wlan(BODY),
        struct.pack(">II56x", 0x80211001, 64) + wlan(BODY),
    ]
    for link_type in (119, 163):
        assert read(frames, link_type) == [(0, IP, IPV4), (1, IP, IPV4), (2, IP, IPV4)]
    assert read([frames[0][:7], struct.pack("<II", 0x44, 1 << 20) + bytes(200)], 119) == []

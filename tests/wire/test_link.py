"""Link-layer headers: each type, tags, what is cut and what is unknown."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from rpcinspect.wire.link import LINKS, MAX_TAGS, network_headers
from rpcinspect.wire.rows import IPV4, IPV6, NOT_IP, Rows, gather
from tests.builders import ethernet, ipv4, ipv6, link_frame, packet_block

BODY_4 = ipv4(b"", "1.2.3.4", "5.6.7.8")
BODY_6 = ipv6(b"", "::1", "::2")


def read(frames: list[bytes], link_type: int) -> list[tuple[int, bytes, int]]:
    """(row, bytes from the network header on, kind) of each frame, ordered by row."""
    block = packet_block(frames, link_type=link_type)
    rows, kind = network_headers(block.window, Rows.of_block(block), LINKS[link_type])
    found = [
        (row, block.window[at:end], number)
        for row, at, end, number in zip(
            rows.row.tolist(), rows.at.tolist(), rows.end.tolist(), kind.tolist(), strict=True
        )
    ]
    return sorted(found)


def test_ethernet_literal() -> None:
    frame = bytes.fromhex(
        "020000000002 020000000001 8100 2064 0800 45"  # to, from, VLAN tag with priority 1 and id 100, IPv4
    )
    assert read([frame], 1) == [(0, b"\x45", IPV4)]


@pytest.mark.parametrize("link_type", sorted(LINKS))
@pytest.mark.parametrize("order", ["<", ">"])
def test_every_link_type(link_type: int, order: str) -> None:
    expected = [(0, BODY_4, IPV4), (1, BODY_6, IPV6)]
    frames = [link_frame(link_type, BODY_4, order), link_frame(link_type, BODY_6, order)]
    if link_type == 228:
        frames, expected = frames[:1], expected[:1]
    if link_type == 229:
        frames, expected = frames[1:], [(0, BODY_6, IPV6)]
    assert read(frames, link_type) == expected


@pytest.mark.parametrize("link_type", sorted(LINKS))
def test_every_link_type_cut_at_every_length(link_type: int) -> None:
    whole = link_frame(link_type, BODY_4)
    header = len(whole) - len(BODY_4)
    for size in range(len(whole)):
        found = read([whole[:size]], link_type)
        bare = link_type in (12, 14, 101, 226)  # the version is in the first byte of the packet
        assert [row[1] for row in found] == ([whole[header:size]] if size >= header + bare else [])


@pytest.mark.parametrize("tag", [0x8100, 0x88A8, 0x9100])
def test_tags(tag: int) -> None:
    frames = [
        ethernet(BODY_4, tags=[(tag, 5), (0x8100, 6)]),
        ethernet(BODY_6),
        ethernet(BODY_6, tags=[(tag, 7)]),
        ethernet(b"")[:12] + struct.pack(">HH", tag, 5),  # cut within the tag
        ethernet(b"arp", kind=0x0806, tags=[(tag, 8)]),
    ]
    assert read(frames, 1) == [(0, BODY_4, IPV4), (1, BODY_6, IPV6), (2, BODY_6, IPV6), (4, b"arp", 0x0806)]


def test_tags_in_cooked_frames() -> None:
    frame = link_frame(113, BODY_4)
    tagged = frame[:14] + struct.pack(">HHH", 0x8100, 5, IPV4) + BODY_4
    assert read([tagged], 113) == [(0, BODY_4, IPV4)]


def test_endless_tags_end() -> None:
    ((row, _, kind),) = read([ethernet(bytes(2000), kind=0x8100, tags=[(0x8100, 1)] * (MAX_TAGS + 5))], 1)
    assert (row, kind) == (0, 0x8100)


@pytest.mark.parametrize(
    ("family", "kind"),
    [(2, IPV4), (10, IPV6), (23, IPV6), (24, IPV6), (28, IPV6), (30, IPV6), (7, NOT_IP), (0, NOT_IP)],
)
def test_loopback_families(family: int, kind: int) -> None:
    frames = [struct.pack(order + "I", family) + b"x" for order in "<>"]
    assert read(frames, 0) == [(0, b"x", kind), (1, b"x", kind)]


def test_raw_that_is_neither_version() -> None:
    assert read([b"\x10", b"\x45", b"\x60"], 101) == [
        (0, b"\x10", NOT_IP),
        (1, b"\x45", IPV4),
        (2, b"\x60", IPV6),
    ]


def test_gather() -> None:
    window = bytes(range(20))
    found = gather(window, np.array([0, 3, 16]), ">u2", 2)
    assert found.tolist() == [[0x0001, 0x0203], [0x0304, 0x0506], [0x1011, 0x1213]]
    assert gather(b"", np.array([], dtype=np.int64), ">u2", 2).shape == (0, 2)

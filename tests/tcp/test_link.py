"""Link-layer headers: each type, tags, what is cut and what is unknown."""

from __future__ import annotations

import struct

import pytest

from rpcinspect.tcp.link import LINKS, MAX_TAGS, network_headers
from rpcinspect.tcp.rows import BARE, IPV4, IPV6, LLC, NOT_IP, Rows
from tests.builders import ethernet, ipv4, ipv6, link_frame, mpls, packet_block, ppp, pppoe, snap

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


@pytest.mark.parametrize("tag", [0x8100, 0x88A8, 0x9100, 0x9200])
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


def test_an_802_3_frame_has_a_length_in_the_place_of_its_ethertype() -> None:
    frames = [
        ethernet(snap(BODY_4), kind=len(snap(BODY_4))),
        ethernet(snap(BODY_6), kind=100, tags=[(0x8100, 5)]),
        ethernet(b"\6\6\3" + BODY_4, kind=23),  # the access point of IPv4
        ethernet(b"\x42\x42\3" + bytes(35), kind=38),  # spanning tree
        ethernet(b"\xaa\xaa\3\0\0\x0c\x20\0" + bytes(9), kind=17),  # another vendor's SNAP
        ethernet(snap(bytes(9), kind=LLC), kind=17),  # a length in the place of SNAP's EtherType
        ethernet(snap(bytes(9), kind=BARE), kind=17),
    ]
    found = read(frames, 1)
    assert found[:3] == [(0, BODY_4, IPV4), (1, BODY_6, IPV6), (2, BODY_4, IPV4)]
    assert [kind for _, _, kind in found[3:]] == [NOT_IP] * 4


@pytest.mark.parametrize("link_type", [113, 276])
def test_a_cooked_frame_may_have_an_802_2_header(link_type: int) -> None:
    frame = link_frame(link_type, BODY_4)
    at = 14 if link_type == 113 else 0

    def of(kind: int) -> bytes:
        return frame[:at] + struct.pack(">H", kind) + frame[at + 2 : -len(BODY_4)]

    assert read([of(4) + snap(BODY_6)], link_type) == [(0, BODY_6, IPV6)]
    assert read([of(1) + BODY_4], link_type) == [(0, BODY_4, NOT_IP)]


@pytest.mark.parametrize("labels", [(16,), (1000, 2000, 3000)])
@pytest.mark.parametrize("number", [0x8847, 0x8848])
def test_mpls(labels: tuple[int, ...], number: int) -> None:
    frames = [
        ethernet(mpls(BODY_4, labels), kind=number),
        ethernet(mpls(BODY_6, labels), kind=number, tags=[(0x8100, 1)]),
        ethernet(mpls(bytes(4) + ethernet(BODY_6), labels), kind=number),  # a control word
        ethernet(mpls(b"\x10\0\0\x21" + BODY_4, labels), kind=number),  # a channel of control
        ethernet(mpls(b"", labels), kind=number),
    ]
    assert read(frames, 1)[:3] == [(0, BODY_4, IPV4), (1, BODY_6, IPV6), (2, BODY_6, IPV6)]
    assert [kind for _, _, kind in read(frames, 1)[3:]] == [NOT_IP]


def test_a_stack_of_labels_without_a_bottom_ends() -> None:
    ((_, _, kind),) = read([ethernet(bytes(400), kind=0x8847)], 1)
    assert kind == NOT_IP
    assert read([ethernet(bytes(30), kind=0x8847)], 1) == []


def test_pppoe() -> None:
    frames = [
        ethernet(pppoe(BODY_4), kind=0x8864),
        ethernet(pppoe(BODY_6), kind=0x8864, tags=[(0x88A8, 1), (0x8100, 2)]),
        ethernet(bytes.fromhex("11 00 0007 000a c021 0105"), kind=0x8864),  # the link's own control
        ethernet(bytes.fromhex("11 09 0000 0000"), kind=0x8863),  # discovery
    ]
    assert read(frames, 1) == [
        (0, BODY_4, IPV4),
        (1, BODY_6, IPV6),
        (2, b"\1\5", NOT_IP),
        (3, frames[3][14:], 0x8863),
    ]


@pytest.mark.parametrize("link_type", [9, 50])
def test_ppp_leaves_things_out(link_type: int) -> None:
    frames = [
        ppp(body, framed=framed, short=short)
        for body in (BODY_4, BODY_6)
        for framed in (False, True)
        for short in (False, True)
    ]
    assert [(body, kind) for _, body, kind in read(frames, link_type)] == [(BODY_4, IPV4)] * 4 + [
        (BODY_6, IPV6)
    ] * 4
    assert read([b"\x02\x81" + mpls(BODY_4)], link_type) == [(0, BODY_4, IPV4)]


def test_serial_ppp_may_be_cisco_hdlc() -> None:
    frames = [b"\x0f\0\x08\0" + BODY_4, b"\x8f\0\x86\xdd" + BODY_6, ppp(BODY_4, framed=True)]
    assert read(frames, 50) == [(0, BODY_4, IPV4), (1, BODY_6, IPV6), (2, BODY_4, IPV4)]


def test_headers_of_bridges_and_switches() -> None:
    frames = [
        ethernet(b"\0\0\0\5" + ethernet(BODY_4), kind=0x88E7, tags=[(0x88A8, 9)]),  # provider backbone
        ethernet(bytes(4) + b"\x86\xdd" + BODY_6, kind=0x8926),  # VN-Tag
    ]
    assert read(frames, 1) == [(0, BODY_4, IPV4), (1, BODY_6, IPV6)]


@pytest.mark.parametrize("link_type", [149, 258])
def test_a_header_that_holds_a_link_type(link_type: int) -> None:
    def header(inner: int, size: int, told: int) -> bytes:
        return struct.pack("<III", told, 1, inner) + bytes(size - 12)

    frames = [
        header(1, 20, 20) + ethernet(BODY_4),
        header(101, 108, 108) + BODY_6,
        header(105, 20, 20) + BODY_4,  # 802.11, which is not read here
        header(999, 20, 20) + BODY_4,  # not known
        header(link_type, 20, 20) + header(1, 20, 20) + ethernet(BODY_4),  # in itself: nobody does that
        header(1, 20, 7) + ethernet(BODY_4),  # sizes that can't be
        header(1, 20, 0xFFFF) + ethernet(BODY_4),
    ]
    found = read(frames, link_type)
    assert found[:2] == [(0, BODY_4, IPV4), (1, BODY_6, IPV6)]
    assert [(row, kind) for row, _, kind in found[2:]] == [(2, NOT_IP), (3, NOT_IP), (4, NOT_IP)]

"""Headers around IP of many packets at once: from the start of the frame to the network header, and from
what is behind an outer IP header to the header of what it carries.

In: the window of a packet block and `Rows` at the link-layer header, or behind an outer IP header. Out:
`Rows` at the network header and what that header is, an EtherType, or `NO_TUNNEL` where a UDP datagram
carries no packet; rows whose header is not all there are left out. A new link type is one line in `LINKS`, a
new header between link and network one line in `TAGS`, a new tunnel one in `TUNNELS`. Whose tunnel it was is
forgotten: the innermost TCP segment is what counts, so that a segment seen inside and outside of its tunnel
is one segment seen twice.

LINKTYPE_ numbers are those of tcpdump.org/linktypes.html. Mirrors IEEE 802.1Q, 802.2 and 802.3, RFC 1042
(SNAP), 1661 and 1662 (PPP), 2516 (PPPoE), 3032 (MPLS) and 4448 (Ethernet over MPLS, where it has a control
word); RFC 2784 and 2890 (GRE), 2637 (GRE with PPP), 7348 (VXLAN), 8926 (Geneve), 2003, 2473 and 4213 (IP in
IP), 4023 and 7510 (MPLS in IP and UDP), 3378 (EtherIP) and draft-foschiano-erspan.
"""

from __future__ import annotations

import numpy as np

from rpcinspect.capture.block import Int64s
from rpcinspect.tcp.rows import (
    BARE,
    BRIDGED,
    IPV4,
    IPV6,
    LEAST_ETHERTYPE,
    LLC,
    NO_TUNNEL,
    NOT_IP,
    PPP,
    Kinds,
    Layer,
    Rows,
    alternatives,
    carries,
    distinct_numbers,
    ether_types,
    gather,
    is_one_of,
    joined,
)

MAX_TAGS = 16
"""Tags that are stepped over in one frame; honest ones have four at most."""
MAX_LABELS = 16


def network_headers(window: bytes, rows: Rows, link: Layer) -> tuple[Rows, Kinds]:
    """Step over the link-layer header and the tags behind it; kinds are EtherTypes or `NOT_IP`."""
    rows, kind = link(window, rows)
    return step_over_tags(window, rows, kind)


def step_over_tags(window: bytes, rows: Rows, kind: Kinds) -> tuple[Rows, Kinds]:
    """Step over what lies between a link and a network header."""
    for _ in range(MAX_TAGS):
        tagged = _IS_TAG[kind]
        if not tagged.any():
            break
        parts = [(rows.keep(~tagged), kind[~tagged])]
        for number in distinct_numbers(kind[tagged]):
            parts.append(TAGS[number](window, rows.keep(kind == number)))
        rows, kind = joined(parts)
    if (kind == BARE).any():
        rows, kind = _by_version(window, rows, kind)
    return rows, kind


def _by_version(window: bytes, rows: Rows, kind: Kinds) -> tuple[Rows, Kinds]:
    known = (kind != BARE) | (rows.end > rows.at)
    rows, kind = rows.keep(known), kind[known]
    bare = kind == BARE
    version = gather(window, rows.at[bare], "u1")[:, 0] >> 4
    kind[bare] = np.select([version == 4, version == 6], [IPV4, IPV6], NOT_IP)
    return rows, kind


def _header(size: int, kind_at: int, below: int = NOT_IP) -> Layer:
    """A link layer (or tag) of fixed size that has the EtherType at a fixed place."""

    def read(window: bytes, rows: Rows) -> tuple[Rows, Kinds]:
        rows = rows.having(size)
        return rows.moved(size), ether_types(window, rows.at + kind_at, below)

    return read


def _by_family(size: int) -> Layer:
    """A header that starts with an address family as u32, in the byte order of the machine that captured
    (LOOP: big).
    """

    def read(window: bytes, rows: Rows) -> tuple[Rows, Kinds]:
        rows = rows.having(size)
        little = gather(window, rows.at, "<u4")[:, 0]
        family = np.where(little < 0x10000, little, little.byteswap())
        version_6 = (family == 10) | (family == 23) | (family == 24) | (family == 28) | (family == 30)
        kind = np.select([family == 2, version_6], [IPV4, IPV6], NOT_IP).astype(np.uint16)
        return rows.moved(size), kind

    return read


def _cooked(size: int, kind_at: int) -> Layer:
    """Linux cooked capture: 4 in the place of an EtherType means an 802.2 header."""

    def read(window: bytes, rows: Rows) -> tuple[Rows, Kinds]:
        rows = rows.having(size)
        kind: Kinds = gather(window, rows.at + kind_at, ">u2")[:, 0].astype(np.uint16)
        low = kind < LEAST_ETHERTYPE
        if low.any():
            kind[low] = np.where(kind[low] == 4, LLC, NOT_IP)
        return rows.moved(size), kind

    return read


def _llc(window: bytes, rows: Rows) -> tuple[Rows, Kinds]:
    """802.2: with SNAP an EtherType follows; the access point 6 is IPv4."""
    rows = rows.having(8)
    head = gather(window, rows.at, "u1", 6).astype(np.int64)
    access = head[:, 0] << 16 | head[:, 1] << 8 | head[:, 2]
    vendor = head[:, 3] << 16 | head[:, 4] << 8 | head[:, 5]
    snap = (access == 0xAAAA03) & ((vendor == 0) | (vendor == 0xF8))
    kind = np.where(access == 0x060603, IPV4, NOT_IP).astype(np.uint16)
    kind[snap] = ether_types(window, rows.at[snap] + 6)
    return rows.moved(np.where(snap, 8, 3)), kind


def _ppp(window: bytes, rows: Rows) -> tuple[Rows, Kinds]:
    """PPP: address and control may be left out, and of a small protocol number the first byte."""
    rows = rows.having(2)
    framed = gather(window, rows.at, ">u2")[:, 0] == 0xFF03
    rows = rows.moved(np.where(framed, 2, 0)).having(2)
    protocol = gather(window, rows.at, ">u2")[:, 0]
    short = protocol >> 8 & 1 == 1
    protocol = np.where(short, protocol >> 8, protocol)
    known = [protocol == 0x21, protocol == 0x57, protocol == 0x281, protocol == 0x283]
    kind = np.select(known, [IPV4, IPV6, 0x8847, 0x8848], NOT_IP).astype(np.uint16)
    return rows.moved(np.where(short, 1, 2)), kind


def _serial_ppp(window: bytes, rows: Rows) -> tuple[Rows, Kinds]:
    """PPP in HDLC-like frames, or Cisco's HDLC, which has an EtherType; the first byte tells."""
    rows = rows.having(4)
    cisco = np.isin(gather(window, rows.at, "u1")[:, 0], (0x0F, 0x8F))
    return joined([_ppp(window, rows.keep(~cisco)), _header(4, 2)(window, rows.keep(cisco))])


def _mpls(window: bytes, rows: Rows) -> tuple[Rows, Kinds]:
    """Skips a stack of labels; the next half byte tells the payload, 0 is Ethernet's control word."""
    done: list[tuple[Rows, Kinds]] = []
    for _ in range(MAX_LABELS):
        rows = rows.having(4)
        last = gather(window, rows.at, ">u4")[:, 0] >> 8 & 1 == 1
        rows = rows.moved(4)
        ended = rows.keep(last).having(1)
        half = gather(window, ended.at, "u1")[:, 0] >> 4
        kind = np.select([half == 0, half == 4, half == 6], [BRIDGED, IPV4, IPV6], NOT_IP).astype(np.uint16)
        done.append((ended.moved(np.where(half == 0, 4, 0)), kind))
        rows = rows.keep(~last)
        if not len(rows):
            break
    done.append((rows, np.full(len(rows), NOT_IP, dtype=np.uint16)))
    return joined(done)


def _pktap(window: bytes, rows: Rows) -> tuple[Rows, Kinds]:
    """Apple's packet metadata: the size of this header, at byte 8 the link type of what follows."""
    rows = rows.having(12)
    size: Int64s = gather(window, rows.at, "<u4")[:, 0].astype(np.int64)
    link_type = gather(window, rows.at + 8, "<u4")[:, 0]
    enough = (size >= 12) & (size <= rows.end - rows.at)
    rows, link_type = rows.keep(enough).moved(size[enough]), link_type[enough]
    parts = [(rows.keep(np.zeros(len(rows), dtype=np.bool_)), np.empty(0, dtype=np.uint16))]
    for number in distinct_numbers(link_type):
        link = LINKS.get(number, _pktap)
        link = carries(0, NOT_IP) if link is _pktap else link
        parts.append(link(window, rows.keep(link_type == number)))
    return joined(parts)


_ETHERNET = _header(14, 12, LLC)

LINKS: dict[int, Layer] = {
    0: _by_family(4),  # NULL
    1: _ETHERNET,
    9: _ppp,
    12: carries(0, BARE),  # raw IP, as some BSDs number it in files
    14: carries(0, BARE),
    50: _serial_ppp,
    51: carries(6, PPP),  # PPPoE without its Ethernet header
    101: carries(0, BARE),  # RAW
    104: _header(4, 2),  # Cisco HDLC
    108: _by_family(4),  # LOOP
    109: _by_family(12),  # OpenBSD's IPsec
    113: _cooked(16, 14),  # Linux cooked capture
    138: _header(18, 16),  # IP over IEEE 1394, Apple's
    149: _pktap,
    226: carries(24, BARE),  # Solaris' IPNET
    228: carries(0, IPV4),
    229: carries(0, IPV6),
    258: _pktap,
    276: _cooked(20, 0),  # Linux cooked capture, version 2
}
"""LINKTYPE_ number → how to find the network header."""

TAGS: dict[int, Layer] = {
    LLC: _llc,
    0x8100: _header(4, 2, LLC),  # VLAN
    0x88A8: _header(4, 2, LLC),  # VLAN, outer tag
    0x9100: _header(4, 2, LLC),  # VLAN, outer tag before it was standardised
    0x9200: _header(4, 2, LLC),
    0x88E7: carries(4, BRIDGED),  # provider backbone
    0x8926: _header(6, 4),  # VN-Tag
    0x8847: _mpls,
    0x8848: _mpls,
    0x8864: carries(6, PPP),  # PPPoE session
    PPP: _ppp,
    BRIDGED: _ETHERNET,
}
"""EtherType of what lies between link and network header → how to step over it."""

_IS_TAG = is_one_of(TAGS)

ETHERTYPES = {
    0x0806: "arp",
    0x8035: "rarp",
    0x8863: "pppoe discovery",
    0x888E: "eapol",
    0x88CC: "lldp",
    0x88E5: "macsec",
    NOT_IP: "not ip",
}
"""Names for what is counted and not read."""


MAX_NESTING = 8
"""Tunnels that are followed into each other."""


def _gre(window: bytes, rows: Rows) -> tuple[Rows, Kinds]:
    """Skips GRE: flags tell which optional words there are; version 1 (PPTP) may have one more."""
    rows = rows.having(4)
    flags, kind = gather(window, rows.at, ">u2", 2).astype(np.int64).T
    words = 1 + (flags & 0xC000 != 0) + (flags & 0x2000 != 0) + (flags & 0x1000 != 0)
    words += (flags & 7 == 1) & (flags & 0x80 != 0)
    size = words * 4
    mirrored, mirrored_3 = kind == 0x88BE, kind == 0x22EB  # ERSPAN: a copy of a frame from a switch's port
    size += np.where(mirrored & (flags & 0x1000 != 0), 8, 0) + np.where(mirrored_3, 12, 0)
    kind = np.where(kind < 0x600, NOT_IP, kind)
    kind = np.where(mirrored | mirrored_3, BRIDGED, kind)
    kind = np.where((flags & 0x4000 != 0) | (flags & 7 > 1), NOT_IP, kind)  # source routes: nobody has any
    enough = rows.end - rows.at >= size
    rows, size, kind, mirrored_3 = rows.keep(enough), size[enough], kind[enough], mirrored_3[enough]
    longer = mirrored_3.copy()  # the last bit of its header: 8 bytes more
    longer[longer] = gather(window, (rows.at + size)[longer] - 1, "u1")[:, 0] & 1 == 1
    return rows.moved(size + np.where(longer, 8, 0)), kind.astype(np.uint16)


def _udp(window: bytes, rows: Rows) -> tuple[Rows, Kinds]:
    """Skips UDP; the destination's port tells the payload."""
    rows = rows.having(8)
    port = gather(window, rows.at + 2, ">u2")[:, 0]
    known = _IS_TUNNEL_PORT[port]
    if not known.any():
        return rows, np.full(len(rows), NO_TUNNEL, dtype=np.uint16)
    others = rows.keep(~known)
    parts = [(others, np.full(len(others), NO_TUNNEL, dtype=np.uint16))]
    for number in distinct_numbers(port[known]):
        parts.append(UDP_PORTS[number](window, rows.keep(port == number).moved(8)))
    return joined(parts)


def _vxlan(window: bytes, rows: Rows) -> tuple[Rows, Kinds]:
    """Skips VXLAN: 8 bytes, whose flags must announce the network's number."""
    rows = rows.having(8)
    valid = gather(window, rows.at, "u1")[:, 0] & 0x08 != 0
    chosen = rows.keep(valid).moved(8)
    return alternatives(rows, valid, chosen, np.full(len(chosen), BRIDGED, dtype=np.uint16), NO_TUNNEL)


def _geneve(window: bytes, rows: Rows) -> tuple[Rows, Kinds]:
    """Geneve: version and length of the options in the first byte, an EtherType at byte 2."""
    rows = rows.having(8)
    first = gather(window, rows.at, "u1")[:, 0].astype(np.int64)
    size = 8 + (first & 0x3F) * 4
    enough = rows.end - rows.at >= size
    rows, first, size = rows.keep(enough), first[enough], size[enough]
    valid = first >> 6 == 0
    chosen = rows.keep(valid)
    return alternatives(rows, valid, chosen.moved(size[valid]), ether_types(window, chosen.at + 2), NO_TUNNEL)


UDP_PORTS: dict[int, Layer] = {
    4789: _vxlan,
    6081: _geneve,
    6635: carries(0, 0x8847),
    8472: _vxlan,  # as Linux numbers it, and with it most networks of containers
}
"""Port of a UDP datagram's receiver → how to find what it carries."""

_IS_TUNNEL_PORT = is_one_of(UDP_PORTS)

TUNNELS: dict[int, Layer] = {
    4: carries(0, IPV4),
    17: _udp,
    41: carries(0, IPV6),
    47: _gre,
    97: carries(2, BRIDGED),  # EtherIP
    137: carries(0, 0x8847),
}
"""Number of the protocol behind IP → how to find what it carries."""

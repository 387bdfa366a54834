"""Packets in packets: from what is behind an outer IP header to the header of what it carries.

In: the window and `Rows` behind the outer IP header. Out: `Rows` at the inner header and what that is, an
EtherType, or `NO_TUNNEL` where a UDP datagram carries no packet. Whose tunnel it was is forgotten: the
innermost TCP segment is what counts, so that a segment seen inside and outside of its tunnel is one segment
seen twice. Mirrors RFC 2784 and 2890 (GRE), 2637 (GRE with PPP), 7348 (VXLAN), 8926 (Geneve), 2003, 2473 and
4213 (IP in IP), 4023 and 7510 (MPLS in IP and UDP), 3378 (EtherIP) and draft-foschiano-erspan.
"""

from __future__ import annotations

import numpy as np

from rpcinspect.tcp.rows import (
    BRIDGED,
    IPV4,
    IPV6,
    NO_TUNNEL,
    NOT_IP,
    Kinds,
    Layer,
    Rows,
    alternatives,
    carries,
    distinct_numbers,
    ether_types,
    gather,
    joined,
)

MAX_NESTING = 8
"""Tunnels that are followed into each other."""


def _gre(window: bytes, rows: Rows) -> tuple[Rows, Kinds]:
    """GRE: flags say which optional words there are; version 1 (PPTP) may have one more."""
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
    """UDP: the destination's port says what is carried."""
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
    """VXLAN: 8 bytes, of which the flags say that there is a network's number."""
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

_IS_TUNNEL_PORT = np.isin(np.arange(1 << 16), list(UDP_PORTS))

TUNNELS: dict[int, Layer] = {
    4: carries(0, IPV4),
    17: _udp,
    41: carries(0, IPV6),
    47: _gre,
    97: carries(2, BRIDGED),  # EtherIP
    137: carries(0, 0x8847),
}
"""Number of the protocol behind IP → how to find what it carries."""

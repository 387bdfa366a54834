"""IPv4 and IPv6 headers of many packets at once: from the network header to what is behind IP.

In: the window of a packet block and `Rows` at the network header. Out: `IpPackets` at the next header,
bounded by the length that the IP header gives, so that padding and trailers of the link layer are cut off,
and apart from them the `Fragments`, which are not whole packets. A length of 0 (segmentation offload, frames
above 64 KB) means the rest of the frame. Checksums are never looked at: offload leaves them unset in most
captures. Mirrors RFC 791 and RFC 8200 (and 4302 for the length of the authentication header). Where a source
route names a later destination, the one in the fixed header counts, in both versions.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from rpcinspect.capture.block import Int64s
from rpcinspect.tcp.rows import IPV4, IPV6, Mask, Rows, gather

Count = Callable[[str, int], None]
"""Takes a reason and the number of packets that it concerns."""

TCP = 6
CUT = -1
"""In place of a protocol number: a chain of extension headers that is not all there."""
FRAGMENT_HEADER = 44
AUTHENTICATION_HEADER = 51

Addresses = tuple[NDArray[np.uint64], ...]
"""Columns of big-endian numbers: IPv4 has one column (source in the upper half), IPv6 four (source, source,
destination, destination)."""


class IpPackets(Struct, frozen=True, eq=False):
    """Packets at what is behind IP."""

    rows: Rows
    addresses: Addresses
    protocol: Int64s
    """What is behind IP; `CUT` where that is not there."""

    def keep(self, mask: Mask) -> IpPackets:
        """The packets where `mask` is set."""
        if mask.all():
            return self
        return IpPackets(
            self.rows.keep(mask), tuple(column[mask] for column in self.addresses), self.protocol[mask]
        )


class Fragments(Struct, frozen=True, eq=False):
    """Fragments of packets, each at its data."""

    packets: IpPackets
    """`protocol` is the one of the whole packet; in IPv6 it is good in first fragments only."""
    identification: Int64s
    start: Int64s
    """Where the data belong in the whole packet, in bytes from its first."""
    more: Mask
    """Whether this is not the last part."""


def read_ipv4(window: bytes, rows: Rows, count: Count) -> tuple[IpPackets, Fragments | None]:
    """IPv4 with any options."""
    whole = rows.having(20)
    count("cut header", len(rows) - len(whole))
    header = gather(window, whole.at, ">u2", 10)
    first = header[:, 0].astype(np.int64)
    size = (first >> 8 & 15) * 4
    total = header[:, 1].astype(np.int64)
    total = np.where(total == 0, whole.wire - whole.at, total)
    good = (first >> 12 == 4) & (size >= 20) & (total >= size)
    if not good.all():
        count("bad ip header", int((~good).sum()))
        whole, size, total, header = whole.keep(good), size[good], total[good], header[good]
    wire = whole.at + total
    addresses = np.ascontiguousarray(header[:, 6:]).view(">u8")[:, 0].astype(np.uint64)
    rows = Rows(whole.row, whole.at + size, np.minimum(whole.end, wire), wire)
    packets = IpPackets(rows, (addresses,), (header[:, 4] & 0xFF).astype(np.int64))
    fragments = None
    place = header[:, 3] & 0x3FFF  # offset in units of 8 bytes, and above it whether more fragments follow
    if place.any():
        part = place != 0
        # one packet may have the same number as one of another protocol
        identification = header[part, 2].astype(np.int64) << 8 | packets.protocol[part]
        fragments = Fragments(
            packets.keep(part),
            identification,
            (place[part] & 0x1FFF).astype(np.int64) * 8,
            place[part] & 0x2000 != 0,
        )
        packets = packets.keep(~part)
    return behind_extensions(window, packets), fragments


def read_ipv6(window: bytes, rows: Rows, count: Count) -> tuple[IpPackets, Fragments | None]:
    """IPv6; extension headers are followed packet by packet."""
    whole = rows.having(40)
    count("cut header", len(rows) - len(whole))
    header = gather(window, whole.at, ">u2", 20)
    size = header[:, 2].astype(np.int64)
    size = np.where(size == 0, whole.wire - whole.at - 40, size)
    good = (header[:, 0] >> 12 == 6) & (size >= 0)
    if not good.all():
        count("bad ip header", int((~good).sum()))
        whole, size, header = whole.keep(good), size[good], header[good]
    at = whole.at + 40
    wire = at + size
    columns = np.ascontiguousarray(header[:, 4:]).view(">u8").astype(np.uint64)
    addresses = tuple(np.ascontiguousarray(columns[:, column]) for column in range(4))
    rows = Rows(whole.row, at, np.minimum(whole.end, wire), wire)
    packets = behind_extensions(window, IpPackets(rows, addresses, (header[:, 3] >> 8).astype(np.int64)))
    part = packets.protocol == FRAGMENT_HEADER
    if not part.any():
        return packets, None
    fragments = _ipv6_fragments(window, packets.keep(part))
    return packets.keep(~part), fragments


def _ipv6_fragments(window: bytes, packets: IpPackets) -> Fragments:
    """Returns packets at their complete fragment headers."""
    header = gather(window, packets.rows.at, ">u2", 4).astype(np.int64)
    packets = IpPackets(packets.rows.moved(8), packets.addresses, header[:, 0] >> 8)
    return Fragments(packets, header[:, 2] << 16 | header[:, 3], header[:, 1] & 0xFFF8, header[:, 1] & 1 != 0)


def behind_extensions(window: bytes, packets: IpPackets) -> IpPackets:
    """Moves packets behind their extension headers, or to the header that marks a fragment."""
    known = _IS_EXTENSION[len(packets.addresses)]
    extended = known[packets.protocol]
    if not extended.any():
        return packets
    rows, protocol, at = packets.rows, packets.protocol.copy(), packets.rows.at.copy()
    for position in np.flatnonzero(extended).tolist():
        protocol[position], at[position] = _step_over_extensions(
            window, int(at[position]), int(rows.end[position]), int(protocol[position]), known
        )
    return IpPackets(Rows(rows.row, at, rows.end, rows.wire), packets.addresses, protocol)


def _step_over_extensions(window: bytes, at: int, end: int, protocol: int, known: Mask) -> tuple[int, int]:
    """Protocol and position behind the extension headers, one packet at a time; they are rare."""
    while known[protocol]:
        if end - at < 8:
            return CUT, at
        following, size = window[at], (window[at + 1] + 1) * 8
        if protocol == FRAGMENT_HEADER:
            size = 8
            if window[at + 2] or window[at + 3] & 0xF9:  # else it is all there is
                return protocol, at
        elif protocol == AUTHENTICATION_HEADER:
            size = (window[at + 1] + 2) * 4
        at += size
        protocol = following
    return protocol, at


_PROTOCOLS = np.arange(257)
"""The last for `CUT`."""
_IS_EXTENSION: dict[int, Mask] = {
    1: np.isin(_PROTOCOLS, [AUTHENTICATION_HEADER]),
    4: np.isin(_PROTOCOLS, [0, 43, FRAGMENT_HEADER, AUTHENTICATION_HEADER, 60, 135, 139, 140]),
}
"""Columns of the addresses → which protocols are headers to step over: IPv4 has only the one."""

PROTOCOLS = {
    CUT: "cut header",
    1: "icmp",
    2: "igmp",
    4: "ip in ip",
    17: "udp",
    41: "ip in ip",
    FRAGMENT_HEADER: "ip fragment",
    47: "gre",
    50: "esp",
    58: "icmp",
    132: "sctp",
}
"""Names for what is counted and not read."""

NETWORKS: dict[int, Callable[[bytes, Rows, Count], tuple[IpPackets, Fragments | None]]] = {
    IPV4: read_ipv4,
    IPV6: read_ipv6,
}
"""EtherType → how to read the header."""

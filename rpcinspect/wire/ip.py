"""IPv4 and IPv6 headers of many packets at once: from the network header to the TCP header.

In: the window of a packet block and `Rows` at the network header. Out: `IpPackets` at the TCP header, bounded
by the length that the IP header gives, so that padding and trailers of the link layer are cut off. A length
of 0 (segmentation offload, frames above 64 KB) means the rest of the frame. Checksums are never looked at:
offload leaves them unset in most captures. Whatever is not the start of a TCP segment is counted. Mirrors
RFC 791 and RFC 8200 (and 4302 for the length of the authentication header). Where a source route names a
later destination, the one in the fixed header counts, in both versions.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rpcinspect.capture.block import Int64s
from rpcinspect.wire.link import IPV4, IPV6, Mask, Rows, gather

Count = Callable[[str, int], None]
"""Takes a reason and the number of packets that it concerns."""

TCP = 6
FRAGMENT = -1
"""In place of a protocol number: a fragment that is not the first."""
CUT = -2
"""In place of a protocol number: a chain of extension headers that is not all there."""


@dataclass(frozen=True, slots=True, eq=False)
class IpPackets:
    """Packets at their TCP header, with the addresses as columns of big-endian numbers.

    IPv4 has one column (source in the upper half), IPv6 four (source, source, destination, destination).
    """

    rows: Rows
    addresses: tuple[NDArray[np.uint64], ...]

    def keep(self, mask: Mask) -> IpPackets:
        """The packets where `mask` is set."""
        if mask.all():
            return self
        return IpPackets(self.rows.keep(mask), tuple(column[mask] for column in self.addresses))


def read_ipv4(window: bytes, rows: Rows, count: Count) -> IpPackets:
    """IPv4 with any options; of fragments only the first, which has the TCP header."""
    whole = rows.having(20)
    count("cut header", len(rows) - len(whole))
    header = gather(window, whole.at, ">u2", 10)
    first = header[:, 0].astype(np.int64)
    size = (first >> 8 & 15) * 4
    total = header[:, 1].astype(np.int64)
    total = np.where(total == 0, whole.wire - whole.at, total)
    good = (first >> 12 == 4) & (size >= 20) & (total >= size)
    protocol = (header[:, 4] & 0xFF).astype(np.int64)
    protocol[header[:, 3] & 0x1FFF != 0] = FRAGMENT
    chosen = _tcp(good, protocol, count)
    rows, size, total, header = whole.keep(chosen), size[chosen], total[chosen], header[chosen]
    wire = rows.at + total
    addresses = np.ascontiguousarray(header[:, 6:]).view(">u8")[:, 0].astype(np.uint64)
    return IpPackets(Rows(rows.row, rows.at + size, np.minimum(rows.end, wire), wire), (addresses,))


def read_ipv6(window: bytes, rows: Rows, count: Count) -> IpPackets:
    """IPv6; extension headers are followed packet by packet."""
    whole = rows.having(40)
    count("cut header", len(rows) - len(whole))
    header = gather(window, whole.at, ">u2", 20)
    size = header[:, 2].astype(np.int64)
    size = np.where(size == 0, whole.wire - whole.at - 40, size)
    good = (header[:, 0] >> 12 == 6) & (size >= 0)
    protocol = (header[:, 3] >> 8).astype(np.int64)
    at = whole.at + 40
    end = np.minimum(whole.end, at + size)
    wire = at + size
    for position in np.flatnonzero(_IS_EXTENSION[protocol] & good):
        protocol[position], at[position] = _step_over_extensions(
            window, int(at[position]), int(end[position]), int(protocol[position])
        )
    chosen = _tcp(good, protocol, count)
    addresses = np.ascontiguousarray(header[chosen, 4:]).view(">u8").astype(np.uint64)
    rows = Rows(whole.row[chosen], at[chosen], end[chosen], wire[chosen])
    return IpPackets(rows, tuple(np.ascontiguousarray(addresses[:, column]) for column in range(4)))


def _tcp(good: Mask, protocol: Int64s, count: Count) -> Mask:
    """Which packets are TCP; the others are counted by reason."""
    chosen: Mask = good & (protocol == TCP)
    if not chosen.all():
        count("bad ip header", int((~good).sum()))
        numbers, packets = np.unique(protocol[good & ~chosen], return_counts=True)
        for number, packet_count in zip(numbers.tolist(), packets.tolist(), strict=True):
            count(PROTOCOLS.get(number, f"ip protocol {number}"), packet_count)
    return chosen


def _step_over_extensions(window: bytes, at: int, end: int, protocol: int) -> tuple[int, int]:
    """Protocol and position behind the extension headers, one packet at a time; they are rare."""
    while _IS_EXTENSION[protocol]:
        if end - at < 8:
            return CUT, at
        following, size = window[at], (window[at + 1] + 1) * 8
        if protocol == _FRAGMENT_HEADER:
            size = 8
            if struct.unpack_from(">H", window, at + 2)[0] >> 3:
                return FRAGMENT, at
        elif protocol == _AUTHENTICATION_HEADER:
            size = (window[at + 1] + 2) * 4
        at += size
        protocol = following
    return protocol, at


_FRAGMENT_HEADER, _AUTHENTICATION_HEADER = 44, 51

_IS_EXTENSION: Mask = np.isin(
    np.arange(256), [0, 43, _FRAGMENT_HEADER, _AUTHENTICATION_HEADER, 60, 135, 139, 140]
)

PROTOCOLS = {
    FRAGMENT: "ip fragment",
    CUT: "cut header",
    1: "icmp",
    2: "igmp",
    4: "ip in ip",
    17: "udp",
    41: "ip in ip",
    47: "gre",
    50: "esp",
    58: "icmp",
    132: "sctp",
}
"""Names for what is counted and not read."""

NETWORKS: dict[int, Callable[[bytes, Rows, Count], IpPackets]] = {IPV4: read_ipv4, IPV6: read_ipv6}
"""EtherType → how to read the header."""

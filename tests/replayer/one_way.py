"""A capture as a sniffer would have it that sees one direction only: what clients of workers send."""

from __future__ import annotations

import struct
from collections.abc import Collection
from pathlib import Path

from tests.places import content

GLOBAL_HEADER, PACKET_HEADER, ETHERNET = 24, 16, 14
TCP = 6


def one_way(name: str, listeners: Collection[int], to: Path) -> Path:
    """Writes a pcap of Ethernet without the packets that come from these ports."""
    data = content(name)
    kept = [data[:GLOBAL_HEADER]]
    at = GLOBAL_HEADER
    while at < len(data):
        (length,) = struct.unpack_from("<I", data, at + 8)
        end = at + PACKET_HEADER + length
        if _source(data[at + PACKET_HEADER + ETHERNET : end]) not in listeners:
            kept.append(data[at:end])
        at = end
    to.write_bytes(b"".join(kept))
    return to


def _source(packet: bytes) -> int | None:
    """The port that a packet of TCP over IPv4 comes from."""
    if len(packet) < 40 or packet[0] >> 4 != 4 or packet[9] != TCP:
        return None
    (port,) = struct.unpack_from(">H", packet, (packet[0] & 15) * 4)
    return int(port)

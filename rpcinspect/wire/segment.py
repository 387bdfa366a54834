"""Packets to TCP segments: link layer, IP and TCP headers, over whole blocks of packets.

In: `PacketBlock`s of one capture in file order. Out: one `SegmentBlock` for each, whose rows are its TCP
packets (pure acknowledgments too), in file order; payloads stay in the file, as offset and length.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rpcinspect.capture.block import Int64s, PacketBlock

FIN, SYN, RST, PSH, ACK, URG = 1, 2, 4, 8, 16, 32


@dataclass(frozen=True, slots=True, order=True)
class Endpoint:
    """One end of a TCP connection."""

    host: str
    """Address as text, IPv6 in its short form without brackets."""
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, order=True)
class Flow:
    """One direction between two endpoints (not of one connection: ports are used again)."""

    source: Endpoint
    destination: Endpoint

    def __str__(self) -> str:
        return f"{self.source}>{self.destination}"

    @property
    def reversed(self) -> Flow:
        """The other direction."""
        return Flow(self.destination, self.source)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SegmentBlock:
    """TCP segments of one packet block, in file order. All columns have the same length m."""

    capture: int
    window: bytes
    """The bytes of the file that hold every payload of this block; `window[0]` is at `window_offset`."""
    window_offset: int
    packet: Int64s
    """Packet number in its file, from 1."""
    time_ns: Int64s
    flow: Int64s
    """Index into `Segmenter.flows`."""
    sequence: Int64s
    """Sequence number of the header, 0..2³²−1 (of the SYN itself where SYN is set)."""
    acknowledgment: Int64s
    """Acknowledgment number, 0..2³²−1; without meaning where ACK is not set."""
    flags: NDArray[np.uint8]
    """FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32."""
    offset: Int64s
    """File offset of the payload's first byte."""
    captured: Int64s
    """Payload bytes that are in the file."""
    length: Int64s
    """Payload bytes on the wire by the IP length: more than `captured` where the snap length cut them;
    padding and trailers of the link layer never count."""

    def __len__(self) -> int:
        return len(self.packet)


class Segmenter:
    """The stage for one capture file; keeps only the table of flows and counts between blocks."""

    def __init__(self) -> None:
        self.flows: list[Flow] = []
        """Every direction seen, in order of appearance; `SegmentBlock.flow` is an index of this list."""
        self.reverse: list[int] = []
        """For each flow the index of the opposite one, -1 while that has not been seen."""
        self.other: dict[str, int] = {}
        """Packets that gave no segment, by a short reason (`udp`, `arp`, `ip fragment`, `link type 105`)."""

    def feed(self, block: PacketBlock) -> SegmentBlock:
        """Segments of one block of packets."""
        raise NotImplementedError

    def finish(self) -> None:
        """Nothing is kept back by this stage."""

"""Which packets of a capture carry which bytes of which stream: a reader of TCP headers of its own.

In: a capture of any format; the program only takes it apart into packets. Out: its packets with the place of
their payload (`packets_of`), and for any range of a stream which of them carry it (`Carriers`). Tests that
want to know what must survive when packets are lost ask here, not the program.
"""

from __future__ import annotations

import ipaddress
import struct
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from rpcinspect.capture import CaptureReader
from rpcinspect.capture.block import PacketBlock
from rpcinspect.tcp.segment import Endpoint, Flow

IP_AT = {1: 14, 101: 0, 113: 16, 276: 20}
"""Link type → where its IP header begins (Ethernet without tags, raw, Linux cooked)."""
SYN = 2
RECORD_BYTES = 16
ISN_MASK = 0xFFFFFFFF

Needs = tuple[tuple[int, ...], ...]
"""Groups of packets: bytes are there as long as of each group one packet is."""


class Packet(Struct, frozen=True):
    """A packet of the capture; of one that carries TCP payload, where that lies in its stream."""

    record: bytes
    """With a pcap record header."""
    offset: int
    """Of the payload in the file (the uncompressed one)."""
    stream: tuple[str, int] | None
    """(flow, how many connections of these ports there were before); None: no payload."""
    start: int = 0
    """Position of the payload's first byte, counted from the byte behind the SYN."""
    length: int = 0
    """Captured bytes of the payload."""
    at: int = 0
    """Of the payload in the record."""

    @property
    def payload(self) -> bytes:
        return self.record[self.at : self.at + self.length]

    @property
    def end(self) -> int:
        return self.start + self.length


class Header(Struct):
    """What a TCP segment's headers say."""

    flow: Flow
    sequence: int
    flags: int
    payload: int
    """Offset in the frame."""
    length: int
    """Of the payload, as far as it was captured."""


def tcp_header(frame: bytes, link_type: int) -> Header | None:
    """The headers of a frame that holds TCP; None of any other."""
    assert link_type in IP_AT, f"link type {link_type}: only Ethernet, raw IP and cooked are read here"
    at = IP_AT[link_type]
    if len(frame) < at + 40:
        return None
    if frame[at] >> 4 == 4:
        if frame[at + 9] != 6:
            return None
        hosts = frame[at + 12 : at + 16], frame[at + 16 : at + 20]
        total = int.from_bytes(frame[at + 2 : at + 4], "big")
        end = at + total if total else len(frame)  # 0: longer than 64 KiB, by offload
        tcp = at + (frame[at] & 15) * 4
    elif frame[at] >> 4 == 6 and frame[at + 6] == 6:
        hosts = frame[at + 8 : at + 24], frame[at + 24 : at + 40]
        size = int.from_bytes(frame[at + 4 : at + 6], "big")
        end = at + 40 + size if size else len(frame)
        tcp = at + 40
    else:
        return None
    source, destination, sequence = struct.unpack_from(">HHI", frame, tcp)
    payload = tcp + (frame[tcp + 12] >> 4) * 4
    names = [str(ipaddress.ip_address(host)) for host in hosts]
    flow = Flow(Endpoint(names[0], source), Endpoint(names[1], destination))
    return Header(flow, sequence, frame[tcp + 13], payload, max(0, min(end, len(frame)) - payload))


def frames(path: Path) -> Iterator[tuple[bytes, int, int, int]]:
    """(frame, link type, nanoseconds, offset in the file) of every packet of a capture of any format."""
    with CaptureReader(str(path), 0) as reader:
        for block in reader.blocks():
            assert isinstance(block, PacketBlock)
            columns = (block.offset, block.caplen, block.link_type, block.time_ns)
            for offset, size, link, time_ns in zip(*(column.tolist() for column in columns), strict=True):
                yield reader.pread(offset, size), link, time_ns, offset


def packets_of(path: Path) -> tuple[bytes, list[Packet]]:
    """The header of a pcap file that can hold the packets, and the packets."""
    found: list[Packet] = []
    link_types: set[int] = set()
    first: dict[str, int] = {}
    """Of each flow, the sequence number behind the latest SYN."""
    turns: Counter[str] = Counter()
    for frame, link, time_ns, offset in frames(path):
        link_types.add(link)
        record = struct.pack("<IIII", *divmod(time_ns, 10**9), len(frame), len(frame)) + frame
        header = tcp_header(frame, link)
        if header is None:
            found.append(Packet(record, offset, None))
            continue
        flow, sequence = str(header.flow), header.sequence
        if header.flags & SYN:
            sequence = (sequence + 1) & ISN_MASK
            if flow in first and first[flow] != sequence:
                turns[flow] += 1
            first[flow] = sequence
        start = (sequence - first.setdefault(flow, sequence)) & ISN_MASK
        start -= 1 << 32 if start >> 31 else 0
        stream = (flow, turns[flow]) if header.length else None
        at = header.payload + RECORD_BYTES
        found.append(Packet(record, offset + header.payload, stream, start, header.length, at))
    (link,) = link_types
    return struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 1 << 18, link), found


class Carriers:
    """Which packets carry which bytes of each stream."""

    def __init__(self, packets: Sequence[Packet]) -> None:
        self._starts: dict[tuple[str, int], list[int]] = {}
        self._atoms: dict[tuple[str, int], list[tuple[int, int, tuple[int, ...]]]] = {}
        by_stream: dict[tuple[str, int], list[int]] = defaultdict(list)
        for number, packet in enumerate(packets):
            if packet.stream is not None:
                by_stream[packet.stream].append(number)
        for stream, numbers in by_stream.items():
            atoms = list(_atoms(packets, numbers))
            self._atoms[stream] = atoms
            self._starts[stream] = [start for start, _, _ in atoms]

    def needs(self, stream: tuple[str, int], start: int, end: int) -> list[tuple[int, ...]]:
        """The bytes [start, end) are there as long as of each of these groups one packet is."""
        atoms = self._atoms[stream]
        index = bisect_right(self._starts[stream], start) - 1
        found: list[tuple[int, ...]] = []
        while start < end:
            low, high, carriers = atoms[index] if 0 <= index < len(atoms) else (end, end, ())
            assert low <= start < high, "the capture lacks bytes of its own messages"
            found.append(carriers)
            start = high
            index += 1
        return found


def _atoms(packets: Sequence[Packet], numbers: list[int]) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """(start, end, packets) of the ranges of one stream that the same packets carry."""
    edges = sorted({edge for n in numbers for edge in (packets[n].start, packets[n].end)})
    places = {edge: at for at, edge in enumerate(edges)}
    carriers: list[list[int]] = [[] for _ in edges]
    for n in numbers:
        for at in range(places[packets[n].start], places[packets[n].end]):
            carriers[at].append(n)
    for at, on_it in enumerate(carriers[:-1]):
        if on_it:
            yield edges[at], edges[at + 1], tuple(on_it)

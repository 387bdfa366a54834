"""Classic pcap files, read as blocks of packets and written.

File header, 24 bytes: magic, version (u16 major, u16 minor), two unused u32, snap length, network (the low
16 bits are the LINKTYPE_ number, above it are flags and the FCS length). Record: seconds, fraction, captured
length, original length (u32 each), then the bytes. Byte order and resolution come from the magic:

    a1b2c3d4  microseconds      a1b23c4d  nanoseconds
    a1b2cd34  microseconds, and the record header has 8 bytes more (interface, protocol, packet type)

Mirrors draft-ietf-opsawg-pcap; the third magic and the swapped lengths before version 2.3 are libpcap's
sf-pcap.c. The walk from record to record is the only loop in Python; all columns are gathered by numpy.

Where packets are large, only their first bytes are read: 770 MB of tensors take 0.04 s instead of 0.16.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import BinaryIO

import numpy as np
from msgspec import Struct

from rpcinspect.capture.block import Heads, Int64s, PacketBlock
from rpcinspect.capture.source import Source
from rpcinspect.errors import CaptureError, UnknownFormatError

MAX_CAPLEN = 1 << 28
"""A captured length above this is damage, not a packet."""

Report = Callable[[str, int | None], None]
"""Takes the reason of a problem and the number of the packet it concerns."""

LARGE_PACKET = 1 << 15
"""Packets of so many bytes on average are nearly all payload."""
HEAD = 256
"""What is read of each of those: more than its headers, but for rare ones."""
SKIMMED_PACKETS, SKIMMED_BYTES = 1 << 10, 1 << 26
"""What a block of them stands for, at most: all of it may have to be read after all."""

FILE_HEADER = 24
SNAP_LENGTH = 1 << 18
"""Of files that are written: no packet is longer."""


class PcapLayout(Struct, frozen=True, kw_only=True):
    """What the file header says about the records."""

    order: str
    """`<` or `>`."""
    record_header: int
    caplen_at: int
    length_at: int
    fraction_ns: int
    link_type: int
    snap_length: int

    @classmethod
    def from_header(cls, header: bytes, name: str) -> PcapLayout:
        """Read the 24 bytes of the file header; `CaptureError` names the file."""
        if header[:4] not in MAGICS:
            raise UnknownFormatError(f"{name}: not a pcap file")
        if len(header) < FILE_HEADER:
            raise CaptureError(f"{name}: cut within the pcap file header ({len(header)} of 24 bytes)")
        order, fraction_ns, record_header = MAGICS[header[:4]]
        major, minor, snap_length, network = struct.unpack(order + "4xHH8xII", header[:FILE_HEADER])
        if major != 2 and (major, minor) != (543, 0):
            raise UnknownFormatError(f"{name}: pcap version {major}.{minor} is not known (2.4 is usual)")
        swapped = minor < 3
        return cls(
            order=order,
            record_header=record_header,
            caplen_at=12 if swapped else 8,
            length_at=8 if swapped else 12,
            fraction_ns=fraction_ns,
            link_type=network & 0xFFFF,
            snap_length=snap_length,
        )


def read_pcap(source: Source, capture: int, report: Report) -> Iterator[PacketBlock]:
    """Blocks of packets in file order; the file header is read at once, the rest as blocks are asked for."""
    layout = PcapLayout.from_header(source.window(0, FILE_HEADER)[:FILE_HEADER], source.name)
    return _blocks(source, layout, capture, report)


def _blocks(source: Source, layout: PcapLayout, capture: int, report: Report) -> Iterator[PacketBlock]:
    position, number, needed = FILE_HEADER, 1, layout.record_header
    caplen_of = struct.Struct(layout.order + "I").unpack_from
    large = False
    while True:
        if large and (block := _skim(source, layout, position, capture, number)) is not None:
            yield block
            end = int(block.offset[-1] + block.caplen[-1])
            large = end - position >= len(block) * LARGE_PACKET
            position, number = end, number + len(block)
            continue
        window = source.window(position, needed)
        if not window:
            return
        starts, end = _walk(window, layout)
        if len(starts):
            yield _block(window, position, starts, layout, capture, number)
            position, number, needed = position + end, number + len(starts), layout.record_header
            large = source.complete and end >= len(starts) * LARGE_PACKET
            continue
        large = False
        if len(window) < layout.record_header:
            report(f"the file ends within a record header, at byte {position:,} of the file", number)
            return
        caplen: int = caplen_of(window, layout.caplen_at)[0]
        if caplen > MAX_CAPLEN:
            report(f"a record of {caplen:,} bytes can't be: damage at byte {position:,} of the file", number)
            return
        if needed < layout.record_header + caplen:
            needed = layout.record_header + caplen
            continue
        there = len(window) - layout.record_header
        report(f"the file ends within a packet: {there:,} of {caplen:,} bytes, at byte {position:,}", number)
        if caplen <= max(layout.snap_length, 1 << 18):  # else it is damage, not a packet cut short
            yield _block(window, position, np.zeros(1, dtype=np.int64), layout, capture, number)
        return


def _walk(window: bytes, layout: PcapLayout) -> tuple[Int64s, int]:
    """Positions in `window` of the records that are whole, and of the first that is not.

    The one loop over packets in Python, about 0.2 µs each: nothing is done here but adding lengths, and the
    end of the window is an exception, since a comparison for each packet costs a quarter more.
    """
    caplen_of = struct.Struct(layout.order + "I").unpack_from
    header = layout.record_header
    at = layout.caplen_at  # always of the length field
    fields = [at]
    append = fields.append
    with suppress(struct.error):
        while True:
            at += header + caplen_of(window, at)[0]
            append(at)
    if fields[-1] - layout.caplen_at > len(window):
        fields.pop()
    starts = np.array(fields, dtype=np.int64) - layout.caplen_at
    return starts[:-1], int(starts[-1])


def _skim(source: Source, layout: PcapLayout, position: int, capture: int, number: int) -> PacketBlock | None:
    """The packets from `position` on by their first bytes; None where not even one is whole."""
    caplen_of = struct.Struct(layout.order + "I").unpack_from
    header, size = layout.record_header, layout.record_header + HEAD
    first, end = position, min(position + SKIMMED_BYTES, source.size())
    heads: list[bytes] = []
    positions: list[int] = []
    while len(heads) < SKIMMED_PACKETS and position + header <= end:
        head = source.pread(position, size)
        if len(head) < header:
            break
        following = position + header + caplen_of(head, layout.caplen_at)[0]
        if following > end:
            break
        heads.append(head if len(head) == size else head.ljust(size))
        positions.append(position)
        position = following
    if not heads:
        return None
    source.read_to = max(source.read_to, position)
    start = np.array(positions, dtype=np.int64) - first

    def whole() -> PacketBlock:
        window = source.pread(first, position - first)
        if len(window) < position - first:
            raise CaptureError(f"{source.name}: it has become shorter while it was read")
        return _block(window, first, start, layout, capture, number)

    at = np.arange(len(heads), dtype=np.int64) * size
    window = b"".join(heads)
    caplen, length, time_ns = _fields(window, at, layout)
    return PacketBlock(
        capture=capture,
        first_number=number,
        window=window,
        window_offset=0,
        offset=start + (first + header),
        caplen=caplen,
        length=np.maximum(length, caplen),
        time_ns=time_ns,
        link_type=np.full(len(at), layout.link_type, dtype=np.uint16),
        heads=Heads(at + header, np.minimum(caplen, HEAD), whole),
    )


def _block(
    window: bytes, window_offset: int, start: Int64s, layout: PcapLayout, capture: int, number: int
) -> PacketBlock:
    caplen, length, time_ns = _fields(window, start, layout)
    data = start + layout.record_header
    caplen = np.minimum(caplen, len(window) - data)
    return PacketBlock(
        capture=capture,
        first_number=number,
        window=window,
        window_offset=window_offset,
        offset=data + window_offset,
        caplen=caplen,
        length=np.maximum(length, caplen),
        time_ns=time_ns,
        link_type=np.full(len(start), layout.link_type, dtype=np.uint16),
    )


def _fields(window: bytes, start: Int64s, layout: PcapLayout) -> tuple[Int64s, Int64s, Int64s]:
    """Captured length, length and time by the record headers at these places."""
    # every 16 bytes of the window as one element, so that a record header is gathered by one copy
    view: np.ndarray = np.ndarray((len(window) - 15,), "V16", window, strides=(1,))
    fields = view[start].view(layout.order + "u4").reshape(-1, 4).astype(np.int64)
    time_ns = fields[:, 0] * 1_000_000_000 + fields[:, 1] * layout.fraction_ns
    return fields[:, layout.caplen_at // 4], fields[:, layout.length_at // 4], time_ns


def write_pcap(
    stream: BinaryIO, packets: Iterable[tuple[int, bytes]], *, link_type: int = 1, nanoseconds: bool = True
) -> int:
    """Write (time in nanoseconds, link-layer bytes) pairs as a little-endian pcap; gives their number."""
    stream.write(pcap_header(link_type, nanoseconds=nanoseconds))
    count = 0
    for time_ns, data in packets:
        stream.write(pcap_record(time_ns, data, nanoseconds=nanoseconds))
        count += 1
    return count


def pcap_header(link_type: int, *, nanoseconds: bool = True) -> bytes:
    """What a little-endian file begins with."""
    magic = 0xA1B23C4D if nanoseconds else 0xA1B2C3D4
    return struct.pack("<IHHiIII", magic, 2, 4, 0, 0, SNAP_LENGTH, link_type)


def pcap_record(time_ns: int, data: bytes, *, nanoseconds: bool = True) -> bytes:
    """One whole packet of such a file."""
    seconds, rest = divmod(time_ns, 1_000_000_000)
    fraction = rest if nanoseconds else rest // 1000
    return struct.pack("<IIII", seconds & 0xFFFFFFFF, fraction, len(data), len(data)) + data


MAGICS: dict[bytes, tuple[str, int, int]] = {
    b"\xd4\xc3\xb2\xa1": ("<", 1000, 16),
    b"\xa1\xb2\xc3\xd4": (">", 1000, 16),
    b"\x4d\x3c\xb2\xa1": ("<", 1, 16),
    b"\xa1\xb2\x3c\x4d": (">", 1, 16),
    b"\x34\xcd\xb2\xa1": ("<", 1000, 24),
    b"\xa1\xb2\xcd\x34": (">", 1000, 24),
}
"""First four bytes of the file → byte order, nanoseconds of one fraction, bytes of a record header."""

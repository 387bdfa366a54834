"""Classic pcap files, read as blocks of packets and written.

File header, 24 bytes: magic, version (u16 major, u16 minor), two unused u32, snap length, network (the low
16 bits are the LINKTYPE_ number, above it are flags and the FCS length). Record: seconds, fraction, captured
length, original length (u32 each), then the bytes. Byte order and resolution come from the magic:

    a1b2c3d4  microseconds      a1b23c4d  nanoseconds
    a1b2cd34  microseconds, and the record header has 8 bytes more (interface, protocol, packet type)

Mirrors draft-ietf-opsawg-pcap; the third magic and the swapped lengths before version 2.3 are libpcap's
sf-pcap.c. The walk from record to record is the only loop in Python; all columns are gathered by numpy.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
from msgspec import Struct

from rpcinspect.capture.block import Int64s, PacketBlock, ReportProblem
from rpcinspect.capture.skim import Records, are_large, by_heads, skim
from rpcinspect.capture.source import Source
from rpcinspect.errors import CaptureError, UnknownFormatError

MAX_CAPLEN = 1 << 28
"""A captured length above this is damage, not a packet."""

FILE_HEADER = 24
SNAP_LENGTH = 1 << 18
"""Of files that are written: no packet is longer."""


class PcapLayout(Struct, frozen=True, kw_only=True):
    """Byte order, record layout and link type, as the file header has them."""

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


def read_pcap(source: Source, capture: int, report: ReportProblem) -> Iterator[PacketBlock]:
    """Blocks of packets in file order; the file header is read at once, the rest as blocks are asked for."""
    layout = PcapLayout.from_header(source.window(0, FILE_HEADER)[:FILE_HEADER], source.name)
    return _blocks(source, layout, capture, report)


def _blocks(source: Source, layout: PcapLayout, capture: int, report: ReportProblem) -> Iterator[PacketBlock]:
    position, number, needed = FILE_HEADER, 1, layout.record_header
    caplen_of = struct.Struct(layout.order + "I").unpack_from
    large = False

    def size_of(head: bytes) -> int:
        return layout.record_header + int(caplen_of(head, layout.caplen_at)[0])

    while True:
        if large and (records := skim(source, position, layout.record_header, size_of)) is not None:
            block = _block(records, layout, capture, number)
            yield by_heads(source, records, block)
            large = are_large(len(block), records.end - position)
            position, number = records.end, number + len(block)
            continue
        window = source.window(position, needed)
        if not window:
            return
        starts, end = _walk(window, layout)
        if len(starts):
            yield _block(Records.of_window(window, position, starts), layout, capture, number)
            position, number, needed = position + end, number + len(starts), layout.record_header
            large = source.complete and are_large(len(starts), end)
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
            yield _block(Records.of_window(window, position, [0]), layout, capture, number)
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


def _block(records: Records, layout: PcapLayout, capture: int, number: int) -> PacketBlock:
    caplen, length, time_ns = _fields(records.window, records.at, layout)
    offset = records.place + layout.record_header
    caplen = np.minimum(caplen, records.end - offset)
    return PacketBlock(
        capture=capture,
        first_number=number,
        window=records.window,
        window_offset=int(records.place[0] - records.at[0]),
        offset=offset,
        caplen=caplen,
        length=np.maximum(length, caplen),
        time_ns=time_ns,
        link_type=np.full(len(offset), layout.link_type, dtype=np.uint16),
    )


def _fields(window: bytes, start: Int64s, layout: PcapLayout) -> tuple[Int64s, Int64s, Int64s]:
    """Captured length, length and time by the record headers at these places."""
    # every 16 bytes of the window as one element, so that a record header is gathered by one copy
    view: np.ndarray = np.ndarray((len(window) - 15,), "V16", window, strides=(1,))
    fields = view[start].view(layout.order + "u4").reshape(-1, 4).astype(np.int64)
    time_ns = fields[:, 0] * 1_000_000_000 + fields[:, 1] * layout.fraction_ns
    return fields[:, layout.caplen_at // 4], fields[:, layout.length_at // 4], time_ns


def pcap_header(link_type: int) -> bytes:
    """Returns the 24 bytes of file header of a little-endian pcap with times in nanoseconds."""
    return struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, SNAP_LENGTH, link_type)


def pcap_record(time_ns: int, data: bytes) -> bytes:
    """Returns one packet as a record of a pcap with nanoseconds."""
    seconds, nanoseconds = divmod(time_ns, 1_000_000_000)
    return struct.pack("<IIII", seconds & 0xFFFFFFFF, nanoseconds, len(data), len(data)) + data


MAGICS: dict[bytes, tuple[str, int, int]] = {
    b"\xd4\xc3\xb2\xa1": ("<", 1000, 16),
    b"\xa1\xb2\xc3\xd4": (">", 1000, 16),
    b"\x4d\x3c\xb2\xa1": ("<", 1, 16),
    b"\xa1\xb2\x3c\x4d": (">", 1, 16),
    b"\x34\xcd\xb2\xa1": ("<", 1000, 24),
    b"\xa1\xb2\xcd\x34": (">", 1000, 24),
}
"""First four bytes of the file → byte order, nanoseconds of one fraction, bytes of a record header."""

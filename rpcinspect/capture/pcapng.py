"""pcapng files, read as blocks of packets.

A file is a row of blocks: type u32, total length u32, body, total length again. A section header sets the
byte order and forgets the interfaces; interface descriptions give link type, snap length and clock; three
kinds of block hold packets (offsets from the block's start, all fields u32 unless said):

    6 enhanced   8 interface · 12 time, high half · 16 time, low half · 20 captured · 24 original · 28 data
    2 obsolete   8 interface u16 · 10 drops u16, the rest as above
    3 simple     8 original · 12 data; interface 0, captured = original cut to its snap length; it has no
                 time and gets that of the packet before it (0 for the first)

All other blocks and all options but if_tsresol and if_tsoffset are skipped; custom and journal blocks take a
packet number all the same, since Wireshark shows them as frames. Mirrors draft-ietf-opsawg-pcapng.

Damage (a length that can't be) ends the reading with a problem: there is no mark in
the format from which it could go on.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from rpcinspect.capture.block import Int64s, PacketBlock, ReportProblem
from rpcinspect.capture.pcap import MAX_CAPLEN
from rpcinspect.capture.skim import Records, are_large, by_heads, skim
from rpcinspect.capture.source import Source
from rpcinspect.errors import CaptureError, UnknownFormatError

SECTION_HEADER = b"\x0a\x0d\x0d\x0a"
NO_LINK_TYPE = 0xFFFF
"""Link type of packets whose interface was never described."""

_SECTION, _INTERFACE, _OBSOLETE, _SIMPLE, _ENHANCED = 0x0A0D0D0A, 1, 2, 3, 6
_NUMBERED = frozenset({9, 0x00000BAD, 0x40000BAD})  # not packets, but Wireshark counts them
_FIXED = {_ENHANCED: 28, _OBSOLETE: 28, _SIMPLE: 12}  # bytes before the packet's data
_LEAST = {_SECTION: 28, _ENHANCED: 32, _OBSOLETE: 32, _SIMPLE: 16}  # bytes of a block; 12 for others
_MAX_SECTION = 1 << 16  # of a section header with texts that people write
_MAX_BLOCK = MAX_CAPLEN + (1 << 20)
_MAX_TICKS_NS = 1 << 62


class Interface(Struct, frozen=True, kw_only=True):
    """An interface description. Time in ns: ticks // divisor * factor, or ticks * 10⁹ / 2^shift."""

    link_type: int = NO_LINK_TYPE
    snap_length: int = 0
    """0: no limit."""
    factor: int = 1000
    divisor: int = 1
    shift: int = 0
    """Above 0: ticks are 2^-shift seconds."""
    offset_ns: int = 0

    @classmethod
    def from_body(cls, body: bytes, order: str) -> Interface:
        """Read the body of an interface description block; malformed options end the list of options."""
        if len(body) < 8:
            return cls()
        link_type, snap_length = struct.unpack_from(order + "HxxI", body)
        resolution, offset_s, at = 6, 0, 8
        while at + 4 <= len(body):
            code, size = struct.unpack_from(order + "HH", body, at)
            value = body[at + 4 : at + 4 + size]
            if code == 0 or len(value) < size:
                break
            if code == 9 and size >= 1:
                resolution = value[0]
            elif code == 14 and size >= 8:
                offset_s = struct.unpack_from(order + "q", value)[0]
            at += 4 + (size + 3 & ~3)
        exponent = resolution & 0x7F
        binary = resolution >= 0x80
        if binary and exponent == 0:
            binary, exponent = False, 0  # 2^0 and 10^0 are both one second
        return cls(
            link_type=link_type,
            snap_length=snap_length,
            factor=10 ** max(9 - exponent, 0),
            divisor=min(10 ** max(exponent - 9, 0), (1 << 64) - 1),
            shift=exponent if binary else 0,
            offset_ns=max(-4_000_000_000, min(offset_s, 4_000_000_000)) * 1_000_000_000,
        )


def read_pcapng(source: Source, capture: int, report: ReportProblem) -> Iterator[PacketBlock]:
    """Blocks of packets in file order; the first section header is checked at once."""
    head = source.window(0, 28)[:28]
    if not head.startswith(SECTION_HEADER):
        raise UnknownFormatError(f"{source.name}: not a pcapng file")
    if len(head) < 28:
        raise CaptureError(f"{source.name}: cut within the pcapng section header ({len(head)} of 28 bytes)")
    order = BYTE_ORDERS.get(head[8:12])
    if order is None:
        raise UnknownFormatError(f"{source.name}: no byte-order magic in the pcapng section header")
    major = struct.unpack_from(order + "H", head, 12)[0]
    if major != 1:
        raise UnknownFormatError(f"{source.name}: pcapng version {major} is not known")
    return _Walker(source, capture, report).blocks()


def first_link_type(source: Source) -> int:
    """The link type of the interface that is described right behind the section header, as it usually is;
    `NO_LINK_TYPE` where there is none.
    """
    head = source.window(0, 12)[:12]
    order = BYTE_ORDERS[head[8:12]]
    behind = struct.unpack_from(order + "I", head, 4)[0]
    if behind > _MAX_SECTION:
        return NO_LINK_TYPE
    described = source.window(0, behind + 20)[behind : behind + 20]
    if len(described) < 20 or struct.unpack_from(order + "I", described)[0] != _INTERFACE:
        return NO_LINK_TYPE
    return Interface.from_body(described[8:16], order).link_type


class _Walker:
    """The state of one walk: byte order and interfaces of the section, number and time of the last packet."""

    def __init__(self, source: Source, capture: int, report: ReportProblem) -> None:
        self._source = source
        self._capture = capture
        self._report = report
        self._order = "<"
        self._interfaces: list[Interface] = []
        self._number = 1
        self._time_ns = 0
        self._told: set[str] = set()

    def blocks(self) -> Iterator[PacketBlock]:
        base, needed, large = 0, 12, False
        while True:
            first = self._number
            if large and (records := skim(self._source, base, _FIXED[_ENHANCED], self._size_of)) is not None:
                yield by_heads(self._source, records, self._block(records))
                large = are_large(self._number - first, records.end - base)
                base = records.end
                continue
            window = self._source.window(base, needed)
            if not window:
                return
            at = 0
            while True:  # not only the window's end ends a block of packets
                starts, end = self._walk(window, at)
                if starts:
                    yield self._block(Records.of_window(window, base, starts))
                if end == at:
                    break
                at = end
            large = self._source.complete and are_large(self._number - first, at)
            if at:
                base, needed = base + at, 12
                continue
            size = self._incomplete(window, base)
            if size is None:
                return
            if needed < size:
                needed = size
                continue
            if self._cut(window, base, size):
                yield self._block(Records.of_window(window, base, [0]))
            return

    def _walk(self, window: bytes, position: int) -> tuple[list[int], int]:
        """Positions of the packets from `position` on, and of the block where the walk stopped.

        It stops before a block that is not whole or can't be; if it has packets, also before a section header
        and before a block that takes a number.
        The loop is kept flat: it runs once for every packet of the file.
        """
        starts: list[int] = []
        append = starts.append
        pair = struct.Struct(self._order + "II").unpack_from
        size = len(window)
        while position + 12 <= size:
            kind, length = pair(window, position)
            if kind == _ENHANCED and length >= 32 and position + length <= size:
                append(position)
            elif kind == _SECTION:
                if starts or not self._section(window, position):
                    break
                pair = struct.Struct(self._order + "II").unpack_from
                length = pair(window, position)[1]
            elif length < _LEAST.get(kind, 12) or position + length > size:
                break
            elif kind in _FIXED:
                append(position)
            elif kind == _INTERFACE:
                body = window[position + 8 : position + length - 4]
                self._interfaces.append(Interface.from_body(body, self._order))
            elif kind in _NUMBERED:
                if starts:
                    break
                self._number += 1
            position += length + 3 & ~3  # some writers forget to pad
        return starts, position

    def _size_of(self, head: bytes) -> int:
        """Size of an enhanced packet of a known interface; 0 for any other block.

        Where the interface is not known, the walk by windows may still find it described further on.
        """
        kind, size, interface = struct.unpack_from(self._order + "III", head)
        usual = kind == _ENHANCED and size >= _LEAST[_ENHANCED] and interface < len(self._interfaces)
        return int(size) + 3 & ~3 if usual else 0

    def _section(self, window: bytes, position: int) -> bool:
        """Take over a section header; False if it is not whole or can't be."""
        order = BYTE_ORDERS.get(window[position + 8 : position + 12])
        if order is None or position + 28 > len(window):
            return False
        length, major = struct.unpack_from(order + "4xI4xH", window, position)
        if length < 28 or position + length > len(window) or major != 1:
            return False
        self._order = order
        self._interfaces = []
        self._told = set()
        return True

    def _incomplete(self, window: bytes, base: int) -> int | None:
        """Size of the block at the window's start, where the walk stopped; None (reported) if it can't be."""
        where = f"at byte {base:,} of the file"
        if len(window) < 12:
            self._report(f"the file ends within a block header, {where}", self._number)
            return None
        order = self._order
        kind, size = struct.unpack_from(order + "II", window)
        if kind == _SECTION:
            known = BYTE_ORDERS.get(window[8:12])
            if known is None:
                self._report(f"a section header without byte-order magic, {where}", self._number)
                return None
            size = struct.unpack_from(known + "I", window, 4)[0]
            if len(window) >= 28 and size >= 28 and struct.unpack_from(known + "H", window, 12)[0] != 1:
                self._report(f"a section of an unknown version, {where}", self._number)
                return None
        if not _LEAST.get(kind, 12) <= size <= _MAX_BLOCK:
            self._report(f"a block of type {kind} can't have {size:,} bytes: damage {where}", self._number)
            return None
        return int(size)

    def _cut(self, window: bytes, base: int, size: int) -> bool:
        """Report the block that the end of the file cuts; True if part of a packet's data is there."""
        kind = struct.unpack_from(self._order + "I", window)[0]
        what = "packet" if kind in _FIXED else f"block of type {kind}"
        self._report(
            f"the file ends within a {what}: {len(window):,} of {size:,} bytes, at byte {base:,}",
            self._number,
        )
        return kind in _FIXED and len(window) >= _FIXED[kind]

    def _block(self, records: Records) -> PacketBlock:
        """Returns the columns of these packets; the end of the file may cut the last one."""
        window, start = records.window, records.at
        padded = window if start[-1] + 28 <= len(window) else window + bytes(28)
        view: np.ndarray[Any, Any] = np.ndarray((len(padded) - 27,), "V28", padded, strides=(1,))
        fields = view[start].view(self._order + "u4").reshape(-1, 7).astype(np.int64)
        kind, size, interface = fields[:, 0], fields[:, 1], fields[:, 2]
        caplen, length = fields[:, 5], fields[:, 6]
        ticks = (fields[:, 3].astype(np.uint64) << np.uint64(32)) | fields[:, 4].astype(np.uint64)
        offset = records.place + 28
        room = size - 32
        obsolete = kind == _OBSOLETE
        if obsolete.any():
            narrow = interface & 0xFFFF if self._order == "<" else interface >> 16
            interface = np.where(obsolete, narrow, interface)
        simple = kind == _SIMPLE
        if simple.any():
            length = np.where(simple, fields[:, 2], length)
            interface = np.where(simple, 0, interface)
            offset = np.where(simple, records.place + 12, offset)
            room = np.where(simple, size - 16, room)
            snap = (self._interfaces[0].snap_length if self._interfaces else 0) or MAX_CAPLEN
            caplen = np.where(simple, np.minimum(np.minimum(length, snap), room), caplen)
        self._check(caplen, room, interface, records.place)
        caplen = np.minimum(np.minimum(caplen, room), records.end - offset)
        known = np.minimum(interface, len(self._interfaces))
        time_ns, link_type = self._times(ticks, known, simple)
        block = PacketBlock(
            capture=self._capture,
            first_number=self._number,
            window=window,
            window_offset=int(records.place[0] - start[0]),
            offset=offset,
            caplen=caplen,
            length=np.maximum(length, caplen),
            time_ns=time_ns,
            link_type=link_type,
        )
        self._number += len(start)
        return block

    def _check(self, caplen: Int64s, room: Int64s, interface: Int64s, start: Int64s) -> None:
        """Report the first packet of the section that contradicts its block, and that for the interfaces:
        what is reported must not depend on how packets fall into blocks.
        """
        firsts = [
            (int(wrong.argmax()), what)
            for wrong, what in (
                (caplen > room, "says more captured bytes than its block has"),
                (interface >= len(self._interfaces), "names an interface that was not described"),
            )
            if what not in self._told and wrong.any()
        ]
        for row, what in sorted(firsts):
            self._told.add(what)
            number = self._number + row
            self._report(f"packet {number} {what}, at byte {int(start[row]):,} of the file", number)

    def _times(
        self, ticks: NDArray[np.uint64], interface: Int64s, simple: NDArray[np.bool_]
    ) -> tuple[Int64s, NDArray[np.uint16]]:
        """Nanoseconds and link type by each packet's interface (the last row: an interface not described)."""
        rows = [*self._interfaces, Interface()]
        factor = np.array([row.factor for row in rows], dtype=np.uint64)[interface]
        divisor = np.array([row.divisor for row in rows], dtype=np.uint64)[interface]
        time_ns = np.minimum(ticks // divisor, np.uint64(_MAX_TICKS_NS) // factor) * factor
        shift = np.array([row.shift for row in rows], dtype=np.uint64)[interface]
        binary = shift > 0
        if binary.any():
            time_ns[binary] = _binary_ns(ticks[binary], shift[binary])
        result = time_ns.astype(np.int64)
        result += np.array([row.offset_ns for row in rows], dtype=np.int64)[interface]
        if simple.any():
            row_with_time = np.maximum.accumulate(np.where(simple, -1, np.arange(len(simple))))
            result = np.where(row_with_time < 0, self._time_ns, result[row_with_time])
        self._time_ns = int(result[-1])
        return result, np.array([row.link_type for row in rows], dtype=np.uint16)[interface]


def _binary_ns(ticks: NDArray[np.uint64], shift: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """ticks · 10⁹ / 2^shift without leaving 64 bits; at most 30 bits of the fraction count."""
    one, second = np.uint64(1), np.uint64(1_000_000_000)
    shift = np.minimum(shift, np.uint64(63))  # a finer clock can't reach one second in 64 bits anyway
    whole = np.minimum(ticks >> shift, np.uint64(_MAX_TICKS_NS) // second)
    dropped = np.where(shift > 30, shift - np.uint64(30), np.uint64(0))
    fraction = (ticks & ((one << shift) - one)) >> dropped
    result: NDArray[np.uint64] = whole * second + ((fraction * second) >> (shift - dropped))
    return result


BYTE_ORDERS = {b"\x4d\x3c\x2b\x1a": "<", b"\x1a\x2b\x3c\x4d": ">"}
"""Byte-order magic of a section header → prefix for struct."""

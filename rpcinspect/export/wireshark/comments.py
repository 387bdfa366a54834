"""Captures with a comment at the first packet of each message, for a Wireshark without any plugin.

In: a finished session, its messages again, then the packets of its captures again. Out: a pcapng file with
all packets of the captures, byte for byte, with their times to the nanosecond, their lengths on the wire and
an interface for each link type of each capture; those of several captures in the order of time. Other blocks
and options that a pcapng held are left out, since they may name interfaces and packets that are others here.

Reading keeps a window of each capture. Comments wait in a temporary file, and 24 bytes of each in memory.
"""

from __future__ import annotations

import heapq
import struct
from array import array
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from operator import attrgetter
from typing import BinaryIO

import numpy as np
from msgspec import Struct

from rpcinspect import __version__
from rpcinspect.capture.block import PacketBlock, as_int64
from rpcinspect.capture.reader import BY_TSHARK, CaptureReader
from rpcinspect.errors import OutputError
from rpcinspect.export.wireshark.labels import MessageLabels
from rpcinspect.fields.phrases import path_label, shorten
from rpcinspect.files.temporary import Temporary
from rpcinspect.pipeline import Decoding
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.model import Session
from rpcinspect.sources.packets import NOTHING, end_of

SECTION, INTERFACE, ENHANCED = 0x0A0D0D0A, 1, 6
COMMENT, DESCRIPTION, RESOLUTION, PROGRAM = 1, 3, 9, 4
"""Numbers of options: of any block, of an interface the next two, of a section the last."""
NANOSECONDS = b"\x09"
MAX_COMMENT = 1000
"""Characters of a comment."""
MAX_COMMENTS = 50
"""Of one packet."""


class Commented(Struct, frozen=True):
    """How much was written."""

    packets: int
    messages: int
    """That have a comment."""


class _Comments:
    """Comments by capture and packet."""

    def __init__(self, captures: int) -> None:
        self._texts = Temporary()
        self._size = 0
        self._places = [(array("q"), array("q")) for _ in range(captures)]
        """Of each capture: packets, and where in the file the text of each begins."""

    def add(self, capture: int, packet: int, text: str) -> None:
        data = text.encode()
        packets, places = self._places[capture]
        packets.append(packet)
        places.append(self._size)
        self._size += self._texts.write(struct.pack("<H", len(data)) + data)

    def of(self, capture: int) -> Iterator[tuple[int, list[int]]]:
        """Yields (packet, places of its comments) of a capture, by packet."""
        packets, places = map(as_int64, self._places[capture])
        order = np.argsort(packets, kind="stable")
        packets, places = packets[order], places[order]
        edges = np.flatnonzero(np.diff(packets)) + 1
        for its, where in zip(np.split(packets, edges), np.split(places, edges), strict=True):
            if len(its):
                yield int(its[0]), where.tolist()

    def text(self, place: int) -> bytes:
        data = self._texts.pread(place, 2 + 4 * MAX_COMMENT)
        return data[2 : 2 + struct.unpack_from("<H", data)[0]]

    def close(self) -> None:
        self._texts.close()


class _Packet(Struct, frozen=True):
    """A packet that is to be written."""

    capture: int
    number: int
    due_ns: int
    """Never before the packets ahead of it in its capture."""
    time_ns: int
    link_type: int
    length: int
    data: bytes


def write_comments(
    output: BinaryIO, session: Session, decoding: Decoding, records: Iterable[RpcRecord]
) -> Commented:
    """Writes the packets of a decoding, read again, with comments for these messages of the session. Raises
    `OutputError` where there are no packets, or other programs have read them."""
    for reader in decoding.readers:
        if reader.reader in BY_TSHARK:
            raise OutputError(
                f"{reader.path}: tshark reads it, packet by packet; convert it first: editcap -F pcapng"
            )
    comments, labels, messages = _Comments(len(decoding.readers)), MessageLabels(session, decoding.bytes), 0
    with ExitStack() as stack:
        stack.callback(comments.close)
        for record in records:
            line = shorten(labels.of(record).line, MAX_COMMENT)
            comments.add(record.tp.capture, record.tp.packet, line)
            messages += 1
        readers = [stack.enter_context(decoding.open_again(n)) for n in range(len(decoding.readers))]
        packets = heapq.merge(*map(_packets, readers), key=attrgetter("due_ns"))
        count = _write(output, session, packets, comments)
    return Commented(count, messages)


def _write(output: BinaryIO, session: Session, packets: Iterable[_Packet], comments: _Comments) -> int:
    names = [path_label(capture.path.rpartition("/")[2]) for capture in session.captures]
    waiting = [comments.of(capture) for capture in range(len(names))]
    following = [next(its, None) for its in waiting]
    interfaces: dict[tuple[int, int], int] = {}
    count = 0
    output.write(_section())
    for packet in packets:
        capture = packet.capture
        key = (capture, packet.link_type)
        if key not in interfaces:
            interfaces[key] = len(interfaces)
            output.write(_interface(packet.link_type, names[capture]))
        texts: list[bytes] = []
        due = following[capture]
        if due is not None and due[0] == packet.number:
            texts = _bounded([comments.text(place) for place in due[1][: MAX_COMMENTS + 1]], len(due[1]))
            following[capture] = next(waiting[capture], None)
        output.write(_enhanced(packet, interfaces[key], texts))
        count += 1
    return count


def _bounded(texts: list[bytes], count: int) -> list[bytes]:
    if count <= MAX_COMMENTS:
        return texts
    return [*texts[:MAX_COMMENTS], f"and {count - MAX_COMMENTS:,} more messages begin here".encode()]


def _packets(reader: CaptureReader) -> Iterator[_Packet]:
    """Yields the packets of a capture; of those that are nearly all payload, each is read by itself."""
    due_ns = 0
    for block in reader.blocks():
        assert isinstance(block, PacketBlock)
        columns = (block.offset, block.caplen, block.length, block.time_ns, block.link_type)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        for number, (offset, size, length, time_ns, link_type) in enumerate(rows, block.first_number):
            if block.heads is None:
                at = offset - block.window_offset
                data = block.window[at : at + size]
            else:
                data = reader.pread(offset, size)
            due_ns = max(due_ns, time_ns)
            yield _Packet(reader.index, number, due_ns, max(time_ns, 0), link_type, length, data)
        reader.keep(NOTHING, NOTHING, end_of(block))


def _section() -> bytes:
    head = struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1)
    return _block(SECTION, head + _options([(PROGRAM, f"rpcinspect {__version__}".encode())]))


def _interface(link_type: int, name: str) -> bytes:
    options = [(DESCRIPTION, shorten(name, MAX_COMMENT).encode()), (RESOLUTION, NANOSECONDS)]
    return _block(INTERFACE, struct.pack("<HHI", link_type, 0, 0) + _options(options))


def _enhanced(packet: _Packet, interface: int, comments: list[bytes]) -> bytes:
    head = struct.pack(
        "<IIIII",
        interface,
        packet.time_ns >> 32,
        packet.time_ns & 0xFFFFFFFF,
        len(packet.data),
        packet.length,
    )
    return _block(ENHANCED, head + _padded(packet.data) + _options([(COMMENT, text) for text in comments]))


def _block(kind: int, body: bytes) -> bytes:
    size = struct.pack("<I", len(body) + 12)
    return struct.pack("<I", kind) + size + body + size


def _options(options: list[tuple[int, bytes]]) -> bytes:
    """Returns the options of a block, and their end; nothing for none."""
    if not options:
        return b""
    return b"".join(
        [struct.pack("<HH", number, len(data)) + _padded(data) for number, data in options]
    ) + bytes(4)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)

"""One capture file of any known format, as blocks of packets.

In: a path (`-` is standard input). Out: a `CaptureReader`, which counts what it hands on and keeps the
problems that reading survived. `CaptureError` only at opening, or where the operating system refuses to read.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from types import TracebackType

from rpcinspect.capture.block import PacketBlock
from rpcinspect.capture.pcap import MAGICS, Report, read_pcap
from rpcinspect.capture.pcapng import SECTION_HEADER, read_pcapng
from rpcinspect.capture.source import Source, open_source
from rpcinspect.errors import CaptureError, Location, Problem, UnknownFormatError


class CaptureReader:
    """An open capture. Use it in a `with` statement; `blocks` may be called once."""

    def __init__(self, path: str, index: int = 0) -> None:
        self.path = path
        self.index = index
        self.problems: list[Problem] = []
        """Grows while blocks are read."""
        self.packets = 0
        """Packets handed on so far."""
        self.first_time_ns: int | None = None
        """Earliest time so far (of any packet: files need not be in order)."""
        self.last_time_ns: int | None = None
        self._source = open_source(path, lambda reason: self._report(reason, None))
        try:
            self.format, read = _recognise(self._source, self.problems)
            self._blocks = read(self._source, index, self._report)
        except BaseException:
            self._source.close()
            raise

    @property
    def compression(self) -> str | None:
        """`gzip`, `zstd` or None."""
        return self._source.compression

    @property
    def bytes(self) -> int:
        """Bytes of the capture (uncompressed) that were read so far."""
        return self._source.read_to

    def blocks(self) -> Iterator[PacketBlock]:
        """Blocks in file order, as the input gives them; none is empty."""
        for block in self._blocks:
            self.packets += len(block)
            first, last = int(block.time_ns.min()), int(block.time_ns.max())
            self.first_time_ns = first if self.first_time_ns is None else min(self.first_time_ns, first)
            self.last_time_ns = last if self.last_time_ns is None else max(self.last_time_ns, last)
            yield block

    def pread(self, offset: int, length: int) -> builtins.bytes:
        """Bytes at any (uncompressed) file offset that was already read; fewer where the input ends."""
        return self._source.pread(offset, length)

    def end(self) -> bool:
        """Ends an input that is still being written; see `Source.end`."""
        return self._source.end()

    def close(self) -> None:
        """Close the file and the temporary one; closing twice is fine."""
        self._source.close()

    def __enter__(self) -> CaptureReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _report(self, reason: str, packet: int | None) -> None:
        self.problems.append(Problem("capture", reason, Location(capture=self.index, packet=packet)))


def open_capture(path: str, index: int = 0) -> CaptureReader:
    """Open a capture (`-` is standard input); `index` is its place among the files opened together.

    Raises `CaptureError` where it can't be read and `UnknownFormatError` where it is no capture.
    """
    return CaptureReader(path, index)


def _recognise(source: Source, problems: list[Problem]) -> tuple[str, Reader]:
    head = source.window(0, 4)[:16]
    if not head:
        raise CaptureError(f"{source.name}: {problems[0].reason if problems else 'empty file'}")
    for magic, name, read in READERS:
        if head.startswith(magic):
            return name, read
    for magic, what in STRANGERS:
        if head.startswith(magic):
            raise UnknownFormatError(f"{source.name}: not a pcap or pcapng file but {what}")
    raise UnknownFormatError(f"{source.name}: not a pcap or pcapng file (it starts with {head[:4].hex(' ')})")


Reader = Callable[[Source, int, Report], Iterator[PacketBlock]]

READERS: tuple[tuple[bytes, str, Reader], ...] = (
    *((magic, "pcap", read_pcap) for magic in MAGICS),
    (SECTION_HEADER, "pcapng", read_pcapng),
)
"""Magic bytes, name of the format, function that reads it."""

STRANGERS: tuple[tuple[bytes, str], ...] = (
    (b"snoop\0\0\0", "a snoop file; editcap converts it"),
    (b"RTSS", "a Network Monitor 1 file; editcap converts it"),
    (b"GMBU", "a Network Monitor 2 file; editcap converts it"),
    (b"XCP\0", "a NetXRay file; editcap converts it"),
    (b"TR\0d", "a nettl file; editcap converts it"),
    (b"PK\x03\x04", "a zip archive; unpack it first"),
    (b"BZh", "bzip2 data; unpack it first"),
    (b"\xfd7zXZ\0", "xz data; unpack it first"),
    (b"\x04\x22\x4d\x18", "LZ4 data; unpack it first"),
)
"""Formats that are told by their magic and not read here."""

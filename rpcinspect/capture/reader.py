"""One capture of any known format, as blocks of packets; a log as blocks of its records.

In: a path (`-` is standard input), or an interface to capture on. Out: a `CaptureReader`, which counts what
it hands on and keeps the problems that reading survived. `CaptureError` only at opening, or where the
operating system refuses to read.

pcap and pcapng are read here (`native`); tshark reads everything else, and those too where it, or pyshark, is
asked to.
"""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol, TypeAlias

from msgspec import Struct

from rpcinspect.capture.block import (
    LOG_FORMAT,
    LOG_MAGIC,
    Int64s,
    LogBlock,
    PacketBlock,
    ReportProblem,
    TcpBlock,
)
from rpcinspect.capture.pcap import FILE_HEADER, MAGICS, PcapLayout, read_pcap
from rpcinspect.capture.pcapng import SECTION_HEADER, first_link_type, read_pcapng
from rpcinspect.capture.source import Source, open_source
from rpcinspect.errors import CaptureError, UnknownFormatError
from rpcinspect.files.closing import Closing
from rpcinspect.limits import DEFAULT_UNPACKING, Unpacking
from rpcinspect.problems import Location, Problem
from rpcinspect.unexpected import unexpected

if TYPE_CHECKING:
    from rpcinspect.capture.tshark import Tshark


BY_TSHARK = ("tshark", "pyshark")
"""Readers that give TCP segments in place of packets."""


class Reading(Struct, frozen=True, kw_only=True):
    """Who reads captures, and how."""

    reader: str = "auto"
    """`native`, `tshark`, `pyshark`, or `auto`: native, and tshark for formats that it does not know and for
    802.11."""
    preferences: tuple[str, ...] = ()
    """Preferences for tshark, `name:value`; with any, `auto` means tshark."""
    capture_filter: str | None = None
    """Which packets a live capture takes, in the syntax of pcap-filter."""
    unpacking: Unpacking = DEFAULT_UNPACKING
    """How far compressed captures are read."""

    @property
    def by_tshark(self) -> bool:
        """Whether tshark reads every capture, whatever its format: because somebody asked for it or for
        pyshark, or has given preferences for it. False also where `auto` hands single captures on to it."""
        return self.reader in BY_TSHARK or (bool(self.preferences) and self.reader == "auto")


DEFAULT_READING = Reading()

CaptureBlock: TypeAlias = PacketBlock | TcpBlock | LogBlock


class Live(Struct, frozen=True):
    """Stands for a path: what passes an interface from now on."""

    interface: str


class Followed(Struct, frozen=True):
    """Stands for a path: a file that is still being written."""

    path: str
    is_over: Callable[[], bool]
    """Whether its writer has ended."""


class PacketCapture(Protocol):
    """A capture object of pyshark, which has no types of its own."""

    use_json: bool
    include_raw: bool

    def get_parameters(self, packet_count: int | None = None) -> list[str]:
        """Returns the arguments of tshark."""


class PysharkCapture(Struct, frozen=True):
    """Stands for a path: a capture object of pyshark."""

    given: PacketCapture

    @property
    def path(self) -> str:
        """The name of its file or of its interfaces."""
        file = getattr(self.given, "input_filepath", None)
        interfaces = ", ".join(getattr(self.given, "interfaces", ()))
        return (str(file) if file is not None else interfaces) or type(self.given).__name__


PathName: TypeAlias = str | os.PathLike[str]
Readable: TypeAlias = PathName | PacketCapture
CaptureInput: TypeAlias = str | Live | Followed | PysharkCapture


def input_of(one: Readable) -> CaptureInput:
    """Returns what programs name a capture by, as it is opened."""
    return os.fspath(one) if isinstance(one, (str, os.PathLike)) else PysharkCapture(one)


class CaptureReader(Closing):
    """An open capture. Use it in a `with` statement; call `blocks` once."""

    def __init__(self, path: CaptureInput, index: int = 0, reading: Reading = DEFAULT_READING) -> None:
        """Opens a capture (`-` is standard input); `index` is its place among those opened together.

        Raises `CaptureError` where it can't be read and `UnknownFormatError` where it is no capture.
        """
        self.input = path
        self.path = path if isinstance(path, str) else path.interface if isinstance(path, Live) else path.path
        self._live = isinstance(path, (Live, Followed))
        self.index = index
        self.reader = "native"
        """Who reads: `native`, `tshark` or `pyshark`; `log` where it is no capture of packets."""
        self.problems: list[Problem] = []
        """Grows while blocks are read."""
        self.packets = 0
        """Packets handed on so far."""
        self.first_time_ns: int | None = None
        """Earliest time so far (of any packet: files need not be in order)."""
        self.last_time_ns: int | None = None
        self._blocks: Iterator[CaptureBlock]
        if isinstance(path, Live):
            from rpcinspect.capture.live import open_live

            self._source: Source = open_live(path.interface, reading.capture_filter, self._report)
        elif isinstance(path, Followed):
            from rpcinspect.capture.followed import FollowedSource

            self._source = FollowedSource(path.path, path.is_over)
        elif isinstance(path, PysharkCapture):
            from rpcinspect.capture.pyshark_packets import open_given

            given = open_given(path.given, path.path, index, self._report, reading.unpacking)
            self._source, self._blocks = given, given.blocks()
            self.reader = self.format = given.format
            return
        else:
            self._source = open_source(path, self._report, reading.unpacking)
        try:
            self._begin(self._source, reading)
        except BaseException:
            self._source.close()
            raise

    def _begin(self, source: Source, reading: Reading) -> None:
        """Finds out who reads the input."""
        if reading.by_tshark:
            self._read_by_tshark(source, reading)
            return
        may_ask_tshark = reading.reader == "auto" and not self._live
        try:
            self.format, read = _recognise(source, self.problems)
            self._blocks = read(source, self.index, self._report)
        except UnknownFormatError as error:
            if not may_ask_tshark:
                raise
            self._read_by_tshark(source, reading, error)
            return
        if self.format == LOG_FORMAT:
            self.reader = "log"
        elif may_ask_tshark and (link_type := _link_type(source, self.format)) in WLAN:
            reason = f"its packets are 802.11 frames (link type {link_type}), which are not read here"
            self._read_by_tshark(source, reading, CaptureError(f"{source.name}: {reason}"))

    def _read_by_tshark(self, source: Source, reading: Reading, unread: CaptureError | None = None) -> None:
        """Hands the input to tshark: for the user, or because of `unread`, an error of our reader."""
        from rpcinspect.capture.tshark import INSTALL, Tshark, find_program

        kind: type[Tshark] = Tshark
        if reading.reader == "pyshark":
            from rpcinspect.capture.pyshark_packets import PysharkFile

            kind = PysharkFile
        if unread is not None and find_program("tshark") is None:
            raise UnknownFormatError(f"{unread}; tshark may know it: {INSTALL}") from unread
        try:
            tshark = kind(source, reading.preferences, self.index, self._report, reading.unpacking)
        except CaptureError as error:
            if unread is None:
                raise
            raise UnknownFormatError(f"{unread}, and tshark can't read it either") from error
        self._source = tshark
        # tshark opens nearly anything as a capture of something
        if isinstance(unread, UnknownFormatError) and not tshark.has_segments:
            raise UnknownFormatError(f"{unread}, and tshark finds no TCP in it") from unread
        self.reader = self.format = tshark.format
        self._blocks = tshark.blocks()

    @property
    def compression(self) -> str | None:
        """`gzip`, `zstd` or None."""
        return self._source.compression

    @property
    def bytes(self) -> int:
        """Bytes of the capture (uncompressed) that were read so far."""
        return self._source.read_to

    @property
    def ended_early(self) -> str | None:
        """Why there is more of the capture than is read: it unpacks to too much, or there is no room."""
        return self._source.ended_early

    @property
    def progress(self) -> tuple[int, int | None]:
        """(bytes that were read, as the input is stored; all of them, None where nobody knows)."""
        return self._source.progress()

    def blocks(self) -> Iterator[CaptureBlock]:
        """Blocks in file order, as the input gives them; each is of one packet at least, but for those of
        logs."""
        for block in self._whole_blocks():
            self.packets += block.packets
            times = block.times
            if times is None:
                yield block
                continue
            first, last = times
            self.first_time_ns = first if self.first_time_ns is None else min(self.first_time_ns, first)
            self.last_time_ns = last if self.last_time_ns is None else max(self.last_time_ns, last)
            yield block

    def _whole_blocks(self) -> Iterator[CaptureBlock]:
        """Yields blocks, up to an unexpected exception."""
        try:
            yield from self._blocks
        except Exception as error:
            self.problems.append(unexpected(error, "capture", Location(capture=self.index)))

    @property
    def state(self) -> os.stat_result:
        """Returns the state of a plain file when it was opened: its size, and when it was changed."""
        return self._source.state

    @property
    def twice(self) -> bool:
        """Returns whether the input is a plain file, which can be read from its beginning again."""
        return not self._live and self.path != "-" and os.path.isfile(self.path)

    def pread(self, offset: int, length: int) -> builtins.bytes:
        """Bytes at any offset of a block that was already read, which is that in the (uncompressed) file
        where it was read here; fewer where the input ends.
        """
        return self._source.pread(offset, length)

    def keep(self, offsets: Int64s, lengths: Int64s, end: int) -> None:
        """Declares what will be read again before `end` and after the `end` of the previous call: only these
        ranges. Other parts of a temporary file are freed."""
        self._source.keep(offsets, lengths, end)

    def end(self) -> bool:
        """Ends an input that is still being written; see `Source.end`."""
        return self._source.end()

    def close(self) -> None:
        """Close the file and the temporary one; closing twice is fine."""
        self._source.close()

    def _report(self, reason: str, packet: int | None = None, offset: int | None = None) -> None:
        place = Location(capture=self.index, packet=packet, offset=offset)
        self.problems.append(Problem("capture", reason, place))


def _recognise(source: Source, problems: list[Problem]) -> tuple[str, ReadFormat]:
    head = source.window(0, len(LOG_MAGIC))[:16]  # no other is as long
    if not head:
        raise CaptureError(f"{source.name}: {problems[0].reason if problems else 'empty file'}")
    for magic, name, read in READERS:
        if head.startswith(magic):
            return name, read
    for magic, what in STRANGERS:
        if head.startswith(magic):
            raise UnknownFormatError(f"{source.name}: not a pcap, pcapng or rpclog file but {what}")
    text = head.isascii() and "".join(head.decode().split()).isprintable()
    begin = repr(head.decode()) if text else head[:4].hex(" ")
    raise UnknownFormatError(f"{source.name}: not a pcap, pcapng or rpclog file (it starts with {begin})")


def _link_type(source: Source, format: str) -> int:
    """The link type of the file's first interface; only of a header that was found good."""
    if format == "pcapng":
        return first_link_type(source)
    return PcapLayout.from_header(source.window(0, FILE_HEADER)[:FILE_HEADER], source.name).link_type


def _read_log(source: Source, capture: int, report: ReportProblem) -> Iterator[LogBlock]:
    from rpcinspect.capture.log import read_log  # which packets need not wait for

    return read_log(source, capture, report)


ReadFormat = Callable[[Source, int, ReportProblem], Iterator[PacketBlock] | Iterator[LogBlock]]

READERS: tuple[tuple[bytes, str, ReadFormat], ...] = (
    *((magic, "pcap", read_pcap) for magic in MAGICS),
    (SECTION_HEADER, "pcapng", read_pcapng),
    (LOG_MAGIC, LOG_FORMAT, _read_log),
)
"""Magic bytes, name of the format, function that reads it."""

WLAN = frozenset({105, 119, 127, 163, 192})
"""LINKTYPE_ numbers of 802.11 frames: bare, or behind a header of Prism, radiotap, AVS or PPI."""

STRANGERS: tuple[tuple[bytes, str], ...] = (
    (b"snoop\0\0\0", "a snoop file"),
    (b"RTSS", "a Network Monitor 1 file"),
    (b"GMBU", "a Network Monitor 2 file"),
    (b"XCP\0", "a NetXRay file"),
    (b"TR\0d", "a nettl file"),
    (b"PK\x03\x04", "a zip archive (unpack it first)"),
    (b"BZh", "bzip2 data (unpack it first)"),
    (b"\xfd7zXZ\0", "xz data (unpack it first)"),
    (b"\x04\x22\x4d\x18", "LZ4 data (unpack it first)"),
    (b"<!DOCTYPE html>", "an HTML page, such as rpcinspect export html writes"),
    (b'{"kind":', "JSON lines, such as decode --format jsonl writes"),
    (b'{\n"schema":', "JSON, such as decode --format json writes"),
    (b"rpcidx\0", "an index that rpcinspect has written beside its capture"),
    (b"PAR1", "Parquet, such as rpcinspect export parquet writes"),
)
"""Formats that are recognised by their first bytes and not read here: those of others, then what we write."""

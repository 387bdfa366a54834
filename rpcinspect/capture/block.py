"""The units that the capture stage hands on: many packets, or many TCP segments, as columns.

A capture holds hundreds of thousands of packets, and one small Python object per packet costs more than all
that is done with it. So a reader yields *blocks*: one window of the file (bytes) and numpy columns that say
where in the file each packet lies. Offsets are absolute file offsets (of the uncompressed file where the
input was compressed), so that they stay good after the window is gone: `CaptureReader.pread` gives the bytes
again.

A log holds no packets: its reader yields records, few enough that each is an object.

Where another program has read the headers already, a reader yields TCP segments in place of packets; their
offsets point into a temporary file that holds the payloads, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Int64s = NDArray[np.int64]

LOG_FORMAT, LOG_MAGIC = "rpclog", b'{"rpclog":'
"""Name of the format of logs, and what the first line begins with."""


class ReportProblem(Protocol):
    """Takes the reason of a problem, the number of the packet that it concerns, and a place in the input."""

    def __call__(self, reason: str, packet: int | None = None, offset: int | None = None) -> None: ...


class PacketHeads(Struct, frozen=True, eq=False):
    """Packets that are nearly all payload, whose bytes few ask for: the window holds their first bytes, one
    packet after the other, and its offset in the file means nothing.
    """

    at: Int64s
    """Where in the window each packet begins."""
    seen: Int64s
    """How many of its bytes are there."""
    whole: Callable[[], PacketBlock]
    """Reads the same packets with all of their bytes."""


class PacketBlock(Struct, frozen=True, kw_only=True, eq=False):
    """Packets of one window of one capture file, in file order. All columns have the same length n.

    Records without packet data (pcapng blocks of other kinds) are not rows.
    """

    capture: int
    """Index of the capture file among those that were opened together, from 0."""
    first_number: int
    """Number of row 0 in its file, from 1 and as Wireshark counts; the rows of a block have no gaps."""
    window: bytes
    """The bytes of the file that hold every packet of this block, and the records around them."""
    window_offset: int
    """File offset of `window[0]`."""
    offset: Int64s
    """File offset of the first link-layer byte."""
    caplen: Int64s
    """Bytes of the packet that are in the file."""
    length: Int64s
    """Bytes that the packet had on the wire (never below `caplen`)."""
    time_ns: Int64s
    """Nanoseconds since 1970; 0 where the format has no time."""
    link_type: NDArray[np.uint16]
    """LINKTYPE_ number of each packet; the bits above it in a pcap header (FCS length) are removed."""
    heads: PacketHeads | None = None
    """Where the window holds the first bytes of packets only; None: all of each packet is there."""

    def __len__(self) -> int:
        return len(self.offset)

    @property
    def packets(self) -> int:
        """Packets of the file that this block stands for."""
        return len(self.offset)

    @property
    def times(self) -> tuple[int, int]:
        """Returns the earliest and the latest time of the packets."""
        return int(self.time_ns.min()), int(self.time_ns.max())


class Direction(NamedTuple):
    """Source and destination of a segment; addresses are 4 or 16 bytes."""

    source: bytes
    source_port: int
    destination: bytes
    destination_port: int


class SegmentBlock(Struct, frozen=True, kw_only=True, eq=False):
    """TCP segments of one block of packets, in file order. All columns have the same length, which may be 0
    and is not the number of packets: not every packet is a segment, and a tunnel's holds two.
    """

    capture: int
    window: bytes
    """The bytes that hold every payload of this block, but for fragments that came before it; `window[0]` is
    at `window_offset`."""
    window_offset: int
    packet: Int64s
    """Packet number in its file, from 1."""
    time_ns: Int64s
    flow: Int64s
    """Index into `Segmenter.flows`; in a `TcpBlock` into its `directions`."""
    sequence: Int64s
    """Sequence number of the header, 0..2³²−1 (of the SYN itself where SYN is set)."""
    acknowledgment: Int64s
    """Acknowledgment number, 0..2³²−1; without meaning where ACK is not set."""
    flags: NDArray[np.uint8]
    """FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32."""
    offset: Int64s
    """Where `CaptureReader.pread` gives the payload."""
    captured: Int64s
    """Payload bytes that are in the file."""
    length: Int64s
    """Payload bytes on the wire by the IP length: more than `captured` where the snap length cut them;
    padding and trailers of the link layer never count."""
    has_fragments: bool = False
    """Whether some of the packets were parts of others: bytes beside these payloads may yet become some."""

    def __len__(self) -> int:
        return len(self.packet)


class TcpBlock(Struct, frozen=True, kw_only=True, eq=False):
    """TCP segments of a run of packets of one capture file."""

    packets: int
    """Packets of the file that this block stands for, at least 1."""
    times: tuple[int, int]
    """Earliest and latest time of its packets."""
    other: Mapping[str, int]
    """Packets that gave no segment, by a short reason."""
    directions: Sequence[Direction]
    """Every direction seen so far in this capture; grows from block to block."""
    segments: SegmentBlock
    """Their window is the payloads, one after the other."""

    @property
    def capture(self) -> int:
        """Index of the capture file among those that were opened together, from 0."""
        return self.segments.capture


class LogRecord(Struct, frozen=True):
    """A record of a log."""

    number: int
    """Of the record in its log, from 1."""
    offset: int
    """Of its header line in the log."""
    header: dict[str, Any]
    """As written; its lengths and times are what they must be, nothing else of it was looked at."""
    times: tuple[int | None, int | None]
    """When what it tells of began and ended."""
    payload: bytes
    """Of a message, as its tensor table is."""
    table: bytes
    rest: int
    """Where `CaptureReader.pread` gives the bytes of its storages."""


class LogBlock(Struct, frozen=True, kw_only=True):
    """Consecutive records of a log."""

    capture: int
    """Index of the log among the captures that were opened together, from 0."""
    records: tuple[LogRecord, ...]
    damaged: bool
    """Whether what lay before, between or behind them could not be read."""

    @property
    def packets(self) -> int:
        """Records, which stand for packets where these are counted."""
        return len(self.records)

    @property
    def times(self) -> tuple[int, int] | None:
        """Returns the earliest and the latest time of the records; None where no record has a time."""
        told = [time for record in self.records for time in record.times if time is not None]
        return (min(told), max(told)) if told else None


def as_int64(values: Any) -> Int64s:
    """An int64 column from any sequence or array of integers."""
    return np.asarray(values, dtype=np.int64)

"""The unit that the capture stage hands on: many packets as columns.

A capture holds hundreds of thousands of packets, and one small Python object per packet costs more than all
that is done with it. So a reader yields *blocks*: one window of the file (bytes) and numpy columns that say
where in the file each packet lies. Offsets are absolute file offsets (of the uncompressed file where the
input was compressed), so that they stay good after the window is gone: `CaptureReader.pread` gives the bytes
again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PacketBlock:
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

    def __len__(self) -> int:
        return len(self.offset)


def as_int64(values: Any) -> Int64s:
    """An int64 column from any sequence or array of integers."""
    return np.asarray(values, dtype=np.int64)

"""Link-layer headers of many packets at once: from the start of the frame to the network header.

In: the window of a packet block and `Rows` at the link-layer header. Out: `Rows` at the network header and
what that header is, an EtherType; rows whose link header is not all there are left out. A new link type is
one line in `LINKS`, a new header between link and network one line in `TAGS`. LINKTYPE_ numbers are those of
tcpdump.org/linktypes.html.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpcinspect.capture.block import Int64s, PacketBlock

Mask = NDArray[np.bool_]
Kinds = NDArray[np.uint16]
"""What comes next, per row: an EtherType, `BARE` or `NOT_IP`."""
Numbers = NDArray[Any]

IPV4, IPV6 = 0x0800, 0x86DD
BARE = 0
"""IPv4 or IPv6, told by the version in its first byte."""
NOT_IP = 0xFFFF

MAX_TAGS = 8
"""Tags that are stepped over in one frame; honest ones have three at most."""


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Some packets of a block and where the next header of each begins; positions count from the window."""

    row: Int64s
    """Row in the packet block."""
    at: Int64s
    """The next header."""
    end: Int64s
    """End of the bytes that are there."""
    wire: Int64s
    """Where the packet would end had it been captured whole."""

    @classmethod
    def of_block(cls, block: PacketBlock) -> Rows:
        """All packets of a block, at their link-layer header."""
        at = block.offset - block.window_offset
        return cls(np.arange(len(block), dtype=np.int64), at, at + block.caplen, at + block.length)

    def __len__(self) -> int:
        return len(self.row)

    def keep(self, mask: Mask) -> Rows:
        """The rows where `mask` is set."""
        if mask.all():
            return self
        return Rows(self.row[mask], self.at[mask], self.end[mask], self.wire[mask])

    def having(self, size: int) -> Rows:
        """The rows with at least `size` bytes there."""
        return self.keep(self.end - self.at >= size)

    def moved(self, size: int) -> Rows:
        """The same rows with the next header `size` bytes further."""
        return Rows(self.row, self.at + size, self.end, self.wire)

    def joined(self, other: Rows) -> Rows:
        """These rows and then the others."""
        return Rows(
            np.concatenate((self.row, other.row)),
            np.concatenate((self.at, other.at)),
            np.concatenate((self.end, other.end)),
            np.concatenate((self.wire, other.wire)),
        )


def gather(window: bytes, at: Int64s, dtype: str, count: int = 1) -> Numbers:
    """`count` numbers of `dtype` at each position, as an array [rows, count]; all must lie in the window.

    The window is seen as overlapping elements of the whole size, so each row is one memcpy.
    """
    size = np.dtype(dtype).itemsize * count
    if not len(at):
        return np.empty((0, count), dtype=dtype)
    view: Numbers = np.ndarray((len(window) - size + 1,), f"V{size}", window, strides=(1,))
    return view[at].view(dtype).reshape(-1, count)


def network_headers(window: bytes, rows: Rows, link: LinkLayer) -> tuple[Rows, Kinds]:
    """Step over the link-layer header and the tags behind it; kinds are EtherTypes or `NOT_IP`."""
    rows, kind = link(window, rows)
    for _ in range(MAX_TAGS):
        tagged = _IS_TAG[kind]
        if not tagged.any():
            break
        parts = [(rows.keep(~tagged), kind[~tagged])]
        for number, step in TAGS.items():
            chosen = kind == number
            if chosen.any():
                parts.append(step(window, rows.keep(chosen)))
        rows, kind = _joined(parts)
    if (kind == BARE).any():
        rows, kind = _by_version(window, rows, kind)
    return rows, kind


def _joined(parts: list[tuple[Rows, Kinds]]) -> tuple[Rows, Kinds]:
    rows, kind = parts[0]
    for more, more_kind in parts[1:]:
        rows, kind = rows.joined(more), np.concatenate((kind, more_kind))
    return rows, kind


def _by_version(window: bytes, rows: Rows, kind: Kinds) -> tuple[Rows, Kinds]:
    known = (kind != BARE) | (rows.end > rows.at)
    rows, kind = rows.keep(known), kind[known]
    bare = kind == BARE
    version = gather(window, rows.at[bare], "u1")[:, 0] >> 4
    kind[bare] = np.select([version == 4, version == 6], [IPV4, IPV6], NOT_IP)
    return rows, kind


def _header(size: int, kind_at: int) -> LinkLayer:
    """A link layer (or tag) of fixed size that has the EtherType at a fixed place."""

    def read(window: bytes, rows: Rows) -> tuple[Rows, Kinds]:
        rows = rows.having(size)
        return rows.moved(size), gather(window, rows.at + kind_at, ">u2")[:, 0].astype(np.uint16)

    return read


def _no_header(kind: int) -> LinkLayer:
    """Nothing before the network header."""

    def read(window: bytes, rows: Rows) -> tuple[Rows, Kinds]:
        return rows, np.full(len(rows), kind, dtype=np.uint16)

    return read


def _loopback(window: bytes, rows: Rows) -> tuple[Rows, Kinds]:
    """BSD loopback: an address family as u32, in the byte order of the machine that captured (LOOP: big)."""
    rows = rows.having(4)
    little = gather(window, rows.at, "<u4")[:, 0]
    family = np.where(little < 0x10000, little, little.byteswap())
    version_6 = (family == 10) | (family == 23) | (family == 24) | (family == 28) | (family == 30)
    kind = np.select([family == 2, version_6], [IPV4, IPV6], NOT_IP).astype(np.uint16)
    return rows.moved(4), kind


LinkLayer = Callable[[bytes, Rows], tuple[Rows, Kinds]]

LINKS: dict[int, LinkLayer] = {
    0: _loopback,  # NULL
    1: _header(14, 12),  # Ethernet
    12: _no_header(BARE),  # raw IP, as some BSDs number it in files
    14: _no_header(BARE),
    101: _no_header(BARE),  # RAW
    108: _loopback,  # LOOP
    113: _header(16, 14),  # Linux cooked capture
    228: _no_header(IPV4),
    229: _no_header(IPV6),
    276: _header(20, 0),  # Linux cooked capture, version 2
}
"""LINKTYPE_ number → how to find the network header."""

TAGS: dict[int, LinkLayer] = {
    0x8100: _header(4, 2),  # VLAN
    0x88A8: _header(4, 2),  # VLAN, outer tag
    0x9100: _header(4, 2),  # VLAN, outer tag before it was standardised
}
"""EtherType of what lies between link and network header → how to step over it."""

_IS_TAG: Mask = np.isin(np.arange(1 << 16), list(TAGS))

ETHERTYPES = {
    0x0806: "arp",
    0x8035: "rarp",
    0x8847: "mpls",
    0x8863: "pppoe discovery",
    0x8864: "pppoe",
    0x888E: "eapol",
    0x88CC: "lldp",
    NOT_IP: "not ip",
}
"""Names for what is counted and not read."""

"""Many packets at once: rows of positions in one window of bytes, and what header comes next in each.

What the link, tunnel and IP layers share. A layer is a function from (window, `Rows` at its header) to
(`Rows` behind its header, the kind of what comes next); rows whose header is not all there are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from rpcinspect.capture.block import Int64s, PacketBlock

Mask = NDArray[np.bool_]
Kinds = NDArray[np.uint16]
"""What comes next, per row: an EtherType, or one of the numbers below, which no EtherType has."""
Numbers = NDArray[Any]

IPV4, IPV6 = 0x0800, 0x86DD
BRIDGED = 0x6558
"""A whole Ethernet frame."""
PPP = 0x880B
BARE, LLC, NO_TUNNEL = range(3)
"""IPv4 or IPv6, told by the version in its first byte; an 802.2 header; a datagram that carries no packet."""
NOT_IP = 0xFFFF
LEAST_ETHERTYPE = 0x600
"""A lower number in the place of an EtherType is the length of an 802.3 frame."""


class Rows(Struct, frozen=True, eq=False):
    """Packets of a block, and where the next header of each begins; positions count from the window."""

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
        """Returns all packets of a block, at their link-layer headers."""
        row = np.arange(len(block), dtype=np.int64)
        if block.heads is not None:
            at = block.heads.at
            return cls(row, at, at + block.heads.seen, at + block.length)
        at = block.offset - block.window_offset
        return cls(row, at, at + block.caplen, at + block.length)

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

    def moved(self, size: int | Int64s) -> Rows:
        """Returns the rows with the next header `size` bytes further."""
        return Rows(self.row, self.at + size, self.end, self.wire)

    def joined(self, other: Rows) -> Rows:
        """Returns these rows, then the others."""
        return Rows(
            np.concatenate((self.row, other.row)),
            np.concatenate((self.at, other.at)),
            np.concatenate((self.end, other.end)),
            np.concatenate((self.wire, other.wire)),
        )


Layer = Callable[[bytes, Rows], tuple[Rows, Kinds]]


def gather(window: bytes, at: Int64s, dtype: str, count: int = 1) -> Numbers:
    """`count` numbers of `dtype` at each position, as an array [rows, count]; all must lie in the window.

    The window is seen as overlapping elements of the whole size, so each row is one memcpy.
    """
    size = np.dtype(dtype).itemsize * count
    if not len(at):
        return np.empty((0, count), dtype=dtype)
    view: Numbers = np.ndarray((len(window) - size + 1,), f"V{size}", window, strides=(1,))
    return view[at].view(dtype).reshape(-1, count)


def ether_types(window: bytes, at: Int64s, below: int = NOT_IP) -> Kinds:
    """The EtherType at each position; `below` stands for numbers that are none."""
    kind: Kinds = gather(window, at, ">u2")[:, 0].astype(np.uint16)
    low = kind < LEAST_ETHERTYPE
    if low.any():
        kind[low] = below
    return kind


def carries(size: int, kind: int) -> Layer:
    """A header of fixed size before something that is always the same."""

    def read(window: bytes, rows: Rows) -> tuple[Rows, Kinds]:
        rows = rows.having(size).moved(size) if size else rows
        return rows, np.full(len(rows), kind, dtype=np.uint16)

    return read


def joined(parts: list[tuple[Rows, Kinds]]) -> tuple[Rows, Kinds]:
    """The rows of several parts, one part after the other."""
    rows, kind = parts[0]
    for more, more_kind in parts[1:]:
        rows, kind = rows.joined(more), np.concatenate((kind, more_kind))
    return rows, kind


def alternatives(rows: Rows, chosen: Mask, yes: Rows, kind_yes: Kinds, kind_no: int) -> tuple[Rows, Kinds]:
    """Returns `yes` and its kinds in place of the chosen rows; the other rows keep their place and get
    `kind_no`."""
    others = rows.keep(~chosen)
    return joined([(yes, kind_yes), (others, np.full(len(others), kind_no, dtype=np.uint16))])


def distinct_numbers(values: Numbers) -> list[int]:
    """Returns the different values in order. Not by np.unique, which loads numpy's masked arrays to see
    whether these are some: as long as reading a small capture takes."""
    ordered = np.sort(values)
    first = np.ones(len(ordered), dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    found: list[int] = ordered[first].tolist()
    return found


def is_one_of(numbers: Iterable[int]) -> Mask:
    """Returns for each number of 16 bits whether it is one of these."""
    found = np.zeros(1 << 16, dtype=np.bool_)
    found[list(numbers)] = True
    return found


def distinct_rows(columns: tuple[NDArray[np.uint64], ...]) -> tuple[Int64s, Int64s]:
    """Which rows of a table are different: the first row of each kind, and for every row its kind.

    Linear where few kinds are many rows: a table of 65,536 slots by hash; only kinds that share a slot with
    another are sorted.
    """
    rows = np.arange(len(columns[0]), dtype=np.int64)
    mixed = np.zeros(len(rows), dtype=np.uint64)
    for column in columns:
        mixed = (mixed ^ column) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(32)
    slot = (mixed & np.uint64(0xFFFF)).astype(np.int64)
    table = np.empty(1 << 16, dtype=np.int64)
    table[slot[::-1]] = rows[::-1]  # the last assignment stays: the first row of the slot
    model = table[slot]
    differs = np.zeros(len(rows), dtype=np.bool_)
    for column in columns:
        differs |= column[model] != column
    if differs.any():
        rest = np.flatnonzero(differs)
        keys = np.stack([column[rest] for column in columns], axis=1)
        whole = keys.view(f"V{8 * len(columns)}")[:, 0]
        _, first_of, kind = np.unique(whole, return_index=True, return_inverse=True)
        model[rest] = rest[first_of[kind]]
    first = np.flatnonzero(model == rows)
    number = np.empty(len(rows), dtype=np.int64)
    number[first] = np.arange(len(first))
    return first, number[model]

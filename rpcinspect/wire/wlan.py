"""802.11 frames of many packets at once, with the headers that capture drivers put before them.

In: the window of a packet block and `Rows` at the start of the packet. Out: `Rows` at the 802.2 header of
data frames that are not encrypted; all others stay, with a kind that says what they are. Mirrors IEEE
802.11-2020 section 9.3.2, radiotap.org and the Prism and AVS headers of linux-wlan-ng.
"""

from __future__ import annotations

import numpy as np

from rpcinspect.capture.block import Int64s
from rpcinspect.wire.rows import (
    LLC,
    WLAN_CONTROL,
    WLAN_ENCRYPTED,
    WLAN_PART,
    Kinds,
    Mask,
    Rows,
    alternatives,
    gather,
)

_MAX_PRESENCE_WORDS = 8


def wlan(window: bytes, rows: Rows) -> tuple[Rows, Kinds]:
    """802.11 without anything before it."""
    return _wlan(window, rows, np.zeros(len(rows), dtype=np.bool_))


def _wlan(window: bytes, rows: Rows, padded: Mask) -> tuple[Rows, Kinds]:
    """Frames whose header is filled up to four bytes where `padded` is set."""
    enough = rows.end - rows.at >= 2
    rows, padded = rows.keep(enough), padded[enough]
    control = gather(window, rows.at, "<u2")[:, 0].astype(np.int64)
    subtype = control >> 4 & 15
    data = (control >> 2 & 3 == 2) & (subtype & 4 == 0)
    quality = subtype & 8 != 0
    size = 24 + np.where(control & 0x0300 == 0x0300, 6, 0)  # both bits: between access points, four addresses
    quality_at = size.copy()
    size += np.where(quality, np.where(control & 0x8000 != 0, 6, 2), 0)
    size = np.where(padded, size + 3 & ~3, size)
    there = ~data | (rows.end - rows.at >= size)
    rows, data, control, quality, size, quality_at = (
        rows.keep(there),
        *(column[there] for column in (data, control, quality, size, quality_at)),
    )
    chosen = rows.keep(data)
    kind = _data_kinds(window, chosen, control[data], np.where(quality, quality_at, 0)[data])
    return alternatives(rows, data, chosen.moved(size[data]), kind, WLAN_CONTROL)


def _data_kinds(window: bytes, rows: Rows, control: Int64s, quality_at: Int64s) -> Kinds:
    """802.2, encrypted, or not one whole frame; `quality_at` is 0 where there is no QoS field."""
    fragment = gather(window, rows.at + 22, "<u2")[:, 0] & 15
    several = (quality_at > 0) & (gather(window, rows.at + quality_at, "u1")[:, 0] & 0x80 != 0)
    part = (control & 0x0400 != 0) | (fragment != 0) | several
    return np.select([control & 0x4000 != 0, part], [WLAN_ENCRYPTED, WLAN_PART], LLC).astype(np.uint16)


def radiotap(window: bytes, rows: Rows) -> tuple[Rows, Kinds]:
    """Radiotap: its size is at byte 2; of the fields only the flag matters that says the header is padded."""
    rows = rows.having(8)
    size = gather(window, rows.at + 2, "<u2")[:, 0].astype(np.int64)
    enough = (size >= 8) & (size <= rows.end - rows.at)
    rows, size = rows.keep(enough), size[enough]
    present = gather(window, rows.at + 4, "<u4")[:, 0].astype(np.int64)
    at, more = np.full(len(rows), 8), present >> 31 & 1 == 1
    for _ in range(_MAX_PRESENCE_WORDS):
        more &= at + 4 <= size
        if not more.any():
            break
        word = gather(window, rows.at[more] + at[more], "<u4")[:, 0]
        at[more] += 4
        more[more] = word >> 31 == 1
    at = np.where(present & 1 == 1, (at + 7 & ~7) + 8, at)  # a time stamp comes first
    padded = (present & 2 != 0) & (at < size)
    padded[padded] = gather(window, (rows.at + at)[padded], "u1")[:, 0] & 0x20 != 0
    return _wlan(window, rows.moved(size), padded)


def avs_or_prism(window: bytes, rows: Rows) -> tuple[Rows, Kinds]:
    """Both have their size at byte 4: AVS, which has a magic, big-endian, Prism in the machine's order."""
    rows = rows.having(8)
    magic = gather(window, rows.at, ">u4")[:, 0]
    big = gather(window, rows.at + 4, ">u4")[:, 0].astype(np.int64)
    little = gather(window, rows.at + 4, "<u4")[:, 0].astype(np.int64)
    size = np.where((magic & 0xFFFFF000 == 0x80211000) | (little > 0xFFFF), big, little)
    enough = (size >= 8) & (size <= rows.end - rows.at)
    return wlan(window, rows.keep(enough).moved(size[enough]))

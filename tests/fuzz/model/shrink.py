"""The smallest pickle that still does it: opcodes are taken out as long as the fault stays."""

from __future__ import annotations

import pickletools
from collections.abc import Callable


def shrink(data: bytes, still: Callable[[bytes], bool], tries: int = 1500) -> bytes:
    """`still`: whether a smaller pickle shows the same."""
    rows = _rows(data)
    if rows is None:
        return data
    size = max(1, len(rows) // 2)
    while size and tries:
        at = 0
        while at < len(rows) and tries:
            less = rows[:at] + rows[at + size :]
            tries -= 1
            if still(b"".join(less)):
                rows = less
            else:
                at += size
        size = size // 2 if size > 1 else 0
    for size in (12, 6, 4, 3, 2):  # values made simple
        at = 0
        while at + size <= len(rows) and tries:
            for simple in (b"N", b")", b"}"):
                less = [*rows[:at], simple, *rows[at + size :]]
                tries -= 1
                if still(b"".join(less)):
                    rows = less
                    break
            at += 1
    return b"".join(rows)


def _rows(data: bytes) -> list[bytes] | None:
    try:
        starts = [at or 0 for _, _, at in pickletools.genops(data)]
    except Exception:  # pickletools raises what it likes for what is no pickle
        return None
    return [data[a:b] for a, b in zip(starts, [*starts[1:], len(data)], strict=True)]

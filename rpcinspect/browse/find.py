"""Which line has a text.

In: lines, a text, where to begin and in which direction. Out: the place of the next line that has it, going
round at the end; upper and lower case are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

BATCH = 2000


def find_text(lines: Any, wanted: str, cursor: int, by: int) -> int | None:
    """Returns the place; None where no other line has it, or lines can't be searched."""
    texts = getattr(lines, "texts", None)
    count, text = len(lines), wanted.casefold()
    if texts is None or not count:
        return None
    order: Sequence[int] = [(cursor + by * step) % count for step in range(1, count)]
    for first in range(0, len(order), BATCH):
        some = order[first : first + BATCH]
        for at, line in zip(some, texts(some), strict=True):
            if text in line.casefold():
                return at
    return None

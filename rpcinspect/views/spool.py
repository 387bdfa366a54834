"""Rendered rows on their way to a temporary file, to be read back in another order.

Messages become complete in one order and are shown in another, and what they are called is known only at the
end: so each row's text waits in a file, and memory holds two numbers for it.
"""

from __future__ import annotations

from array import array
from itertools import accumulate
from os import SEEK_END
from typing import BinaryIO

BATCH_BYTES = 1 << 20
SPARSE, NEAR = 2, 1 << 14
"""Rows whose places span more than this many times their bytes, and this many bytes more, are read place by
place; rows less than the latter apart are of one place."""


class Spool:
    """Appends rows of bytes to a file that someone else opened and closes."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._batch: list[bytes] = []
        self._batched = 0
        self._starts = array("q", [0])
        """Where each row starts, and the end of the last."""

    def __len__(self) -> int:
        return len(self._starts) - 1

    def extend(self, rows: list[bytes]) -> None:
        """Adds the next rows."""
        self._batch += rows
        ends = list(accumulate(map(len, rows), initial=self._starts[-1]))
        self._batched += ends[-1] - ends[0]
        self._starts.fromlist(ends[1:])
        if self._batched >= BATCH_BYTES:
            self._flush()

    def _flush(self) -> None:
        if not self._batch:
            return
        self._file.seek(0, SEEK_END)
        self._file.write(b"".join(self._batch))
        self._batch.clear()
        self._batched = 0

    def read(self, order: list[int]) -> list[bytes]:
        """Rows in the given order. Near neighbours, which most are, cost one read of the file together."""
        if not order:
            return []
        self._flush()
        begins = [self._starts[row] for row in order]
        ends = [self._starts[row + 1] for row in order]
        low, high = min(begins), max(ends)
        if high - low > SPARSE * (sum(ends) - sum(begins)) + NEAR:
            return self._scattered(begins, ends)
        self._file.seek(low)
        window = self._file.read(high - low)
        return [window[begin - low : end - low] for begin, end in zip(begins, ends, strict=True)]

    def _scattered(self, begins: list[int], ends: list[int]) -> list[bytes]:
        """Rows of several places, each place read by itself."""
        found = [b""] * len(begins)
        places: list[list[int]] = []
        reached = -1
        for number in sorted(range(len(begins)), key=begins.__getitem__):
            if places and begins[number] - reached <= NEAR:
                places[-1].append(number)
            else:
                places.append([number])
            reached = max(reached, ends[number])
        for numbers in places:
            low = begins[numbers[0]]
            self._file.seek(low)
            window = self._file.read(max(ends[number] for number in numbers) - low)
            for number in numbers:
                found[number] = window[begins[number] - low : ends[number] - low]
        return found

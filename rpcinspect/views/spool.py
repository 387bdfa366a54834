"""Rendered rows on their way to a temporary file, to be read back in another order.

Messages become complete in one order and are shown in another, and what they are called is known only at the
end: so each row's text waits in a file, and memory holds two numbers for it.
"""

from __future__ import annotations

from array import array
from itertools import accumulate
from mmap import ACCESS_READ, ALLOCATIONGRANULARITY, mmap
from os import SEEK_END
from typing import BinaryIO

BATCH_BYTES = 1 << 20


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

    def replace(self, row: int, old: bytes, new: bytes) -> None:
        """Puts other bytes, as many, in the place of some of a row, if it has them."""
        self._flush()
        start = self._starts[row]
        self._file.seek(start)
        at = self._file.read(self._starts[row + 1] - start).find(old)
        if at >= 0:
            self._file.seek(start + at)
            self._file.write(new)

    def read(self, order: list[int]) -> list[bytes]:
        """Rows in the given order."""
        begins = [self._starts[row] for row in order]
        ends = [self._starts[row + 1] for row in order]
        low, high = min(begins, default=0), max(ends, default=0)
        if low == high:
            return [b""] * len(order)
        self._flush()
        self._file.flush()
        low -= low % ALLOCATIONGRANULARITY
        with mmap(self._file.fileno(), high - low, access=ACCESS_READ, offset=low) as window:
            return [window[begin - low : end - low] for begin, end in zip(begins, ends, strict=True)]

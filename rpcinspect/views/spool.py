"""Rendered rows on their way to a temporary file, to be read back in another order.

Messages become complete in one order and are shown in another, and what they are called is known only at the
end: so each row's text waits in a file, and memory holds two numbers for it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import BinaryIO

BATCH_BYTES = 1 << 20
READ_BYTES = 1 << 22


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

    def append(self, row: bytes) -> None:
        """Adds the next row."""
        self._batch.append(row)
        self._batched += len(row)
        self._starts.append(self._starts[-1] + len(row))
        if self._batched >= BATCH_BYTES:
            self._flush()

    def _flush(self) -> None:
        self._file.write(b"".join(self._batch))
        self._batch.clear()
        self._batched = 0

    def read(self, order: list[int]) -> Iterator[bytes]:
        """Rows in the given order. Near neighbours, which most are, cost one read of the file together."""
        self._flush()
        self._file.flush()
        starts = self._starts
        window, low, high = b"", 0, 0
        for row in order:
            start, end = starts[row], starts[row + 1]
            if not low <= start <= end <= high:
                low = max(0, start - READ_BYTES // 4)
                self._file.seek(low)
                window = self._file.read(max(READ_BYTES, end - low))
                high = low + len(window)
            yield window[start - low : end - low]

"""Lanes: workers side by side, and messages as arrows between them.

In: names of workers, and ends of messages. Out: one line of text for each. Where there are too many workers
for that, the ends are written out instead.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

from rpcinspect.views.text.table import end_label, join_ends, pad

MAX_LANES = 8
NEAREST = 12
GAP = 3


class Lanes:
    """The layout for some workers; `width` None does not limit it."""

    def __init__(self, workers: Sequence[str], width: int | None = None) -> None:
        labels = [end_label(worker) for worker in workers]
        self._at: dict[str, int] = {}
        at = 0
        for worker, label in zip(workers, labels, strict=True):
            self._at[worker] = at
            at += max(NEAREST, cell_len(label) + GAP)
        self._labels = labels
        self._size = max([place + 1 for place in self._at.values()] or [0])
        last = cell_len(labels[-1]) if labels else 0
        self._total = max(0, self._size - 1 + last)
        self.drawn = len(workers) <= MAX_LANES and (width is None or self._total <= width // 2)
        if not self.drawn:
            ends = sorted(map(cell_len, labels))[-2:]
            self._total = sum(ends) + cell_len(join_ends("", ""))

    def header(self) -> str:
        """The names above their lanes."""
        if not self.drawn:
            return pad("from → to", self._total)
        line = ""
        for place, label in zip(self._at.values(), self._labels, strict=True):
            line = pad(line, place) + label
        return pad(line, self._total)

    def arrow(self, source: str, destination: str, line: str = "─") -> str:
        """A message."""
        if not self.drawn:
            return pad(join_ends(end_label(source), end_label(destination)), self._total)
        cells = [" "] * self._size
        for place in self._at.values():
            cells[place] = "│"
        start, end = self._at.get(source), self._at.get(destination)
        if start is not None and end is not None:
            low, high = min(start, end), max(start, end)
            for place in range(low + 1, high):
                cells[place] = "┼" if cells[place] == "│" else line
            cells[start] = "├" if start < end else "┤"
            cells[end] = "↻" if start == end else "▶" if start < end else "◀"
        return pad("".join(cells), self._total)

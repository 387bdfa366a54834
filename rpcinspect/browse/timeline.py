"""The timeline: a column for each worker, a line for each message, an arrow from its sender to its receiver.

In: a capture that was read, and which messages are listed. Out: lines on demand. Columns are in the order of
the run's workers; those for which the list is too narrow share the last column, the least busy first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from rich.cells import set_cell_size

from rpcinspect.browse.growing_run import GrowingRun
from rpcinspect.browse.lines import ListLine, fitted
from rpcinspect.browse.listing import Listing, RowList
from rpcinspect.fields.phrases import end_label
from rpcinspect.session.model import NONE

LANE = 10
"""Cells of a column."""
HEAD = 20
"""Cells for number and time."""
TEXT = 16
"""Cells at least for what happened: the list can be shifted."""


class Timeline(RowList):
    """Messages between columns of workers; only once the whole capture was read."""

    def __init__(self, reading: GrowingRun, listed: Listing, marks: Mapping[int, str]) -> None:
        super().__init__(reading, listed, marks)
        assert reading.run is not None
        self._session = session = reading.run.session
        busy: Counter[str] = Counter()
        for pipe, count in Counter(session.messages.pipe).items():
            busy[session.clients[pipe]] += count
            busy[session.servers[pipe]] += count
        self._busy = [name for name, _ in busy.most_common()]
        order = {name: at for at, name in enumerate(one.name or "" for one in session.workers)}
        self._sorted = sorted(self._busy, key=lambda name: (order.get(name, len(order)), name))

    def lanes(self, width: int) -> Sequence[str]:
        """Returns who has a column of its own in a list so many cells wide."""
        room = max(3, (width - HEAD - TEXT) // LANE)
        if len(self._busy) <= room:
            return self._sorted
        kept = {*self._busy[: room - 1]}
        return [name for name in self._sorted if name in kept]

    def header(self, width: int) -> str:
        """Returns the names of the workers."""
        names = [fitted(end_label(name), LANE - 1) for name in self.lanes(width)]
        if len(names) < len(self._busy):
            names.append(f"{len(self._busy) - len(names):,} more")
        return f"{'#':>7} {'seconds':>11} {''.join(set_cell_size(name, LANE) for name in names)}"

    def line(self, at: int, width: int) -> ListLine:
        """Makes the line of a message."""
        session, row = self._session, self.row(at)
        lanes = {name: n for n, name in enumerate(self.lanes(width))}
        others = len(lanes)
        first = lanes.get(session.source(row), others)
        last = lanes.get(session.destination(row), others)
        made = super().line(at, width)
        seconds = (session.messages.time_ns[row] - self.reading.start_ns) / 1e9
        columns = max(others + (others < len(self._busy)), first + 1, last + 1)
        arrow = _arrow(first, last, columns, request=bool(session.messages.from_client[row]))
        text = self.reading.texts([row])[0]
        partner = session.messages.partner[row]
        if partner != NONE and not session.messages.from_client[row]:
            text = f"#{int(session.index[partner])}  {text}"
        return ListLine(f"{int(session.index[row]):>7} {seconds:>11.6f} {arrow} {text}", made.look, made.mark)


def _arrow(first: int, last: int, lanes: int, *, request: bool) -> str:
    """Draws lanes and an arrow between two of them."""
    cells = [" "] * (lanes * LANE)
    for lane in range(lanes):
        cells[lane * LANE] = "│"
    low, high = sorted((first, last))
    for at in range(low * LANE + 1, high * LANE):
        cells[at] = "─" if request else "┄"
    cells[last * LANE] = "▶" if last > first else "◀"
    cells[first * LANE] = "●"
    return "".join(cells)

"""The timeline: a column for each worker, a line for each message, an arrow from its sender to its receiver.

In: a list of messages and the run. Out: lines on demand. Columns are in the order of the run's workers; those
for which the list is too narrow are left out, the least busy first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size

from rpcinspect.browse.lines import ListLine
from rpcinspect.browse.listing import RowList
from rpcinspect.fields.phrases import end_label
from rpcinspect.session.model import NONE, Session

LANE = 10
"""Cells of a column."""
HEAD = 20
"""Cells for number and time."""
TEXT = 30
"""Cells at least for what happened."""


class Timeline:
    """Messages between columns of workers."""

    def __init__(self, rows: RowList, session: Session) -> None:
        self.rows = rows
        self._session = session
        busy: Counter[str] = Counter()
        for pipe, count in Counter(session.messages.pipe).items():
            busy[session.clients[pipe]] += count
            busy[session.servers[pipe]] += count
        self._busy = [name for name, _ in busy.most_common()]
        order = {name: at for at, name in enumerate(one.name or "" for one in session.workers)}
        self._sorted = sorted(self._busy, key=lambda name: (order.get(name, len(order)), name))

    def __len__(self) -> int:
        return len(self.rows)

    def lanes(self, width: int) -> Sequence[str]:
        """Returns who has a column in a list so many cells wide."""
        room = max(2, (width - HEAD - TEXT) // LANE)
        if len(self._busy) <= room:
            return self._sorted
        kept = {*self._busy[:room]}
        return [name for name in self._sorted if name in kept]

    def header(self, width: int) -> str:
        """Returns the names of the workers."""
        names = "".join(set_cell_size(_short(end_label(name)), LANE) for name in self.lanes(width))
        more = len(self._busy) - len(self.lanes(width))
        return f"{'#':>7} {'seconds':>11} {names}" + (f" and {more:,} more" if more else "")

    def line(self, at: int, width: int) -> ListLine:
        """Makes the line of a message."""
        session, row = self._session, self.rows.row(at)
        lanes = {name: n for n, name in enumerate(self.lanes(width))}
        first, last = lanes.get(session.source(row)), lanes.get(session.destination(row))
        made = self.rows.line(at, width)
        seconds = (session.messages.time_ns[row] - self.rows.reading.start_ns) / 1e9
        arrow = _arrow(first, last, len(lanes), request=bool(session.messages.from_client[row]))
        text = self.rows.reading.texts([row])[0]
        partner = session.messages.partner[row]
        if partner != NONE and not session.messages.from_client[row]:
            text = f"#{int(session.index[partner])}  {text}"
        return ListLine(f"{int(session.index[row]):>7} {seconds:>11.6f} {arrow} {text}", made.look, made.mark)

    def row(self, at: int) -> int:
        """Returns the row of a line."""
        return self.rows.row(at)

    def place_of(self, row: int) -> int | None:
        """Returns the line of a row."""
        return self.rows.place_of(row)

    def texts(self, ats: Sequence[int]) -> list[str]:
        """Returns what is searched of some lines."""
        return self.rows.texts(ats)


def _short(name: str) -> str:
    return name if cell_len(name) < LANE else set_cell_size(name, LANE - 2) + "…"


def _arrow(first: int | None, last: int | None, lanes: int, *, request: bool) -> str:
    """Draws lanes and an arrow between two of them; an end that has no column is not drawn."""
    cells = [" "] * (lanes * LANE)
    for lane in range(lanes):
        cells[lane * LANE] = "│"
    stroke = "─" if request else "┄"
    if first is None or last is None or first == last:
        for end in (first, last):
            if end is not None:
                cells[end * LANE] = "●" if first == last else ("├" if end == first else "▶")
        return "".join(cells)
    low, high = sorted((first, last))
    for at in range(low * LANE + 1, high * LANE):
        cells[at] = stroke
    cells[first * LANE] = "●"
    cells[last * LANE] = "▶" if last > first else "◀"
    return "".join(cells)

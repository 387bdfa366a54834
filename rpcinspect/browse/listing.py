"""The lists of messages and of calls, as they grow, and what of them is shown.

In: a capture that is being read, whether housekeeping is shown, and perhaps what a filter has picked by now.
Out: lines on demand. While the capture is read a list is in the order of completion; then in that of time,
and calls stand below the one that they were certainly sent for, as `decode --calls` shows them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray
from rich.cells import cell_len

from rpcinspect.browse.growing_run import FAILED, HOUSEKEEPING, GrowingRun
from rpcinspect.browse.lines import LineLook, LineSource, ListLine, fitted
from rpcinspect.fields.phrases import duration, join_ends
from rpcinspect.rpc.message import type_name
from rpcinspect.session.model import NONE

if TYPE_CHECKING:
    from rpcinspect.browse.filter_run import FilterRun

ListKind: TypeAlias = Literal["calls", "messages"]

TYPE_FROM = 150
"""Cells of a list that has a column for the type."""
TYPE_WIDTH = 29
ENDS_WIDTH = 34
"""Cells at most for who sends to whom."""
TIME_WIDTH = 11
MAX_DEPTH = 8
NO_ANSWER = "no answer"


class Listing(Struct, frozen=True):
    """Says what a list holds: lines of one kind, with housekeeping or without it, and a filter."""

    what: ListKind = "calls"
    every: bool = False
    matching: FilterRun | None = None


class RowList(LineSource):
    """Rows of a capture as lines."""

    def __init__(self, reading: GrowingRun, listed: Listing, marks: Mapping[int, str]) -> None:
        """`marks` by the row of a message."""
        self.reading = reading
        self.listed = listed
        self._marks = marks
        self._seen = 0
        """Rows that were looked at, of a capture that is being read."""
        self.final = reading.run is not None and (listed.matching is None or listed.matching.finished)
        self._places = np.zeros(0, np.int64)
        """The row of each line."""
        self._depths: Mapping[int, int] = {}
        if self.final:
            assert reading.run is not None
            order = reading.run.session.order
            self._places = order[self._listed(0, len(order))[order]]
            if listed.what == "calls":
                self._nest()
        else:
            self.update()

    def __len__(self) -> int:
        return len(self._places)

    def row(self, at: int) -> int:
        """Returns the row of a line."""
        return int(self._places[at])

    def place_of(self, row: int) -> int | None:
        """Returns the line of a row, or of its request where only that is listed; None where neither is."""
        requests = (self.reading.columns.partner[row],) if self.listed.what == "calls" else ()
        for wanted in (row, *requests):
            found = np.flatnonzero(self._places == wanted)
            if len(found):
                return int(found[0])
        return None

    def update(self) -> bool:
        """Takes notice of rows that have come; returns whether lines were added."""
        if self.final:
            return False
        count, matching = self.reading.count, self.listed.matching
        last = count if matching is None else min(count, matching.count)
        added = np.flatnonzero(self._listed(self._seen, last)) + self._seen
        self._places = np.concatenate([self._places, added])
        self._seen = last
        return bool(len(added))

    def _listed(self, first: int, last: int) -> NDArray[np.bool_]:
        """Returns which of some rows are listed; looks at copies of columns, which may grow meanwhile."""
        reading, matching, calls = self.reading, self.listed.matching, self.listed.what == "calls"
        shown = np.ones(last - first, bool)
        if matching is not None:
            shown &= np.array(matching.rows[first:last]) != 0
        if not self.listed.every and (matching is None or calls):
            shown &= np.array(reading.kinds[first:last]) & HOUSEKEEPING == 0
        if calls:
            shown &= np.array(reading.columns.from_client[first:last]) != 0
        return shown

    def _nest(self) -> None:
        """Puts calls below the one that they were certainly sent for, where few enough are known to be."""
        from rpcinspect.views.text.calls import nested

        run = self.reading.run
        assert run is not None
        if not self.reading.causes_are_known:
            return
        rows = [int(row) for row in self._places]
        found = list(nested(rows, run.session, run.causes))
        self._places = np.array([row for row, _ in found], np.int64)
        self._depths = {row: depth for row, depth in found if depth}

    def header(self, width: int) -> str:
        """Returns the titles of the columns."""
        what = "call and result" if self.listed.what == "calls" else "what happened"
        took = "took" if self.listed.what == "calls" else "answers"
        return self._lay_out("#", "seconds", "from → to", took, "message" if width >= TYPE_FROM else "", what)

    def line(self, at: int, width: int) -> ListLine:
        """Makes a line of a message, or of a request with its answer."""
        reading, row = self.reading, self.row(at)
        columns = reading.columns
        number, partner = reading.number(row), reading.partner(row)
        kind = reading.kinds[row]
        failed = bool(kind & FAILED)
        if self.listed.what == "calls":
            latency = None if partner == NONE else columns.latency_ns(row)
            took = NO_ANSWER if latency is None else duration(latency)
            text = self._indent(row) + "  ".join(filter(None, reading.call_texts(row)))
            failed = failed or (partner != NONE and bool(reading.kinds[partner] & FAILED))
        else:
            took = ""
            if partner != NONE and not columns.from_client[row]:
                took = f"#{reading.number(partner)} {duration(columns.latency_ns(row) or 0)}"
            text = reading.texts([row])[0]
        open_ = self.listed.what == "calls" and partner == NONE
        look: LineLook = "bad" if failed else "dim" if kind & HOUSEKEEPING else "odd" if open_ else ""
        seconds = f"{(columns.time_ns[row] - reading.start_ns) / 1e9:.6f}"
        named = type_name(columns.type[row]) if width >= TYPE_FROM else ""
        told = self._lay_out(str(number), seconds, join_ends(*reading.ends(row)), took, named, text)
        return ListLine(told, look, "●" if row in self._marks else "")

    def _indent(self, row: int) -> str:
        depth = self._depths.get(row, 0)
        return f"{'  ' * (min(depth, MAX_DEPTH) - 1)}└ " if depth else ""

    def _lay_out(self, number: str, seconds: str, ends: str, took: str, kind: str, text: str) -> str:
        calls = self.listed.what == "calls"
        wide = max(cell_len("from → to"), min(ENDS_WIDTH, self.reading.ends_width))
        numbers = max(4, len(str(self.reading.count)))
        typed = f"{kind:<{TYPE_WIDTH}}  " if kind else ""
        answered = f"{took:>9}  " if calls else f"{took:<{numbers + 9}}  "
        head = f"{number:>{numbers}}  {seconds:>{TIME_WIDTH}}  {fitted(ends, wide)}  "
        return f"{head}{answered}{typed}{text}"

    def texts(self, ats: Sequence[int]) -> list[str]:
        """Returns what is searched of some lines: their text without columns that are numbers."""
        if self.listed.what == "calls":
            return ["  ".join(self.reading.call_texts(self.row(at))) for at in ats]
        return self.reading.texts([self.row(at) for at in ats])

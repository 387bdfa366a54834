"""The messages of two runs as one list: beside each other, or one below the other where there is no room.

In: two runs that were compared. Out: lines on demand, in the order of the comparison. What `diff` calls the
same stands in one line; differences have a mark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from rich.cells import cell_len, set_cell_size

from rpcinspect.browse.lines import LineLook, LineSource, ListLine, fitted
from rpcinspect.browse.pair_reading import SIDES, ComparedRuns
from rpcinspect.diff.model import Aligned
from rpcinspect.fields.phrases import Phrases, end_label, join_ends, shorten
from rpcinspect.views.diff.rows import RowKind

BESIDE_FROM = 100
"""Cells of a list in which two messages have room beside each other."""
SECONDS_WIDTH = 10
ENDS_WIDTH = 34
MAX_PHRASE = 400
BETWEEN = " │ "

LOOKS: Mapping[RowKind, LineLook] = {
    "parts": "bad",
    "follows": "changed",
    "unknown": "odd",
    "order": "odd",
    "tolerated": "dim",
    "information": "dim",
}
NOT_COUNTED = "~"
DIFFERS = "!"
ONLY_A, ONLY_B = "<", ">"
"""Marks as those of programs that compare files; ASCII, so that every terminal tells them apart."""
LEGEND = (
    f"{DIFFERS} both have the message and it differs; {ONLY_A} only a has it; {ONLY_B} only b has it; "
    f"{NOT_COUNTED} a difference that does not count"
)


class PairLines(LineSource):
    """Places of a comparison as lines."""

    def __init__(
        self, compared: ComparedRuns, *, beside: bool, every: bool = False, differing: bool = False
    ) -> None:
        """`every`: with housekeeping that is the same; `differing`: only messages in which something differs
        that counts."""
        self._compared = compared
        self._beside = beside
        self._phrases = Phrases()
        places = np.arange(len(compared.comparison.messages), dtype=np.int64)
        if differing:
            places = compared.different
        elif not every:
            shown = ~compared.housekeeping
            shown[compared.different] = True
            places = places[shown]
        lines = np.ones(len(places), np.int64)
        if not beside:
            told = np.array(
                [compared.kind(int(place)) is not None and self._both(int(place)) for place in places]
            )
            lines += told.astype(np.int64)
        self._places = np.repeat(places, lines)

    def _both(self, place: int) -> bool:
        message = self._compared.comparison.messages[place]
        return message.a is not None and message.b is not None

    def __len__(self) -> int:
        return len(self._places)

    def place(self, at: int) -> int:
        """Returns the place of a line."""
        return int(self._places[at])

    def line_of(self, place: int) -> int:
        """Returns the line of a place, or of the next one that is shown."""
        return min(int(np.searchsorted(self._places, place)), max(0, len(self) - 1))

    def shows(self, place: int) -> bool:
        """Returns whether a place has a line."""
        return bool(len(self)) and self.place(self.line_of(place)) == place

    def header(self, width: int) -> str:
        """Returns the titles of the columns."""
        ends = set_cell_size("from → to", self._ends_width)
        if not self._beside:
            number, seconds = "#".rjust(self._number_width + 2), "seconds".rjust(SECONDS_WIDTH)
            return f"  {number}  {seconds}  {ends}  what happened"
        one, other = (
            f"{'#':>{self._number_width}}  {'seconds':>{SECONDS_WIDTH}}  {side}: what happened"
            for side in SIDES
        )
        return f" {self._join(ends, one, other, width)}"

    def line(self, at: int, width: int) -> ListLine:
        """Makes a line of a message of both runs, or of one of them."""
        place = self.place(at)
        message = self._compared.comparison.messages[place]
        kind = self._compared.kind(place)
        if kind is not None:
            look = LOOKS[kind]
        else:
            look = "dim" if self._compared.housekeeping[place] else ""
        mark = self._mark(message, kind)
        if self._beside:
            one, other = (self._cell(message, side) for side in SIDES)
            return ListLine(self._join(self._ends(message), one, other, width), look, mark)
        second = at > 0 and self._places[at - 1] == place
        return ListLine(self._stacked(message, kind, second=second), look, " " if second else mark)

    def _mark(self, message: Aligned, kind: RowKind | None) -> str:
        if kind is None:
            return " "
        if message.b is None:
            return ONLY_A
        if message.a is None:
            return ONLY_B
        return NOT_COUNTED if kind in ("tolerated", "information") else DIFFERS

    def _join(self, ends: str, one: str, other: str, width: int) -> str:
        each = max(0, (width - 2 - self._ends_width - 2 - len(BETWEEN)) // 2)
        return f" {ends}  {fitted(one, each)}{BETWEEN}{other}"

    def _cell(self, message: Aligned, side: str) -> str:
        """Returns number, time and text of a message in one run; empty where that lacks it."""
        index = getattr(message, side)
        if index is None:
            return ""
        return f"{index:>{self._number_width}}  {self._seconds(side, index)}  {self._text(message, side)}"

    def _stacked(self, message: Aligned, kind: RowKind | None, *, second: bool) -> str:
        side = "b" if second or message.a is None else "a"
        index = getattr(message, side)
        label = side if kind is not None else "="
        number = str(index)
        if kind is None and message.a != message.b:
            number = f"{message.a}/{message.b}"
        ends = " " * self._ends_width if second else self._ends(message)
        told = self._text(message, side)
        return f" {label} {number:>{self._number_width}}  {self._seconds(side, index)}  {ends}  {told}"

    def _seconds(self, side: str, index: int) -> str:
        run = self._compared.runs[SIDES.index(side)]
        return run.seconds(run.messages[index].tp.first_ns).rjust(SECONDS_WIDTH)

    def _text(self, message: Aligned, side: str) -> str:
        """Returns what happened, in words, as one run has it; of an answer also what it answers."""
        index = getattr(message, side)
        if index is None:
            return ""
        run = self._compared.runs[SIDES.index(side)]
        told = shorten(self._phrases.phrase(run.messages[index]), MAX_PHRASE)
        if message.answers is None:
            return told
        return f"#{getattr(self._compared.comparison.messages[message.answers], side)} {told}"

    def texts(self, ats: Sequence[int]) -> list[str]:
        """Returns what is searched of some lines: the texts of both runs."""
        messages = [self._compared.comparison.messages[self.place(at)] for at in ats]
        return ["  ".join((self._ends(one), *(self._text(one, side) for side in SIDES))) for one in messages]

    def _ends(self, message: Aligned) -> str:
        return fitted(self._whole_ends(message), self._ends_width)

    def _whole_ends(self, message: Aligned) -> str:
        return join_ends(end_label(message.source), end_label(message.destination))

    @cached_property
    def _ends_width(self) -> int:
        messages = {(one.source, one.destination): one for one in self._compared.comparison.messages}
        widths = [cell_len(self._whole_ends(one)) for one in messages.values()]
        return max(cell_len("from → to"), min(ENDS_WIDTH, max(widths, default=0)))

    @cached_property
    def _number_width(self) -> int:
        digits = max(len(str(len(run.messages))) for run in self._compared.runs)
        messages = self._compared.comparison.messages
        if self._beside or not any(None not in (one.a, one.b) and one.a != one.b for one in messages):
            return max(4, digits)
        return max(4, 2 * digits + 1)

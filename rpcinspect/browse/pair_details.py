"""What `diff` says of one message of two runs, then what both messages say, name by name.

In: two runs that were compared, a place, and how many cells a line has. Out: lines, and the places that they
lead to. Long texts are broken into lines; facts that differ have a mark.
"""

from __future__ import annotations

import textwrap
from itertools import zip_longest
from typing import Literal, TypeAlias

from rich.cells import cell_len, chop_cells, set_cell_size

from rpcinspect.browse.lines import FixedLines, LineLook, ListLine
from rpcinspect.browse.pair_lines import BETWEEN, DIFFERS
from rpcinspect.browse.pair_reading import SIDES, ComparedRuns
from rpcinspect.browse.parts import LOOKS
from rpcinspect.diff.model import Found
from rpcinspect.fields.phrases import printable
from rpcinspect.views.diff.facts import FactRow, fact_rows
from rpcinspect.views.diff.rows import stats_of
from rpcinspect.views.diff.table import difference_line, other_messages, summary_lines, where

DetailKind: TypeAlias = Literal["beside", "a", "b"]
"""Of the lower pane: both messages beside each other, or one of them as `decode --message` shows it."""
BESIDE_FROM = 90
MIN_WIDTH = 20
"""Where a list has fewer cells its lines are cut."""
NAME_WIDTH = 32
MAX_ROWS = 40
"""Lines of one fact."""
LACKS = "–"
"""In place of a fact that one message lacks."""


class PairDetails(FixedLines):
    """Lines on one place."""

    def __init__(self, compared: ComparedRuns, place: int | None, width: int) -> None:
        """Without a place: on the comparison as a whole."""
        self._compared = compared
        self._width = max(MIN_WIDTH, width - 1)
        self._lines: list[ListLine] = []
        self._targets: dict[int, int] = {}
        """Line → the place that it leads to."""
        if place is None:
            self._summary()
        else:
            self._differences(place)
            self._facts(place)

    def target(self, at: int) -> int | None:
        """Returns the place that a line leads to."""
        return self._targets.get(at)

    def _add(self, text: str, look: LineLook = "", target: int | None = None, mark: str = "") -> None:
        indent = text[: len(text) - len(text.lstrip())]
        for number, line in enumerate(wrapped(text, self._width, f"{indent}  ")):
            if target is not None:
                self._targets[len(self._lines)] = target
            self._lines.append(ListLine(line, look, "" if number else mark))

    def _summary(self) -> None:
        first = self._compared.first
        for line, style in summary_lines(self._compared.comparison, self._compared.runs, show_all=True):
            target = first if line.startswith("first difference") else None
            self._add(line, LOOKS.get(style.rpartition(" ")[2], ""), target)

    def _differences(self, place: int) -> None:
        """Adds what the message is, each difference in it, and where the difference comes from."""
        comparison, its = self._compared.comparison, self._compared.found.get(place, ())
        message, first = comparison.messages[place], place == self._compared.first
        self._add(f"{'first difference: ' if first else ''}{where(message, comparison)}", "title")
        for one in its:
            self._add(f"  {difference_line(one)}", "bad" if one.counts else "dim")
            self._elements(one)
        if comparison.first is not None and first:
            self._add(f"likely {comparison.first.likely}: {printable(comparison.first.text)}", "title")
            if comparison.different > 1:
                self._add(other_messages(comparison))
        for cause in dict.fromkeys(one.follows for one in its if one.counts):
            if cause is not None:
                told = where(comparison.messages[cause], comparison)
                self._add(f"follows from {told} (enter goes there)", target=cause)
            elif not first:
                self._add("follows from no other difference: the runs part here, too")
        if not its:
            self._add("  no difference", "dim")
        elif not any(one.counts for one in its):
            self._add("  nothing of it makes the runs different", "dim")

    def _elements(self, found: Found) -> None:
        if found.difference.elements is not None:
            told = ", ".join(f"{name} {number}" for name, number in stats_of(found.difference.elements))
            self._add(f"    {told}", "dim")

    def _facts(self, place: int) -> None:
        """Adds what both messages say; first what differs."""
        message = self._compared.comparison.messages[place]
        rows = fact_rows(message, self._compared.found.get(place, ()), self._compared.runs)
        rows.sort(key=lambda row: not row.differs)
        self._add("")
        if message.a is None or message.b is None:
            side, index, lacks = ("a", message.a, "b") if message.b is None else ("b", message.b, "a")
            self._add(f"{side} #{index}, which {lacks} lacks", "title")
            for row in rows:
                self._add(f" {row.name}: {row.b if row.a is None else row.a}")
        elif self._width < BESIDE_FROM:
            self._add(f"a #{message.a} and b #{message.b}", "title")
            for row in rows:
                self._below(row)
        else:
            names = min(NAME_WIDTH, self._width // 4, max((cell_len(row.name) for row in rows), default=0))
            each = (self._width - names - 3 - len(BETWEEN)) // 2
            titles = set_cell_size(f"a #{message.a}", each) + f"{BETWEEN}b #{message.b}"
            self._lines.append(ListLine(f"{' ' * (names + 3)}{titles}", "title"))
            for row in rows:
                self._beside(row, names, each)

    def _beside(self, row: FactRow, names: int, each: int) -> None:
        look: LineLook = "changed" if row.differs else ""
        cells = [wrapped(row.name, names), *(wrapped(told, each) for told in self._told(row))]
        for number, (name, one, other) in enumerate(zip_longest(*cells, fillvalue="")):
            text = f" {set_cell_size(name, names)}  {set_cell_size(one, each)}{BETWEEN}{other}"
            self._lines.append(ListLine(text, look, DIFFERS if row.differs and not number else ""))

    def _below(self, row: FactRow) -> None:
        if row.a == row.b:
            self._add(f" {row.name}: {row.a}")
            return
        look: LineLook = "changed" if row.differs else ""
        self._add(f" {row.name}", look, mark=DIFFERS if row.differs else "")
        for side, told in zip(SIDES, self._told(row), strict=True):
            for number, line in enumerate(wrapped(told, self._width - 5)):
                self._lines.append(ListLine(f"   {' ' if number else side} {line}", look))

    def _told(self, row: FactRow) -> tuple[str, str]:
        return LACKS if row.a is None else row.a, LACKS if row.b is None else row.b


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """Breaks a text into lines of so many cells, of which those below the first are indented; what is too
    long for a screen is cut."""
    lines: list[str] = []
    for paragraph in text.split("\n"):
        broken = textwrap.wrap(
            paragraph, width, subsequent_indent=indent, drop_whitespace=True, replace_whitespace=False
        )
        for line in broken or [""]:
            lines += chop_cells(line, width) if cell_len(line) > width else [line]
        if len(lines) > MAX_ROWS:
            return [*lines[:MAX_ROWS], "…"]
    return lines

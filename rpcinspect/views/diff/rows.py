"""Both runs side by side: the rows of the page of a comparison, as plain data that a template writes down.

In: a comparison, and the two runs for what their messages say. Out: rows of messages in which something
differs, and folds of messages in which nothing does; all text printable. Rows are bounded; what is left
out is counted by code.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import ClassVar, Literal, TypeAlias

from msgspec import Struct

from rpcinspect.diff.model import Aligned, Comparison, Found
from rpcinspect.equality.difference import Elements
from rpcinspect.fields.phrases import Phrases, counted, end_label, packed, printable, shorten
from rpcinspect.rpc.questions import context_of
from rpcinspect.run.run import RunModel
from rpcinspect.views.diff.error_chart import Chart, chart_of
from rpcinspect.views.diff.words import numbers
from rpcinspect.views.difference import told
from rpcinspect.views.html.kit import Link

MAX_ROWS = 1000
MAX_LINES = 12
"""Differences of a row."""
MAX_CHARTS = 300
MAX_FOLDED = 2000
"""Messages in which nothing differs that are listed in all folds; each fold has at least `MIN_FOLDED`."""
MIN_FOLDED = 4
MAX_PHRASE = 400
MAX_VALUE = 200
MAX_FUNCTION = 160

RowKind: TypeAlias = Literal["parts", "follows", "unknown", "order", "tolerated", "information"]


class Brief(Struct, frozen=True):
    """What a message is."""

    numbers: str
    source: str
    destination: str
    type: str
    function: str | None


class Differing(Struct, frozen=True):
    """A message in which something differs."""

    folded: ClassVar[bool] = False
    place: int
    anchor: str
    brief: Brief
    kind: RowKind
    control: bool
    answers: Link | None
    cause: Link | None
    a: SimpleNamespace | None
    b: SimpleNamespace | None
    lines: tuple[SimpleNamespace, ...]
    more: str | None
    """Differences that are not shown, by code."""


class DiffRows(Struct, frozen=True):
    """All rows, and the number of those that found no room."""

    items: tuple[Differing | SimpleNamespace, ...]
    """Messages in which something differs, and folds of consecutive ones in which nothing does."""
    shown: int
    """Messages with a row."""
    hidden: int
    """Messages in which something differs and which have none."""
    hidden_codes: str | None
    charts_left_out: int

    def by_place(self) -> dict[int, Differing]:
        """The rows, by the places of their messages."""
        return {item.place: item for item in self.items if isinstance(item, Differing)}


def rows_of(comparison: Comparison, runs: tuple[RunModel, RunModel], max_rows: int = MAX_ROWS) -> DiffRows:
    """At most about `max_rows` rows: what counts before what does not, the first difference in any case."""
    return _Maker(comparison, runs, max_rows).rows()


def by_code(found: Sequence[Found]) -> str | None:
    """`3 value, 1 ulp`, most first; None for nothing."""
    counts = Counter(one.difference.code for one in found)
    return ", ".join(f"{count:,} {code}" for code, count in counts.most_common()) or None


def brief_of(message: Aligned) -> Brief:
    """What a message is."""
    return Brief(
        numbers(message),
        end_label(message.source),
        end_label(message.destination),
        message.type,
        None if message.call is None else shorten(printable(message.call), MAX_FUNCTION),
    )


class _Maker:
    def __init__(self, comparison: Comparison, runs: tuple[RunModel, RunModel], max_rows: int) -> None:
        self.comparison = comparison
        self.runs = runs
        self.starts = [min(run.session.messages.time_ns, default=0) for run in runs]
        self.phrases = Phrases()
        self.found: dict[int, list[Found]] = defaultdict(list)
        for one in comparison.found:
            self.found[one.message].append(one)
        self.chosen = self._choose(max_rows)
        self.charts = 0
        self.charts_left_out = 0

    def _choose(self, max_rows: int) -> frozenset[int]:
        ranked = sorted(self.found, key=lambda place: (not any(f.counts for f in self.found[place]), place))
        chosen = set(ranked[:max_rows])
        if self.comparison.first is not None:
            chosen.add(self.comparison.found[self.comparison.first.found].message)
        return frozenset(chosen)

    def rows(self) -> DiffRows:
        hidden = [place for place in self.found if place not in self.chosen]
        return DiffRows(
            items=tuple(self._items()),
            shown=len(self.chosen),
            hidden=len(hidden),
            hidden_codes=by_code([one for place in hidden for one in self.found[place]]),
            charts_left_out=self.charts_left_out,
        )

    def _items(self) -> list[Differing | SimpleNamespace]:
        edges = [-1, *sorted(self.chosen), len(self.comparison.messages)]
        gaps = sum(after - before > 1 for before, after in pairwise(edges))
        per_fold = max(MIN_FOLDED, MAX_FOLDED // max(1, gaps))
        items: list[Differing | SimpleNamespace] = []
        for before, after in pairwise(edges):
            if after - before > 1:
                items.append(self._fold(range(before + 1, after), per_fold))
            if after < len(self.comparison.messages):
                items.append(self._row(after))
        return items

    def _fold(self, places: range, most: int) -> SimpleNamespace:
        """Consecutive messages without a difference, or without a row."""
        messages = self.comparison.messages
        return SimpleNamespace(
            folded=True,
            count=len(places),
            first=numbers(messages[places[0]]),
            last=numbers(messages[places[-1]]),
            rows=tuple(brief_of(messages[place]) for place in places[:most]),
            left_out=max(0, len(places) - most),
            codes=by_code([one for place in places for one in self.found.get(place, ())]),
        )

    def _row(self, place: int) -> Differing:
        message, its = self.comparison.messages[place], self.found[place]
        causes = [one.follows for one in its if one.follows is not None]
        return Differing(
            place=place,
            anchor=f"m{place}",
            brief=brief_of(message),
            kind=kind_of(its),
            control=message.control,
            answers=self._link(message.answers),
            cause=self._link(causes[0] if causes else None),
            a=self._cell(0, message),
            b=self._cell(1, message),
            lines=tuple(self._line(one) for one in its[:MAX_LINES]),
            more=by_code(its[MAX_LINES:]),
        )

    def _link(self, place: int | None) -> Link | None:
        if place is None:
            return None
        anchor = f"m{place}" if place in self.chosen else None
        return Link(numbers(self.comparison.messages[place]), anchor)

    def _cell(self, side: int, message: Aligned) -> SimpleNamespace | None:
        """A message of one run."""
        index = message.b if side else message.a
        if index is None:
            return None
        run = self.runs[side]
        record = run.messages[index]
        context = context_of(record)
        if context is None and message.answers is not None:
            request = self.comparison.messages[message.answers]
            at = request.b if side else request.a
            context = None if at is None else context_of(run.messages[at])
        return SimpleNamespace(
            index=index,
            seconds=f"{(record.tp.first_ns - self.starts[side]) / 1e9:.6f}",
            context=None if context is None else packed(context),
            text=shorten(self.phrases.phrase(record), MAX_PHRASE),
        )

    def _line(self, found: Found) -> SimpleNamespace:
        """A difference as it is shown; `stats` of elements: (name, number)."""
        difference = found.difference
        its = told(difference, MAX_VALUE)
        notes = [its.kind, its.text, "within the tolerance" if difference.tolerated else None]
        return SimpleNamespace(
            code=difference.code,
            path="" if its.path == difference.code else its.path,
            values=its.values,
            notes=tuple(note for note in notes if note is not None),
            stats=() if difference.elements is None else tuple(stats_of(difference.elements)),
            chart=self._chart(difference.elements),
            counts=found.counts,
        )

    def _chart(self, elements: Elements | None) -> Chart | None:
        if elements is None or elements.histogram is None or elements.differing < 2:
            return None
        if self.charts == MAX_CHARTS:
            self.charts_left_out += 1
            return None
        self.charts += 1
        return chart_of(elements.histogram)


def kind_of(its: Sequence[Found]) -> RowKind:
    """What the differences of a message make of it."""
    codes = {one.difference.code for one in its if one.counts}
    if not codes:
        return "tolerated" if any(one.difference.tolerated for one in its) else "information"
    if codes == {"unknown"}:
        return "unknown"
    if codes == {"reordered"}:
        return "order"
    return "follows" if any(one.follows is not None for one in its) else "parts"


def stats_of(elements: Elements) -> list[tuple[str, str]]:
    """Returns how elements differ, by name and number."""
    share = f" ({100 * elements.differing / elements.numel:.3g} %)" if elements.numel > 1 else ""
    found = [("differ", f"{elements.differing:,} of {counted(elements.numel, 'element')}{share}")]
    if elements.beyond != elements.differing:
        found.append(("beyond the tolerance", f"{elements.beyond:,}"))
    if elements.max_abs is not None:
        worst = "" if elements.worst is None else f" at element {elements.worst:,}"
        found.append(("largest absolute error", f"{_number(elements.max_abs)}{worst}"))
    if elements.max_rel is not None:
        relative = "n/a" if math.isinf(elements.max_rel) else _number(elements.max_rel)  # beside a zero
        found.append(("largest relative error", relative))
    if elements.max_ulp is not None:
        found.append(("largest distance", f"{elements.max_ulp:,} ulp"))
    found.append(("first", f"element {elements.first:,}"))
    if len(elements.kinds) > 1:
        found.append(("kinds", ", ".join(f"{count:,} {name}" for name, count in elements.kinds)))
    return found


def _number(value: float) -> str:
    return "infinite" if value == float("inf") else f"{value:.6g}"

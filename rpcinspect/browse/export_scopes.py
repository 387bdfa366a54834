"""Which messages an export takes: the one that is shown, those that are marked, what the filter shows, all.

In: a capture that was read, and what is shown and marked of it. Out: scopes to choose from; of the one that
is chosen its messages, and the filter that picks the same messages on a command line, where there is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from rpcinspect.browse.filter_run import FilterRun
from rpcinspect.browse.growing_run import GrowingRun
from rpcinspect.fields.phrases import counted, printable
from rpcinspect.filter.grammar import MAX_TEXT
from rpcinspect.filter.matches import Shown
from rpcinspect.filter.selection import Selection
from rpcinspect.run.participation import participation_of

NUMBERED = frozenset({"index", "answers"})
"""Fields that are numbers of messages."""


class ExportScope(Struct, frozen=True):
    """Some messages of a run; all of them where there are neither numbers nor a filter."""

    label: str
    word: str = ""
    """Stands in the names of files."""
    numbers: tuple[int, ...] = ()
    """Of messages, ascending."""
    matching: FilterRun | None = None
    """What they match."""


class ExportedPart(Struct, frozen=True):
    """The messages of a scope."""

    shown: Shown | None
    """Which they are; None: all."""
    text: str | None
    """The filter that picks them; empty: all; None where no filter does."""


def scopes_of(
    reading: GrowingRun, row: int | None, marked: Iterable[int], matching: FilterRun | None
) -> list[ExportScope]:
    """Returns what may be exported of a capture that was read; `row` and `marked`: rows of messages."""
    found = []
    if row is not None:
        number = reading.number(row)
        found.append(ExportScope(f"message {number}", str(number), (number,)))
    numbers = tuple(sorted(map(reading.number, marked)))
    if numbers:
        found.append(ExportScope(f"what is marked: {counted(len(numbers), 'message')}", "marked", numbers))
    if matching is not None and matching.shown is not None and matching.shown.count:
        told = f"{counted(matching.shown.count, 'message')} that match {printable(matching.filter.text)}"
        found.append(ExportScope(f"what the filter shows: {told}", "filtered", matching=matching))
    return [*found, ExportScope(f"all {reading.count:,} messages")]


def part_of_scope(scope: ExportScope, reading: GrowingRun) -> ExportedPart:
    """Works out which messages these are."""
    run = reading.run
    assert run is not None
    if scope.matching is not None:
        return _of_filter(scope.matching, reading)
    if not scope.numbers:
        return ExportedPart(None, "")
    rows = bytearray(len(run.messages))
    for one in scope.numbers:
        rows[int(run.session.order[one])] = 1
    text = index_filter(scope.numbers)
    picked = bytes(rows)
    shown = Shown(text or scope.label, picked, participation_of(run.session, picked))
    return ExportedPart(shown, text if _numbers_last(reading) else None)


def _of_filter(matching: FilterRun, reading: GrowingRun) -> ExportedPart:
    """What a filter of calls picks, which takes requests and answers together, a filter of messages need not
    pick: then their numbers do."""
    shown, run = matching.shown, reading.run
    assert shown is not None
    assert run is not None
    lasts = _numbers_last(reading) or not NUMBERED.intersection(one.name for one in matching.filter.fields)
    if not matching.of_calls:
        return ExportedPart(shown, shown.text if lasts else None)
    selection = Selection(matching.filter, reading.decoding.bytes_beside())
    for record in reading.records(0, reading.count):
        selection.feed(record)
    if selection.finish(run.session).rows == shown.rows:
        return ExportedPart(shown, shown.text if lasts else None)
    rows = run.session.order.tolist()
    text = index_filter([number for number, row in enumerate(rows) if shown.rows[row]])
    by_number = shown if text is None else Shown(text, shown.rows, shown.touched)
    return ExportedPart(by_number, text if _numbers_last(reading) else None)


def _numbers_last(reading: GrowingRun) -> bool:
    """Returns whether a command gives messages the same numbers: those of what is followed while it grows are
    in the order of completion."""
    return not reading.decoding.options.by_completion


def index_filter(numbers: Sequence[int]) -> str | None:
    """Returns the filter that picks the messages of these ascending numbers; None where it would be longer
    than a filter may be."""
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = ranges[-1][0], number
        else:
            ranges.append((number, number))
    few = [one for first, last in ranges if last - first < 2 for one in range(first, last + 1)]
    parts = []
    if few:
        parts.append(f"index in {{{', '.join(map(str, few))}}}" if len(few) > 1 else f"index == {few[0]}")
    for first, last in ranges:
        if last - first >= 2:
            parts.append(f"index >= {first} and index <= {last}")
    text = " or ".join(parts)
    return text if len(text) <= MAX_TEXT else None

"""A comparison as one page of HTML, which needs nothing but itself: no script, no network, no other file.

In: a comparison, and the two runs. Out: everything that the page shows as plain data, whose text is printable
and not escaped for HTML; and what a template makes of it, in pieces of UTF-8.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from types import SimpleNamespace

from rpcinspect.diff.model import Aligned, Comparison, Explanation, Found, Side
from rpcinspect.equality.rules import Rules
from rpcinspect.fields.phrases import (
    amount,
    counted,
    end_label,
    packed,
    path_label,
    pieces,
    printable,
    shorten,
)
from rpcinspect.run.run import RunModel
from rpcinspect.session.model import CaptureInfo
from rpcinspect.views.columns import Column, Table, table
from rpcinspect.views.diff.facts import fact_rows
from rpcinspect.views.diff.rows import MAX_CHARTS, Differing, DiffRows, RowKind, kind_of, rows_of
from rpcinspect.views.diff.words import MEANINGS, following, numbers, run_name, tolerance, verdict_line
from rpcinspect.views.html.kit import Link, html
from rpcinspect.views.questions.session import capture_format, lasts
from rpcinspect.views.words import moment

MAX_BESIDE = 40
"""Other places at which the runs part, that are named at the top."""
MAX_WORKERS = 64
MAX_BINS = 160
"""Of the strip that shows where in the runs the differences are."""


def page_of(comparison: Comparison, runs: tuple[RunModel, RunModel]) -> SimpleNamespace:
    """Returns what the template of the page reads."""
    rows = rows_of(comparison, runs)
    shown = rows.by_place()
    first = None if comparison.first is None else _first(comparison, comparison.first, shown, runs)
    line = verdict_line(comparison)
    marks, bins = _marks(comparison, shown)
    return SimpleNamespace(
        title=" and ".join(run_name(side) for side in (comparison.a, comparison.b)),
        outcome="unrelated" if comparison.unrelated else "same" if comparison.same else "different",
        same=comparison.same,
        verdict=_capital(line) if first is None else f"First difference: {first.what}",
        lead=_lead(comparison),
        panels=(_panel("a", comparison.a, runs[0]), _panel("b", comparison.b, runs[1])),
        rules=tuple(_rules(comparison.rules)),
        first=first,
        counts=_counts(comparison),
        marks=marks,
        bins=bins,
        rows=rows,
        notes=tuple(_notes(comparison, rows)),
    )


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _lead(comparison: Comparison) -> str:
    first = comparison.first
    if comparison.unrelated:
        return "So there is no first difference. Perhaps one of them is a capture of another job."
    if first is None:
        ended = "Nothing in them makes the two runs different."
        return ended if comparison.messages else ""
    verb = "is" if comparison.different == 1 else "are"
    told = f"{comparison.different:,} of {counted(len(comparison.messages), 'message')} {verb} different"
    return f"Likely {first.likely}: {printable(first.text)}. {told}."


def _panel(label: str, side: Side, run: RunModel) -> SimpleNamespace:
    """Returns one of the two runs."""
    return SimpleNamespace(
        label=label,
        files=tuple(_file(info) for info in run.session.captures),
        messages=counted(side.messages, "message"),
        workers=tuple(end_label(worker) for worker in side.workers[:MAX_WORKERS]),
        more_workers=max(0, len(side.workers) - MAX_WORKERS),
        context=None if side.context is None else f"{packed(side.context)} ({side.context})",
    )


def _file(info: CaptureInfo) -> SimpleNamespace:
    time = "no packets"
    if info.first_time_ns is not None and info.last_time_ns is not None:
        time = f"{moment(info.first_time_ns, 6)}, {lasts(info)}"
    words = f"{capture_format(info)}, {pieces(info.packets, info.reader)}, {amount(info.bytes)}"
    return SimpleNamespace(path=path_label(info.path), format=words, time=time)


def _rules(rules: Rules) -> list[str]:
    """How the runs were compared, where it is not by every bit."""
    floats = tolerance(rules)
    words = [] if floats is None else [floats]
    if rules.ignore:
        words.append(f"ignored: {', '.join(sorted(rules.ignore))}")
    if rules.strict:
        words.append("strict: form, order and the agents' own calls count")
    words += [f"{end_label(a)} of a is {end_label(b)} of b" for a, b in sorted(rules.renames.items())]
    return words or ["compared by their bits"]


def _first(
    comparison: Comparison, first: Explanation, rows: dict[int, Differing], runs: tuple[RunModel, RunModel]
) -> SimpleNamespace:
    """Returns where the runs part."""
    place = comparison.found[first.found].message
    message = comparison.messages[place]
    links = [
        Link(numbers(comparison.messages[at]), rows[at].anchor if at in rows else None)
        for at in first.beside[:MAX_BESIDE]
    ]
    return SimpleNamespace(
        row=rows[place],
        what=_what(message),
        likely=first.likely,
        text=printable(first.text),
        worker=None if first.worker is None else end_label(first.worker),
        following=f"{_capital(following(comparison))}.",
        beside=tuple(links),
        more_beside=len(first.beside) - len(links),
        facts=tuple(fact_rows(message, [one for one in comparison.found if one.message == place], runs)),
    )


def _what(message: Aligned) -> str:
    source, destination = end_label(message.source), end_label(message.destination)
    what = shorten(printable(message.what), 80)
    if message.request:
        return f"{numbers(message)}, where {source} sends {what} to {destination}"
    return f"{numbers(message)}, where {source} answers {what} to {destination}"


def _counts(comparison: Comparison) -> Table:
    """Returns counts, the largest first, differences that count before others."""
    counts = Counter(one.difference.code for one in comparison.found if one.counts)
    others = Counter(one.difference.code for one in comparison.found if not one.counts)
    codes = sorted(comparison.counts, key=lambda code: (-counts[code], -others[code], code))
    return table(COUNTS, [(code, counts[code], others[code]) for code in codes])


def _count(count: int) -> str:
    return f"{count:,}" if count else "–"


COUNTS = (
    Column(title="code", of=itemgetter(0)),
    Column(title="counted", of=itemgetter(1), words=_count, right=True),
    Column(title="not counted", of=itemgetter(2), words=_count, right=True),
    Column(title="what differs", of=lambda one: MEANINGS[one[0]], words=str),
)


RANKS = ("parts", "order", "follows", "unknown", "tolerated", "information")
"""Of several kinds in one place of the strip the first is shown."""


def _marks(comparison: Comparison, rows: dict[int, Differing]) -> tuple[tuple[SimpleNamespace, ...], int]:
    """The strip: for each of some equal parts of the runs the weightiest of the messages in which something
    differs, also of those without a row."""
    total = len(comparison.messages)
    bins = min(MAX_BINS, total)
    found: dict[int, list[Found]] = {}
    for one in comparison.found:
        found.setdefault(one.message, []).append(one)
    tops: dict[int, tuple[int, bool, int, RowKind]] = {}
    for place, its in found.items():
        kind = kind_of(its)
        weight = RANKS.index(kind), place not in rows, place, kind
        x = place * bins // total
        tops[x] = min(tops.get(x, weight), weight)
    return tuple(
        SimpleNamespace(
            x=x,
            kind=kind,
            label=f"{numbers(comparison.messages[place])} {comparison.messages[place].type}",
            anchor=None if hidden else rows[place].anchor,
        )
        for x, (_, hidden, place, kind) in sorted(tops.items())
    ), bins


def _notes(comparison: Comparison, rows: DiffRows) -> list[str]:
    notes = [_capital(printable(note)) for note in comparison.notes]
    if comparison.unknown:
        told = counted(comparison.unknown, "message")
        notes.append(f"{told} can't be compared in full, since both runs lack the same bytes")
    if rows.hidden:
        told = f"{counted(rows.hidden, 'message')} in which something differs have no row here"
        notes.append(f"{told}: {rows.hidden_codes}. --format jsonl lists all of them")
    if rows.charts_left_out:
        told = counted(rows.charts_left_out, "more tensor")
        notes.append(f"Histograms are drawn of the first {MAX_CHARTS} tensors; {told} differ")
    return notes


TEMPLATES = Path(__file__).parent / "templates"


def diff_html(comparison: Comparison, runs: tuple[RunModel, RunModel]) -> Iterator[bytes]:
    """The page, piece by piece."""
    return html(TEMPLATES, "diff", page=page_of(comparison, runs))

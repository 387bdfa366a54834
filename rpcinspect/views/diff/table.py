"""A comparison for people: the verdict and the first difference on a screen, all differences on demand.

In: a comparison, and the two runs for what their messages say. Out: lines of printable text on a console.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rpcinspect.diff.model import Aligned, Comparison, Found, Side
from rpcinspect.fields.phrases import (
    Phrases,
    counted,
    end_label,
    join_ends,
    packed,
    path_label,
    printable,
    shorten,
    some,
)
from rpcinspect.run.run import RunModel
from rpcinspect.views.diff.words import following, lacking, numbers, verdict_line
from rpcinspect.views.difference import ONE_SIDED, told
from rpcinspect.views.text.columns import show_lines
from rpcinspect.views.text.console import TextConsole
from rpcinspect.views.text.table import write_line

MAX_DIFFERENCES = 4
"""Of the first message, that are shown without --all."""
MAX_INFORMATION = 2
MAX_WORKERS = 6
MAX_OTHERS = 5
MAX_VALUE = 60
MAX_PHRASE = 160


def show_diff(
    comparison: Comparison, runs: tuple[RunModel, RunModel], console: TextConsole, *, show_all: bool = False
) -> None:
    """Prints the summary; with `show_all` every difference too, before it."""
    if show_all:
        for found in comparison.found:
            show_lines(((line, _style(found)) for line in _listed(found, comparison)), console)
        if comparison.found:
            write_line(console, "")
    show_lines(summary_lines(comparison, runs, show_all=show_all), console)


def summary_lines(
    comparison: Comparison, runs: tuple[RunModel, RunModel], *, show_all: bool
) -> Iterator[tuple[str, str]]:
    """Yields what a comparison came to: (line, style)."""
    for label, side in (("a", comparison.a), ("b", comparison.b)):
        yield _side_line(label, side), ""
    yield verdict_line(comparison), "bold green" if comparison.same else "bold red"
    if lacking(comparison):
        return
    if comparison.first is not None:
        yield from _first(comparison, runs)
    for line in _rest(comparison, show_all=show_all):
        yield line, ""
    for note in comparison.notes:
        yield f"note: {printable(note)}", "yellow"


def _side_line(label: str, side: Side) -> str:
    paths = ", ".join(path_label(path) for path in side.paths)
    context = "" if side.context is None else f", context {packed(side.context)}"
    between = some([end_label(worker) for worker in side.workers], MAX_WORKERS)
    told = f"{counted(side.messages, 'message')} between {between}" if between else "no RPC messages"
    return f"{label}  {paths}{context}: {told}"


def _first(comparison: Comparison, runs: tuple[RunModel, RunModel]) -> Iterator[tuple[str, str]]:
    first = comparison.first
    assert first is not None
    place = comparison.found[first.found].message
    message = comparison.messages[place]
    yield "", ""
    yield f"first difference: {where(message, comparison)}", "bold"
    phrases = Phrases()
    for label, run, index in (("a", runs[0], message.a), ("b", runs[1], message.b)):
        if index is not None:
            yield f"  {label} #{index}  {shorten(phrases.phrase(run.messages[index]), MAX_PHRASE)}", ""
    its = [one for one in comparison.found if one.message == place and one.counts]
    for one in its[:MAX_DIFFERENCES]:
        yield f"  {difference_line(one)}", "red"
    if len(its) > MAX_DIFFERENCES:
        yield f"  and {counted(len(its) - MAX_DIFFERENCES, 'more difference')} in this message", "red"
    yield f"likely {first.likely}: {printable(first.text)}", "bold"
    if comparison.different > 1:
        yield other_messages(comparison), ""


def other_messages(comparison: Comparison) -> str:
    """Returns how many messages are different beside the first, and whether they follow from it."""
    first = comparison.first
    assert first is not None
    words = following(comparison)
    others = [place for place in first.beside if place not in set(first.alike)]
    if not others:
        return words
    shown = some([numbers(comparison.messages[place]) for place in others], MAX_OTHERS)
    return f"{words}; independent of it: {shown}"


def where(message: Aligned, comparison: Comparison) -> str:
    """Returns how both runs number a message, who sends it to whom, and what it is."""
    ends = join_ends(end_label(message.source), end_label(message.destination))
    what = printable(message.what)
    if message.request:
        return f"{numbers(message)}, {ends}, {message.type}{f' {what}' if message.call else ''}"
    request = None if message.answers is None else comparison.messages[message.answers]
    answered = "" if request is None else f" answers {numbers(request)}"
    return f"{numbers(message)}, {ends}, {message.type}{answered}{f' {what}' if message.call else ''}"


def difference_line(found: Found) -> str:
    """`value  tensors[0].elements[3]  0.5 → 0.25  (0.25 apart; 1 of 12 elements differs)`."""
    its = told(found.difference, MAX_VALUE)
    code = found.difference.code
    words = [code, "" if its.path == code else its.path, "" if its.values is None else " → ".join(its.values)]
    details = [its.kind if code in ONE_SIDED else None, *its.extent, its.text]
    details.append("within the tolerance" if found.difference.tolerated else None)
    shown = "; ".join(detail for detail in details if detail is not None)
    return "  ".join(word for word in (*words, f"({shown})" if shown else "") if word)


def _rest(comparison: Comparison, *, show_all: bool) -> Iterator[str]:
    """Yields the lines beside the first difference."""
    counted_codes = Counter(one.difference.code for one in comparison.found if one.counts)
    if sum(counted_codes.values()) > 1:
        yield "differences: " + ", ".join(f"{count:,} {code}" for code, count in counted_codes.most_common())
    others = [one for one in comparison.found if not one.counts]
    control = sum(comparison.messages[one.message].control for one in others)
    information = [one for one in others if not comparison.messages[one.message].control]
    for code in dict.fromkeys(one.difference.code for one in information):
        its = [one for one in information if one.difference.code == code]
        if show_all:
            yield f"not counted: {len(its):,} {code}"
            continue
        for one in its[:MAX_INFORMATION]:
            message = comparison.messages[one.message]
            ends = join_ends(end_label(message.source), end_label(message.destination))
            yield (
                f"not counted: {numbers(message)} {ends} {printable(message.what)}  " + (difference_line(one))
            )
        if len(its) > MAX_INFORMATION:
            yield f"not counted: {len(its) - MAX_INFORMATION:,} more {code}"
    if control:
        yield f"not counted: {counted(control, 'difference')} in the agents' own calls"
    if comparison.unknown:
        told_of = counted(comparison.unknown, "message")
        yield f"not known: {told_of} can't be compared in full, since both runs lack the same bytes"
    if not show_all and len(comparison.found) > 1:
        count = sum(counted_codes.values())
        kinds = [counted(count, "difference")] if count else []
        kinds += [f"{len(others):,} not counted"] if others else []
        yield f"--all lists all {' and '.join(kinds)}"


def _listed(found: Found, comparison: Comparison) -> Iterator[str]:
    """Yields the lines of one difference."""
    message = comparison.messages[found.message]
    ends = join_ends(end_label(message.source), end_label(message.destination))
    what = f"{message.type} {printable(message.call)}" if message.call else message.type
    follows = "" if found.follows is None else f"  follows {numbers(comparison.messages[found.follows])}"
    yield f"{numbers(message):>8}  {ends}  {what}  {difference_line(found)}{follows}"


def _style(found: Found) -> str:
    return "dim" if not found.counts else "bold red" if found.follows is None else "red"

"""The ledger of remote references on a terminal: a line each, then the forks of those that are still alive.

In: `RRef`s, and the run's calls, which say who made them. Out: lines of printable text on a console.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console

from rpcinspect.fields.phrases import counted
from rpcinspect.run.exchanges import Exchange
from rpcinspect.session.model import Fork, RRef
from rpcinspect.views.graph_words import what_words
from rpcinspect.views.text.columns import Columns, Line, show_lines
from rpcinspect.views.text.table import end_label


def show_rrefs(
    stories: Sequence[RRef], calls: Mapping[int, Exchange], console: Console, *, every_fork: bool = False
) -> None:
    """Prints everything; with `every_fork` the forks that were given back too."""
    show_lines(_lines(stories, calls, every_fork), console)


def _lines(
    stories: Sequence[RRef], calls: Mapping[int, Exchange], every_fork: bool
) -> Iterator[Line | Columns]:
    if not stories:
        yield "no remote reference was seen", ""
        return
    several = len({story.job for story in stories}) > 1
    header = [*(["job"] if several else []), "rref", "owner", "made by", "value of", "forks", "alive"]
    header += ["fetched", "backward"]
    rows = [[*([str(story.job)] if several else []), *_row(story, calls)] for story in stories]
    styles = ["red" if story.failed else "yellow" if story.alive else "" for story in stories]
    yield Columns(header, rows, right=range(4 + several, 8 + several), gives_way=3 + several, styles=styles)
    forks = [(story, f) for story in stories for f in (story.forks if every_fork else story.alive)]
    if forks:
        yield "", ""
        yield from _forks(forks)
    left = sum(len(story.alive) for story in stories)
    yield "", ""
    yield f"{counted(len(stories), 'RRef')}, {counted(left, 'fork')} alive when the capture ends", ""


def _row(story: RRef, calls: Mapping[int, Exchange]) -> list[str]:
    made = "?" if story.creator is None else end_label(story.creator)
    return [
        _id(story.rref_id),
        "?" if story.owner is None else end_label(story.owner),
        made if story.created is None else f"{made} #{story.created}",
        value_words(story, calls),
        f"{len(story.forks):,}",
        f"{len(story.alive):,}",
        f"{len(story.fetches):,}",
        f"{len(story.backwards):,}",
    ]


def value_words(story: RRef, calls: Mapping[int, Exchange]) -> str:
    """What an RRef refers to: an object of a class, or the result of what was called."""
    call = None if story.created is None or story.what is None else calls.get(story.created)
    made_by = story.what if call is None else call.what
    what = what_words(made_by) if made_by is not None else "a local value"
    if story.what is None and story.created is not None:
        what = "? (its remote call does not name a plain function)"
    elif story.what is None and story.creator != story.owner:
        what = "? (its remote call was not captured)"
    return f"{what} ✗ raised" if story.failed else what


def _forks(forks: Sequence[tuple[RRef, Fork]]) -> Iterator[Line | Columns]:
    rows = [
        (
            _id(fork.fork_id),
            _id(story.rref_id),
            "?" if fork.holder is None else end_label(fork.holder),
            _number(fork.begin)
            if fork.giver is None
            else f"{_number(fork.begin)} from {end_label(fork.giver)}",
            _number(fork.requested),
            _number(fork.accepted),
            fork.state if fork.deleted is None else f"deleted {_number(fork.deleted)}",
        )
        for story, fork in forks
    ]
    header = ("fork", "rref", "held by", "came", "owner told", "giver told", "end")
    yield Columns(header, rows, styles=["yellow" if f.state == "alive" else "" for _, f in forks])


def _number(index: int | None) -> str:
    return "" if index is None else f"#{index}"


def _id(pair: tuple[int, int]) -> str:
    return f"{pair[0]}:{pair[1]}"

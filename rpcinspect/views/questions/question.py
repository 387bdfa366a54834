"""What a question about a run is: how its answer is counted, shown to people and written as JSON.

In: a run, or what a filter has left of it. Out: parts of text, and objects for any JSON writer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from rpcinspect.fields.plain import Json
from rpcinspect.run.run import RunModel
from rpcinspect.views.text.columns import Part
from rpcinspect.views.text.console import StyledText

if TYPE_CHECKING:
    from rpcinspect.filter.matches import Shown


class Question(Struct, frozen=True):
    """A question about a run: what it is about, and its answer for people and as JSON."""

    noun: str
    """What the answer tells of."""
    kinds: tuple[str, ...]
    """Of the objects of JSON, that are lists in a document."""
    count: Callable[[RunModel, bool], int]
    """How many there are to tell of; all of them, or without housekeeping."""
    show: Callable[[RunModel, bool], Iterable[Part]]
    """The answer for people; all of it, or without what matters least."""
    json: Callable[[RunModel], Iterable[Json]]
    shows: Callable[[RunModel], bool] = lambda run: False
    """Whether people are told something although there are none to count."""


def answer_parts(how: Question, run: RunModel, shown: Shown | None, every: bool) -> Iterator[Part]:
    """Yields the answer for people; of a run that a filter has narrowed also how much that has left, and only
    that where it is nothing."""
    if shown is None:
        yield from how.show(run, every)
        return
    some, of = how.count(run, every), how.count(run.whole, every)
    if some or not of or how.shows(run):
        yield from how.show(run, every)
        yield "", ""
    yield StyledText(shown.words(some, of, how.noun), style="bold")

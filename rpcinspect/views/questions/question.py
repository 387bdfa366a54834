"""What a question about a run is: how its answer is counted, shown to people and written as JSON.

In: a run, or what a filter has left of it. Out: parts of text, and objects for any JSON writer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct

from rpcinspect.fields.plain import Json
from rpcinspect.run.run import RunModel
from rpcinspect.views.text.columns import Part


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

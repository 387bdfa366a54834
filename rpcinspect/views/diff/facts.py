"""What the messages of both runs say, name by name, and which of it differs.

In: a message of both runs or of one, its differences, and the runs. Out: facts beside each other; all text
printable but for line breaks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from rpcinspect.diff.model import Aligned, Found
from rpcinspect.run.run import RunModel
from rpcinspect.views.message_facts import facts_of


class FactRow(Struct, frozen=True):
    """A fact of a message in both runs; None where a run has none of this name."""

    name: str
    a: str | None
    b: str | None
    differs: bool


def fact_rows(message: Aligned, its: Iterable[Found], runs: tuple[RunModel, RunModel]) -> list[FactRow]:
    """Returns the facts of a message; `its`: the differences in it."""
    told: list[dict[str, str]] = []
    for run, index in zip(runs, (message.a, message.b), strict=True):
        told.append({} if index is None else dict(facts_of(run.messages[index], run.read)))
    names = list(dict.fromkeys([*told[0], *told[1]]))
    differing: set[str] = set()
    if message.a is not None and message.b is not None:
        for found in its:
            for path in (found.difference.path, found.difference.b_path):
                differing |= _named(path, names)
    return [FactRow(name, told[0].get(name), told[1].get(name), name in differing) for name in names]


def _named(path: str | None, names: Sequence[str]) -> set[str]:
    """The fact that a path is about: the one with the longest name that the path begins with."""
    fitting = [
        name
        for name in names
        if path is not None and (path == name or path.startswith((f"{name}.", f"{name}[")))
    ]
    return {max(fitting, key=len)} if fitting else set()

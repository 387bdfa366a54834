"""Annotations as workflow commands of GitHub Actions: lines of a log by which its runner marks a change.

    ::error title=rpcinspect findings%3A run.pcap::text%0Aof several lines

In: annotations. Out: one line for each. Text is printable, `%` and line breaks are escaped as GitHub's
toolkit does it, in a title `:` and `,` too; so no text can end its command, or begin another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rpcinspect.fields.phrases import printable, shorten
from rpcinspect.views.ci.suite import Annotation

MAX_OF_A_LEVEL = 10
"""GitHub shows no more of a step."""
MAX_TITLE = 150
MAX_LINES, MAX_LINE = 12, 400


def workflow_commands(annotations: Sequence[Annotation]) -> Iterator[str]:
    """Yields a command for each annotation; of more than GitHub shows, the last says how many more."""
    for level in ("error", "warning"):
        its = [one for one in annotations if one.level == level]
        shown = its if len(its) <= MAX_OF_A_LEVEL else its[: MAX_OF_A_LEVEL - 1]
        yield from map(_command, shown)
        more = len(its) - len(shown)
        if more:
            told = (f"{more:,} more {level}s, see the log",)
            yield _command(Annotation(level=its[0].level, title="rpcinspect", lines=told))


def _command(one: Annotation) -> str:
    text = "\n".join(printable(shorten(line, MAX_LINE)) for line in one.lines[:MAX_LINES])
    return f"::{one.level} title={_property(printable(shorten(one.title, MAX_TITLE)))}::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")

"""What `decode` does for `-f`: reads a filter, and points at what is wrong with it.

In: what the command line named. Out: a `Filter`; lines for people.
"""

from __future__ import annotations

from rich.cells import cell_len

from rpcinspect.errors import FilterError
from rpcinspect.filter.grammar import parse
from rpcinspect.filter.selection import Filter

AROUND = 60
"""Characters that are shown on either side of a mistake."""


def read_filter(text: str) -> Filter:
    """The filter; `FilterError` where it is none."""
    return Filter(parse(text), text)


def pointed(error: FilterError) -> str:
    """What is wrong, the filter, and marks below the place."""
    low = max(0, error.start - AROUND)
    high = min(len(error.text), error.start + AROUND)
    text = "".join(c if c.isprintable() else " " for c in error.text)
    before = ("…" if low else "") + text[low : error.start]
    after = text[error.start : high] + ("…" if high < len(text) else "")
    marked = text[error.start : min(error.end, high)]
    return f"-f: {error.reason}\n{before}{after}\n{' ' * cell_len(before)}{'^' * max(1, cell_len(marked))}"

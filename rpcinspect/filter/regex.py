"""Regular expressions that no text can make slow: RE2, whose time grows with the text and not beyond.

In: a pattern. Out: whether a text has a match anywhere. Texts come from captures, where anybody may have
written them; Python's own `re` can take years for forty characters. RE2 has no look-around and no
back-references.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Search: TypeAlias = Callable[[str], bool]

MAX_REMEMBERED = 4096
MAX_LENGTH = 200
"""Of texts whose result is remembered: names of functions and workers come again and again."""


def compile_search(pattern: str) -> Search:
    """The search for a pattern; `ValueError` with the reason if it is none."""
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        told = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise ValueError(f"not a regular expression of RE2: {told}") from None
    known: dict[str, bool] = {}

    def search(text: str) -> bool:
        found = known.get(text)
        if found is None:
            found = compiled.search(text) is not None
            if len(text) <= MAX_LENGTH and len(known) < MAX_REMEMBERED:
                known[text] = found
        return found

    return search

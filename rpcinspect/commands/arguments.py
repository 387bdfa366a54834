"""Arguments of commands that are more than a word: context ids, lists of names, renamed workers.

In: text from the command line. Out: values; None for what can't be one.
"""

from __future__ import annotations

from collections.abc import Iterable

from rpcinspect.rpc.types import LOCAL_ID_BITS, pack_id


def context_id(value: str) -> int | None:
    """The context id of `281474976710657` or `1:1` (creator:counter, as the table shows it)."""
    creator, colon, counter = value.partition(":")
    if not all(part.isascii() and part.isdigit() for part in ((creator, counter) if colon else (creator,))):
        return None
    if not colon:
        number = int(creator)
        return number if number < 1 << 63 else None
    if int(creator) >= 1 << 16 or int(counter) >= 1 << LOCAL_ID_BITS:
        return None
    return pack_id(int(creator), int(counter))


def names(given: Iterable[str]) -> tuple[str, ...]:
    """Names from options that may be repeated and may hold several, separated by commas."""
    found = [name.strip() for value in given for name in value.split(",")]
    return tuple(dict.fromkeys(name for name in found if name))


def renames(given: Iterable[str]) -> dict[str, str] | None:
    """`OLD=NEW`, each old name once."""
    found: dict[str, str] = {}
    for value in given:
        old, equals, new = value.partition("=")
        if not (old and equals and new) or old in found:
            return None
        found[old] = new
    return found

"""How sentences name things: counts, times, ids as `creator:counter`, messages by number, lists cut short.

Plain values in, short English out. Views use the same words.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rpcinspect.rpc.types import LOCAL_ID_BITS, pack_id, unpack_id
from rpcinspect.session.process_end import ProcessEnd

SHOWN = 4
"""Items of a list that a sentence spells out."""

DURATIONS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"))


def shorten(value: str, limit: int) -> str:
    """The text, cut with a sign of it to at most `limit` characters."""
    return value if len(value) <= limit else value[: limit - 1] + "…"


def shorten_middle(value: str, limit: int) -> str:
    """Returns the text, cut in the middle to at most `limit` characters: of dotted names the end matters
    most."""
    if len(value) <= limit:
        return value
    head = (limit - 1) // 3
    return f"{value[:head]}…{value[len(value) - (limit - 1 - head) :]}"


def counted(count: int, noun: str) -> str:
    """`1 message`, `2 messages`, `no messages`."""
    return f"{f'{count:,}' if count else 'no'} {noun}{'' if count == 1 else 's'}"


def duration(nanoseconds: int) -> str:
    """A time span in the unit that suits it."""
    size = abs(nanoseconds)
    for unit, name in DURATIONS:
        if size >= 0.9995 * unit:  # what would be rounded up to 1000 of the next smaller unit
            value = nanoseconds / unit
            return f"{value:.3g} {name}" if size < 999.5 * unit else f"{value:,.0f} {name}"
    return f"{nanoseconds} ns"


def lack_of_memory(ended: ProcessEnd) -> str:
    """What the kernel has counted while a process was recorded that SIGKILL ended; empty where nothing."""
    if not ended.oom_kills:
        return ""
    kills = "1 process" if ended.oom_kills == 1 else f"{ended.oom_kills:,} processes"
    return f"; the kernel killed {kills} of the job's memory group for lack of memory"


def amount(count: int) -> str:
    """Bytes in the unit that suits them."""
    if count < 1000:
        return f"{count} byte{'' if count == 1 else 's'}"
    size = float(count)
    for name in ("KB", "MB", "GB"):
        size /= 1000
        if size < 999.5:
            return f"{size:.3g} {name}"
    return f"{size:,.0f} GB"


def packed(identifier: int) -> str:
    """Returns a 64-bit id as creator:counter, which is what people compare."""
    creator, counter = unpack_id(identifier)
    return f"{creator}:{counter}"


MAX_ID_CHARACTERS = 40
"""Of an id as people write it."""


def read_packed(value: str) -> int | None:
    """The 64-bit id of `281474976710657` or `1:1` (creator:counter, as `packed` writes it), or None."""
    creator, colon, counter = value.partition(":")
    if len(value) > MAX_ID_CHARACTERS:  # Python refuses to read a number of 4,300 digits
        return None
    if not all(part.isascii() and part.isdigit() for part in ((creator, counter) if colon else (creator,))):
        return None
    if not colon:
        number = int(creator)
        return number if number < 1 << 63 else None
    if int(creator) >= 1 << 16 or int(counter) >= 1 << LOCAL_ID_BITS:
        return None
    return pack_id(int(creator), int(counter))


def several(items: Sequence[str]) -> str:
    """`a, b, c and 5 more`."""
    if len(items) > SHOWN:
        return f"{', '.join(items[: SHOWN - 1])} and {len(items) - SHOWN + 1:,} more"
    return ", ".join(items)


def numbers(indexes: Iterable[int]) -> str:
    """`#3, #5, #6 and 4 more`."""
    return several([f"#{index}" for index in indexes])


def unique(names: Iterable[str]) -> tuple[str, ...]:
    """Returns each name once, in order."""
    return tuple(dict.fromkeys(names))

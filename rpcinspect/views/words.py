"""Words that several views have for times and places.

In: time stamps of a capture, places in it. Out: short printable text.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone

from rpcinspect.fields.phrases import printable
from rpcinspect.problems import Location


def moment(time_ns: int, digits: int = 0) -> str:
    """A time stamp in UTC; the bare seconds where no calendar reaches."""
    seconds, rest = divmod(time_ns, 1_000_000_000)
    try:
        date = datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return f"{seconds} s"
    return f"{date}{f'.{rest:09}'[: digits + 1] if digits else ''} UTC"


def place_words(where: Location) -> Iterator[str]:
    """Where in its capture something is, as far as that is known."""
    if where.packet is not None:
        yield f"packet {where.packet}"
    if where.flow is not None:
        yield printable(where.flow)
    if where.offset is not None:
        yield f"offset {where.offset}"

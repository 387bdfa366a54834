"""Where to go, in words: a message's number, a time, a packet.

In: what was typed, and a capture that is being read. Out: a row, or why there is none.
"""

from __future__ import annotations

import re

import numpy as np

from rpcinspect.browse.growing_run import GrowingRun

PLACES = "go to: 12 (message), 1.5s (seconds since the first), p345 (packet), 2:p345 (of the second capture)"
PLACE = re.compile(
    r"#?(?P<number>\d{1,18})|(?P<time>\d{1,12}(\.\d{0,9})?)\s*s|((?P<capture>\d{1,6}):)?p(?P<packet>\d{1,18})"
)


def place_in_words(text: str, reading: GrowingRun) -> tuple[int | None, str]:
    """Returns the row of a place, or None and why."""
    found = PLACE.fullmatch(text.strip())
    if found is None:
        return None, f"{text!r} is no place: try 12, 1.5s or p345"
    if not reading.count:
        return None, "no message was read yet"
    if found["number"] is not None:
        row = reading.row_of(int(found["number"]))
        return row, f"there is no message {found['number']}: the last is {reading.count - 1}"
    columns, count = reading.columns, reading.count
    if found["time"] is not None:
        wanted = reading.start_ns + round(float(found["time"]) * 1e9)
        times = np.array(columns.time_ns[:count])  # a copy: the column may grow meanwhile
        later = np.flatnonzero(times >= wanted)
        if not len(later):
            return None, f"no message begins {found['time']} s after the first, or later"
        return int(later[times[later].argmin()]), ""
    capture, packet = int(found["capture"] or 1) - 1, int(found["packet"])
    packets = np.array(columns.packet[:count])
    at = np.flatnonzero((np.array(columns.capture[:count]) == capture) & (packets <= packet))
    if not len(at):
        return None, f"no message begins in packet {packet}, or before"
    return int(at[packets[at].argmax()]), ""

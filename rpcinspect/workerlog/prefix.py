"""What stands before the text of a log's line: whose output it is, when, how bad.

In: a line. Out: a `Prefix` and the rest. These are read, also several before one line, in any order:

    [rank0]: [default0]: [trainer1]:               torchrun, torch's own prefix of a rank; `0: ` of srun -l
    [W1128 09:00:00.123456789 file.cpp:7]          torch since 2.4, local time; [W file.cpp:7] before
    W1128 09:00:00.123456 4711 file.cc:7]          glog, and torch's Python side; W20261128 with the year
    2026-11-28T09:00:00.123Z  2026-11-28 09:00:00,123  [2026-11-28 09:00:00,123]
    Nov 28 09:00:00                                syslog
    WARNING:torch.distributed.rpc:  - WARNING -    Python's logging

A time has only what is written: the year, the date and the zone are often missing.
"""

from __future__ import annotations

import re

from msgspec import Struct

MAX_PREFIXES = 8
YEARS = range(1971, 2262)
"""Times in nanoseconds since 1970 are numbers of 64 bits."""
DAY_NS = 86_400_000_000_000
SECOND_NS = 1_000_000_000


class Stamp(Struct, frozen=True, kw_only=True):
    """A time as it is written."""

    year: int | None = None
    month: int | None = None
    day: int | None = None
    """Month and day are there both or not at all."""
    of_day_ns: int
    """Since midnight."""
    zone_s: int | None = None
    """East of Greenwich."""
    loose: bool = False
    """Only its second is true: torch's C++ logs take the rest from the monotonic clock (seen with 2.13), so
    that it is off by something that stays the same while the host runs."""


class Prefix(Struct, frozen=True, kw_only=True):
    """What stands before a line's text."""

    rank: int | None = None
    stamp: Stamp | None = None
    severity: str | None = None
    """`info`, `warning`, `error` or `fatal`."""


def split_prefix(line: str) -> tuple[Prefix, str]:
    """What stands before the text, and the text."""
    rank: int | None = None
    stamp: Stamp | None = None
    severity: str | None = None
    for _ in range(MAX_PREFIXES):
        match = _PREFIX.match(line)
        if match is None or not match.end():
            break
        if match["rank"] is not None:
            rank = int(match["rank"])
        found = _stamp(match)
        # one that knows its zone needs no guess; else the one next to the text is that of its writer
        if found is not None and (stamp is None or stamp.zone_s is None):
            stamp = found
        letter = match["c10"] or match["glog"] or match["level"]
        if letter is not None:
            severity = SEVERITIES[letter[0]]
        line = line[match.end() :]
    return Prefix(rank=rank, stamp=stamp, severity=severity), line


def _stamp(match: re.Match[str]) -> Stamp | None:
    for form in ("c10", "glog", "iso", "sys", "bare"):
        clock = match[f"{form}_clock"]
        if clock is None:
            continue
        year = month = day = zone = None
        if form in ("c10", "glog"):
            date = match[f"{form}_date"]
            year = int(date[:-4]) if len(date) == 8 else None
            month, day = int(date[-4:-2]), int(date[-2:])
        elif form == "iso":
            year, month, day = (int(part) for part in match["iso_date"].split("-"))
            zone = _zone(match["iso_zone"])
        elif form == "sys":
            month, day = 1 + MONTHS.index(match["sys_month"]), int(match["sys_day"])
        return _checked(year, month, day, clock, zone, form == "c10")
    return None


def _checked(
    year: int | None, month: int | None, day: int | None, clock: str, zone_s: int | None, loose: bool
) -> Stamp | None:
    whole, _, part = clock.replace(",", ".").partition(".")
    hours, minutes, seconds = (int(number) for number in whole.split(":"))
    if hours > 23 or minutes > 59 or seconds > 60:
        return None
    if month is not None and day is not None and not (1 <= month <= 12 and 1 <= day <= 31):
        return None
    if year is not None and year not in YEARS:
        return None
    of_day_ns = (hours * 3600 + minutes * 60 + seconds) * SECOND_NS + int(part[:9].ljust(9, "0"))
    return Stamp(year=year, month=month, day=day, of_day_ns=of_day_ns, zone_s=zone_s, loose=loose)


def _zone(text: str | None) -> int | None:
    if text is None:
        return None
    if text in ("Z", "z"):
        return 0
    digits = text[1:].replace(":", "")
    seconds = int(digits[:2]) * 3600 + int(digits[2:] or 0) * 60
    return -seconds if text[0] == "-" else seconds


MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
SEVERITIES = {"D": "info", "I": "info", "W": "warning", "E": "error", "F": "fatal", "C": "fatal"}
"""By the first letter of its name."""
_CLOCK = r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
_ZONE = r"Z|z|[+-]\d\d(?::?\d\d)?"
_SOURCE = r"[\w./-]{1,200}:\d+\]"
_LEVELS = "DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL"
_PREFIX = re.compile(
    rf"""\s*(?:
      \[[A-Za-z_.-]{{0,40}}?(?P<rank>\d{{1,9}})\]:
    | \[(?P<c10>[DIWEF])(?:(?P<c10_date>\d{{3,4}}|\d{{8}})\s+(?P<c10_clock>{_CLOCK}))?\s+{_SOURCE}
    | (?P<glog>[DIWEF])(?P<glog_date>\d{{8}}|\d{{4}})\s+(?P<glog_clock>{_CLOCK})\s+\d+\s+{_SOURCE}
    | \[?(?P<iso_date>\d{{4}}-\d\d-\d\d)[T\s](?P<iso_clock>{_CLOCK})\s?(?P<iso_zone>{_ZONE})?\]?
      (?:\s+std(?:err|out)\s+[FP])?
    | (?P<sys_month>{"|".join(MONTHS)})\s+(?P<sys_day>\d\d?)\s+(?P<sys_clock>{_CLOCK})
    | \[?(?P<bare_clock>{_CLOCK})\]?(?=\s)
    | (?:-\s*|\[)?(?P<level>{_LEVELS})(?:\]|:[\w.]{{0,200}}:|\s+-|:)
    | [\w.]{{1,200}}\s+-(?=\s)
    | -(?=\s)
    )\s?""",
    re.VERBOSE | re.ASCII,
)

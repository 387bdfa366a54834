"""The lines of a worker's log → a `WorkerLog`: what is RPC's of it, whose it is, how much there is else.

In: lines of text, of which any may be anything. Out: the lines that speak of RPC, with the worker that each
is of where the log tells: by its own words, else by the words of other lines with the same prefix.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from rpcinspect.workerlog.patterns import MAX_TEXT, Statement, read_text
from rpcinspect.workerlog.prefix import Stamp, split_prefix

MAX_LINES = 200_000
"""Lines of RPC of one log that are kept."""
MAX_LINE = 1 << 16
"""Characters of a line that are looked at."""


class LogLine(Struct, frozen=True, kw_only=True):
    """A line about RPC."""

    number: int
    """In its file, from 1."""
    rank: int | None
    stamp: Stamp | None
    severity: str | None
    statement: Statement
    text: str


class WorkerLog(Struct, frozen=True, kw_only=True):
    """The lines about RPC in one text log."""

    path: str
    lines: tuple[LogLine, ...]
    total: int
    """Lines of any kind."""
    left_out: int
    """Lines of RPC beyond `MAX_LINES`."""
    stamps: tuple[Stamp, ...]
    """The first and the last time of the log, whatever it is of."""

    @property
    def workers(self) -> tuple[str, ...]:
        """Returns the workers that wrote the log, as far as the lines name them."""
        return tuple(
            dict.fromkeys(line.statement.worker for line in self.lines if line.statement.worker is not None)
        )


def read_lines(path: str, lines: Iterable[str], worker: str | None = None) -> WorkerLog:
    """Reads a log; `worker`: the worker that wrote it, where the user names one."""
    found: list[LogLine] = []
    first: Stamp | None = None
    last: Stamp | None = None
    total = left_out = 0
    for number, line in enumerate(lines, 1):
        total = number
        prefix, text = split_prefix(line[:MAX_LINE])
        if found and found[-1].number == number - 1 and not found[-1].statement.cause:  # the error itself
            found[-1] = replace(
                found[-1], statement=replace(found[-1].statement, cause=text.strip()[:MAX_TEXT])
            )
        if prefix.stamp is not None:
            first, last = first or prefix.stamp, prefix.stamp
        statement = read_text(text)
        if statement is None:
            continue
        if len(found) >= MAX_LINES:
            left_out += 1
            continue
        found.append(
            LogLine(
                number=number,
                rank=prefix.rank,
                stamp=prefix.stamp,
                severity=prefix.severity,
                statement=statement,
                text=text.rstrip()[:MAX_TEXT],
            )
        )
    stamps = () if first is None or last is None else (first, last)
    return WorkerLog(
        path=path, lines=_attributed(found, worker), total=total, left_out=left_out, stamps=stamps
    )


def _attributed(lines: list[LogLine], worker: str | None) -> tuple[LogLine, ...]:
    """Lines that do not name their worker belong to the one that others with the same prefix are of."""
    named: defaultdict[int | None, Counter[str]] = defaultdict(Counter)
    for line in lines:
        if line.statement.worker is not None:
            named[line.rank][line.statement.worker] += 1
    owners = {rank: next(iter(names)) for rank, names in named.items() if len(names) == 1}
    if worker is not None:
        owners[None] = worker
    return tuple(
        line
        if line.statement.worker is not None or line.statement.what == "ended"
        else replace(line, statement=replace(line.statement, worker=owners.get(line.rank)))
        for line in lines
    )

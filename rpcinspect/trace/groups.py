"""Messages that are told of in one sentence: those of one pipe and direction that do the same.

In: rows with what they do, as they come; eight bytes are kept of each. Out: groups by the names of both ends.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from rpcinspect.session.model import MessageColumns
from rpcinspect.trace.run import Run


@dataclass(frozen=True, slots=True)
class Group:
    """Messages of one sender to one receiver."""

    job: int
    sender: str
    receiver: str
    what: str
    indexes: tuple[int, ...]
    """Ascending."""


class Groups:
    """Rows by pipe, direction and what they do."""

    def __init__(self, columns: MessageColumns) -> None:
        self._columns = columns
        self._rows: dict[tuple[int, int, str], array[int]] = defaultdict(lambda: array("q"))

    def add(self, row: int, what: str) -> None:
        """One message more."""
        self._rows[self._columns.pipe[row], self._columns.from_client[row], what].append(row)

    def finish(self, run: Run) -> Iterator[Group]:
        """Every group, in the order of their first messages."""
        session = run.session
        merged: dict[tuple[int, str, str, str], list[int]] = defaultdict(list)
        for (pipe, forth, what), rows in self._rows.items():
            ends = session.clients[pipe], session.servers[pipe]
            sender, receiver = ends if forth else ends[::-1]
            merged[run.jobs[pipe], sender, receiver, what].extend(rows)
        found = [Group(*key, run.session.indexes(rows)) for key, rows in merged.items()]
        yield from sorted(found, key=lambda group: group.indexes[0])

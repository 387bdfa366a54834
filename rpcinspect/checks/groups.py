"""Messages that are told of in one sentence: those from one worker to another that do the same.

In: rows with what they do, as they come; eight bytes are kept of each. Out: groups by the names of both ends;
or, where many pairs of workers do the same, one group of all of them.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Collection, Iterator

from msgspec import Struct
from msgspec.structs import replace

from rpcinspect.checks.evidence import CaptureEvidence
from rpcinspect.session.model import MessageColumns
from rpcinspect.session.words import several, unique

PAIRS = 3
"""So many pairs of workers that do the same are told of one by one."""


class Group(Struct, frozen=True):
    """Messages of one sender to one receiver."""

    job: int
    sender: str
    receiver: str
    what: str
    indexes: tuple[int, ...]
    """Ascending."""

    @property
    def way(self) -> str:
        """From whom to whom."""
        return f"from {self.sender} to {self.receiver}"

    @property
    def workers(self) -> tuple[str, ...]:
        """Both ends."""
        return unique([self.sender, self.receiver])


class Crowd(Struct, frozen=True):
    """Messages of many pairs of workers."""

    workers: tuple[str, ...]
    what: str
    indexes: tuple[int, ...]
    """Ascending."""

    @property
    def way(self) -> str:
        """Between whom."""
        return f"between {several(self.workers)}"


class Groups:
    """Rows by pipe, direction and what they do."""

    def __init__(self, columns: MessageColumns) -> None:
        self._columns = columns
        self._rows: dict[tuple[int, int, str], array[int]] = defaultdict(lambda: array("q"))

    def add(self, row: int, what: str) -> None:
        """One message more."""
        self._rows[self._columns.pipe[row], self._columns.from_client[row], what].append(row)

    def finish(self, run: CaptureEvidence) -> Iterator[Group]:
        """Every group, in the order of their first messages."""
        session = run.session
        merged: dict[tuple[int, str, str, str], list[int]] = defaultdict(list)
        for (pipe, forth, what), rows in self._rows.items():
            ends = session.clients[pipe], session.servers[pipe]
            sender, receiver = ends if forth else ends[::-1]
            merged[run.jobs[pipe], sender, receiver, what].extend(rows)
        found = [Group(*key, run.session.indexes(rows)) for key, rows in merged.items()]
        yield from sorted(found, key=lambda group: group.indexes[0])

    def gathered(self, run: CaptureEvidence, only: Collection[int] | None = None) -> Iterator[Group | Crowd]:
        """The same, but for what many pairs of a job do; of `only` these indexes, if they are given."""
        alike: dict[tuple[int, str], list[Group]] = defaultdict(list)
        for group in self.finish(run):
            if only is not None:
                group = replace(group, indexes=tuple(index for index in group.indexes if index in only))
            if group.indexes:
                alike[group.job, group.what].append(group)
        for (_, what), groups in alike.items():
            if len(groups) <= PAIRS:
                yield from groups
                continue
            workers = unique(worker for group in groups for worker in group.workers)
            yield Crowd(workers, what, tuple(sorted(i for group in groups for i in group.indexes)))

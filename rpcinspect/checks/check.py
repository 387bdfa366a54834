"""What every check is: a family of findings; and messages that have something in common.

In: records as they become complete, each with the `MessageKind` that the session has of it; then the session.
Out: findings. Rows that do the same become `MessageGroups`, by the names of both ends, for one sentence each;
where many pairs of workers do the same, one for all of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from rpcinspect.checks.evidence import CaptureEvidence
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.model import Finding
from rpcinspect.session.provenance import MessageKind
from rpcinspect.session.words import several, unique

MAX_INDEXES = 1000
"""Message numbers that a finding carries."""


class Check(ABC):
    """A family of findings: sees each message once, and reports at the end. Methods that a check does not
    override are not called."""

    KINDS: Collection[int] | None = None
    """Types of the commands that `feed` wants to see; None: all."""
    WHOLE_JOB = False
    """Whether its findings follow from what is on none of a job's pipes."""

    def feed(self, record: RpcRecord, kind: MessageKind) -> bool:
        """Takes one message, as it becomes complete; the record must not be kept. Returns whether other
        messages of the same pattern, pipe and direction matter too: else `feed` is not called for these."""
        return True

    @abstractmethod
    def finish(self, evidence: CaptureEvidence) -> Iterable[Finding]:
        """Returns the findings."""


PAIRS = 3
"""Pairs of workers that do the same and are reported one by one."""


class MessageGroup(Struct, frozen=True):
    """Messages of one sender to one receiver."""

    job: int
    sender: str
    receiver: str
    what: str
    indexes: tuple[int, ...]
    """Ascending."""

    @property
    def way(self) -> str:
        """Returns `from SENDER to RECEIVER`."""
        return f"from {self.sender} to {self.receiver}"

    @property
    def workers(self) -> tuple[str, ...]:
        """The workers at both ends."""
        return unique([self.sender, self.receiver])


class Crowd(Struct, frozen=True):
    """Messages of many pairs of workers."""

    workers: tuple[str, ...]
    what: str
    indexes: tuple[int, ...]
    """Ascending."""

    @property
    def way(self) -> str:
        """Returns words for the two workers: between w0 and w1."""
        return f"between {several(self.workers)}"


class MessageGroups:
    """Rows by what they do."""

    def __init__(self) -> None:
        self._rows: dict[str, array[int]] = defaultdict(lambda: array("q"))

    def add(self, row: int, what: str) -> None:
        """Adds a message to the group of those with the same `what`."""
        self._rows[what].append(row)

    def finish(self, evidence: CaptureEvidence) -> Iterator[MessageGroup]:
        """Every group, in the order of their first messages."""
        session = evidence.session
        merged: dict[tuple[int, str, str, str], list[int]] = defaultdict(list)
        for what, rows in self._rows.items():
            for row in rows:
                merged[session.job(row), session.source(row), session.destination(row), what].append(row)
        found = [MessageGroup(*key, session.indexes(rows)) for key, rows in merged.items()]
        yield from sorted(found, key=lambda group: group.indexes[0])

    def gathered(
        self, evidence: CaptureEvidence, only: Collection[int] | None = None
    ) -> Iterator[MessageGroup | Crowd]:
        """Yields the groups, joined where many pairs of a job do the same; only `only` of the indexes, if
        given."""
        alike: dict[tuple[int, str], list[MessageGroup]] = defaultdict(list)
        for group in self.finish(evidence):
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


def finding_of(group: MessageGroup | Crowd, code: str, severity: str, text: str, remedy: str) -> Finding:
    """A finding of a group's messages."""
    indexes = group.indexes[:MAX_INDEXES]
    return Finding(
        code=code, severity=severity, text=text, remedy=remedy, messages=indexes, workers=group.workers
    )

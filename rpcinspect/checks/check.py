"""What every check is, and what it is told of a message: a family of findings, and a digest.

In: records as they become complete. Out: a `MessageDigest` of each, and an exchange as two digests once both
are there. Only digests of messages without their partner are kept. Rows that do the same become
`MessageGroups`, by the names of both ends, for one sentence each; where many pairs of workers do the same,
one for all of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from rpcinspect.checks.evidence import CaptureEvidence
from rpcinspect.rpc.command_codec import message_type_of
from rpcinspect.rpc.envelope import RpcWithAutograd, RpcWithProfilingReq, RpcWithProfilingResp
from rpcinspect.rpc.message import MessageType, type_name
from rpcinspect.rpc.questions import CALLS, function_of, is_builtin
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.types import ProfilingId
from rpcinspect.session.model import NONE, Finding, MessageColumns
from rpcinspect.session.words import several, unique

MAX_INDEXES = 1000
"""Message numbers that a finding carries."""


class Check(ABC):
    """A family of findings: sees each message once, and reports at the end. Methods that a check does not
    override are not called."""

    KINDS: Collection[int] | None = None
    """Types of the commands that `feed` wants to see; None: all. `exchange` sees all."""
    WHOLE_JOB = False
    """Whether its findings follow from what is on none of a job's pipes."""

    def feed(self, record: RpcRecord, digest: MessageDigest) -> bool:
        """Takes one message, as it becomes complete; the record must not be kept. Returns whether other
        messages of the same pattern, pipe and direction matter too: else `feed` is not called for these."""
        return True

    def exchange(self, row: int, request: MessageDigest, answer_row: int, answer: MessageDigest) -> bool:
        """Takes a request and its answer, once both were fed. Returns whether other exchanges of these two
        patterns matter too."""
        return True

    @abstractmethod
    def finish(self, evidence: CaptureEvidence) -> Iterable[Finding]:
        """Returns the findings."""


MAX_NAME = 200
"""Of a function's name that is kept; captured names may be of any length."""


class MessageDigest(Struct, eq=False, gc=False):
    """The properties of a message that checks use; messages of one pattern share a digest."""

    kind: int
    """Message type of the command, envelopes off."""
    builtin: bool
    """Whether an operator is called."""
    types: tuple[int, ...]
    """Of its envelopes, outermost first."""
    wrapped: bool
    """Whether there is an autograd envelope."""
    grads: bool
    """One of its own tensors requires grad."""
    elsewhere: bool
    """One of its tensors is not on the CPU."""
    failed: bool
    """Whether this is an answer that reports an error."""
    whole: bool
    """All of it was captured and could be read."""
    function: str | None
    profiling: ProfilingId | None
    """That of its profiling envelope."""
    repeats: bool
    """Whether this is the digest of a pattern."""

    @property
    def what(self) -> str:
        """Returns the function of the message, else the name of its type."""
        return self.function or type_name(self.kind)


def digest_of(record: RpcRecord) -> MessageDigest:
    """Returns the digest of a record."""
    rpc = record.like
    types: tuple[int, ...] = ()
    wrapped, profiling = False, None
    if rpc.envelopes:
        types = tuple([envelope.message_type for envelope in rpc.envelopes])
        for envelope in rpc.envelopes:
            if type(envelope) is RpcWithAutograd:
                wrapped = True
            elif isinstance(envelope, (RpcWithProfilingReq, RpcWithProfilingResp)):
                profiling = envelope.profiling_id
    grads = elsewhere = False
    for meta in rpc.tensors:
        if meta.requires_grad and meta.part_of is None:
            grads = True
        if meta.device != "cpu":
            elsewhere = True
    command = rpc.command
    kind = message_type_of(command)
    function = function_of(record) if kind in CALLS else None
    return MessageDigest(
        kind,
        function is not None and is_builtin(command),
        types,
        wrapped,
        grads,
        elsewhere,
        record.facts.failed or kind == MessageType.EXCEPTION,
        not record.problems,
        function if function is None or len(function) <= MAX_NAME else function[:MAX_NAME],
        profiling,
        record.pattern is not None,
    )


class DigestPairs:
    """Brings the digests of requests and of their answers together."""

    def __init__(self, columns: MessageColumns) -> None:
        """`columns` of the session's builder, which has paired the rows."""
        self._columns = columns
        self._waiting: dict[int, MessageDigest] = {}
        """By row."""

    def join(self, row: int, partner: int, digest: MessageDigest) -> MessageDigest | None:
        """The digest of the message in the partner's row, if this one completes the two."""
        other = None if partner == NONE else self._waiting.pop(partner, None)
        if other is None:
            self._waiting[row] = digest
        return other

    def unanswered(self) -> list[tuple[int, MessageDigest]]:
        """Requests without an answer, and their rows."""
        forth = self._columns.from_client
        return [(row, digest) for row, digest in self._waiting.items() if forth[row]]


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
    """Rows by pipe, direction and what they do."""

    def __init__(self, columns: MessageColumns) -> None:
        self._columns = columns
        self._rows: dict[tuple[int, int, str], array[int]] = defaultdict(lambda: array("q"))

    def add(self, row: int, what: str) -> None:
        """Adds a message to the group of those with the same `what`."""
        self._rows[self._columns.pipe[row], self._columns.from_client[row], what].append(row)

    def finish(self, evidence: CaptureEvidence) -> Iterator[MessageGroup]:
        """Every group, in the order of their first messages."""
        session = evidence.session
        merged: dict[tuple[int, str, str, str], list[int]] = defaultdict(list)
        for (pipe, forth, what), rows in self._rows.items():
            ends = session.clients[pipe], session.servers[pipe]
            sender, receiver = ends if forth else ends[::-1]
            merged[evidence.jobs[pipe], sender, receiver, what].extend(rows)
        found = [MessageGroup(*key, evidence.session.indexes(rows)) for key, rows in merged.items()]
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

"""What every family of findings is: a stage that sees each message once, and speaks when all is known."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable

from rpcinspect.checks.evidence import CaptureEvidence
from rpcinspect.checks.notes import Note
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.model import Finding

MAX_INDEXES = 1000
"""Message numbers that a finding carries."""


class Stage(ABC):
    """A stage overrides what it needs; what it does not override costs nothing."""

    KINDS: Collection[int] | None = None
    """Types of the commands that `feed` wants to see; None: all. `pair` sees all."""

    def feed(self, record: RpcRecord, note: Note) -> None:  # noqa: B027 - most stages need only one of the two
        """One message, as it becomes complete. The record must not be kept."""

    def pair(self, row: int, request: Note, answer_row: int, answer: Note) -> None:  # noqa: B027
        """A request and its answer, once both were fed."""

    def indifferent(self, record: RpcRecord, note: Note) -> bool:
        """Whether `feed`, which has seen this one, will note nothing of any other message of its pattern,
        pipe and direction: it is not called for these then.
        """
        return False

    def indifferent_pair(self, request: Note, answer: Note) -> bool:
        """Whether `pair` will note nothing of any request and answer of these two patterns."""
        return False

    @abstractmethod
    def finish(self, run: CaptureEvidence) -> Iterable[Finding]:
        """The findings."""

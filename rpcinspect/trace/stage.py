"""What every family of findings is: a stage that sees each message once, and speaks when all is known."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.model import Finding
from rpcinspect.trace.notes import Note
from rpcinspect.trace.run import Run

MAX_INDEXES = 1000
"""Message numbers that a finding carries."""


class Stage:
    """A stage overrides what it needs; what it does not override costs nothing."""

    KINDS: Collection[int] | None = None
    """Types of the commands that `feed` wants to see; None: all. `pair` sees all."""

    def feed(self, record: RpcRecord, note: Note) -> None:
        """One message, as it becomes complete. The record must not be kept."""

    def pair(self, request: Note, answer: Note) -> None:
        """A request and its answer, once both were fed."""

    def finish(self, run: Run) -> Iterable[Finding]:
        """The findings."""
        raise NotImplementedError

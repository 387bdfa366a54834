"""What a way of recording must offer to the launcher.

`wire` and `agent` are such ways. In: calls in the order below. Out: what was recorded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field

from rpcinspect.recorder.notes import Note


class Recorded(Struct, frozen=True, kw_only=True):
    """What came of a recording, in numbers."""

    file: Path
    bytes: int
    """Of the file."""
    packets: int | None = None
    messages: str | None = None
    """How many, in words."""
    dropped: int = 0
    """Packets or messages that were lost: they came too fast."""
    ended_early: str | None = None
    """Why the recording ended before the command did."""
    warnings: Sequence[str] = field(default=())
    """What else makes the recording less than it should be, a line each."""


class Mechanism:
    """One way of recording one command; by itself it does nothing and needs nothing."""

    via: str

    def prepare(self) -> None:
        """In our process, before anything is started. `RecordError`: it can't begin."""

    def settings(self) -> Mapping[str, object]:
        """What the hook of that name finds in RPCINSPECT_RECORD, beside `via` and `notes`."""
        return {}

    def stage(self) -> Sequence[int]:
        """In the process that becomes the command, which has one thread: descriptors that our process gets.
        `RecordError`: it can't begin.
        """
        return ()

    def begin(self, descriptors: Sequence[int], notes: Path) -> None:
        """In our process, with what the stage gave, before the command runs. `RecordError`: it can't."""

    def look(self) -> None:
        """While the command runs: at least once a second, and when a child of ours has ended."""

    def finish(self, notes: Sequence[Note]) -> Recorded:
        """The command has ended: completes the file."""
        raise NotImplementedError

    def close(self) -> None:
        """Ends whatever it started; also when something failed. Once more does no harm."""

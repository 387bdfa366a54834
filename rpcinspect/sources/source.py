"""What every source of messages gives, whatever its captures hold.

In: nothing; `packets.PacketSource` and `log.LogSource` are given open captures, `index.IndexSource` an index
that lies beside them. Out: `MessageSource`, what the pipeline asks of each. One session has one source: what
a pipe or a packet is holds for all of it or nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from rpcinspect.capture import CaptureInput, CaptureReader
from rpcinspect.checks.wire_facts import WireFacts
from rpcinspect.problems import Problem
from rpcinspect.session.identity import IdentityEvidence
from rpcinspect.session.model import WorkerIdentities
from rpcinspect.tcp.clocks import ClockOffset, Vantage
from rpcinspect.tensorpipe.records import Pipe, TpMessage

if TYPE_CHECKING:
    from rpcinspect.rpclog.header import LoggedFailure


class ReadWatch(Struct, frozen=True):
    """Calls of whoever watches the reading."""

    stopped: Callable[[int], bool]
    """Whether that of a capture, by its index, is to end before its next block."""
    tell: Callable[[], None]
    """Hears that a part was read which gave no messages."""


class SourceFacts(Struct, kw_only=True):
    """What a source knows beside its messages once all have come; an index holds it. Each kind has `count`
    and `identities`, which are `facts` and `identities` of its source."""

    pipes: tuple[Pipe, ...]
    wire: WireFacts
    problems: tuple[Problem, ...]
    """Those of reading the captures, too."""
    sums: tuple[int, int, int, int]
    """Bytes of RPC, of tensors, of other protocols and of the store."""
    unread: dict[str, int]
    clocks: tuple[ClockOffset | None, ...]
    """How the clock of each capture differs from the first one's; None where that is unknown."""
    vantages: tuple[Vantage, ...]
    """Where each capture was made."""

    @property
    def failed(self) -> Collection[tuple[int, LoggedFailure]]:
        """Returns (pipe, call that ended without an answer), where that is told: what ends a call at its
        caller puts nothing on the wire."""
        return ()


class MessageSource(ABC):
    """Gives messages as they become complete; after the last one, knows the workers."""

    pipes: Sequence[Pipe]
    """Pipes that are known by now."""
    unread: Mapping[str, int] = {}
    """Packets that could not be read, by a short reason."""

    @abstractmethod
    def messages(self) -> Iterator[list[TpMessage]]:
        """Yields all messages, some at a time."""

    def message(self, row: int) -> TpMessage | None:
        """Returns the message of a row, counted in the order of `messages`, where that takes no reading of
        those before it."""
        return None

    @property
    @abstractmethod
    def facts(self) -> int:
        """A number that grows with what is known of workers."""

    @abstractmethod
    def identities(self, evidence: IdentityEvidence) -> WorkerIdentities:
        """Who is who, as far as it is known by now."""

    @abstractmethod
    def told(self) -> SourceFacts:
        """Returns what is known beside the messages; only after the last one."""

    @property
    @abstractmethod
    def progress(self) -> tuple[int, int | None]:
        """Bytes that were read, of how many (None where nobody knows)."""


INDEX = ".rpcidx"
"""What is put behind the name of a capture for that of its index."""


def index_beside(paths: Sequence[CaptureInput]) -> Path | None:
    """Returns the place of the index of captures that are read as one session, beside the first; None where
    there is no such place."""
    files = [path for path in paths if isinstance(path, str) and path != "-"]
    return Path(f"{files[0]}{INDEX}") if files and len(files) == len(paths) else None


def read_of(
    readers: Sequence[CaptureReader], twice: Callable[[CaptureReader], bool] = lambda reader: False
) -> tuple[int, int | None]:
    """Bytes that were read, and all of them; those of some captures count twice."""
    done, of = 0, 0
    known = True
    for reader in readers:
        read, size = reader.progress
        done += read
        known &= size is not None
        of += (size or 0) * (2 if twice(reader) else 1)
    return done, of if known else None

"""What every source of messages gives, whatever its captures hold.

In: nothing; `packets.PacketSource` and `log.LogSource` are given open captures. Out: `MessageSource`, what
the pipeline asks of either. One session has one source: what a pipe or a packet is holds for all of it or
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from rpcinspect.capture import CaptureReader
from rpcinspect.checks.wire_facts import WireFacts
from rpcinspect.errors import Problem
from rpcinspect.session.witness import Witness
from rpcinspect.session.workers import Roster
from rpcinspect.tcp.clocks import ClockOffset
from rpcinspect.tensorpipe.records import Pipe, TpMessage

if TYPE_CHECKING:
    from rpcinspect.rpclog.header import LoggedFailure


class Watch(Struct, frozen=True):
    """Who watches the reading."""

    stopped: Callable[[CaptureReader], bool]
    """Whether that of a capture is to end before its next block."""
    tell: Callable[[], None]
    """Hears that a part was read which gave no messages."""


class MessageSource(Protocol):
    """Gives messages as they become complete; once they have all been taken, knows who is who."""

    def messages(self) -> Iterator[list[TpMessage]]:
        """All of them, some at a time."""

    @property
    def pipes(self) -> Sequence[Pipe]:
        """Those that are known by now."""

    @property
    def facts(self) -> int:
        """Grows with what is known of workers."""

    def roster(self, witness: Witness) -> Roster:
        """Who is who, as far as it is known by now."""

    def wire_facts(self) -> WireFacts:
        """What was lost, and how connections ended."""

    @property
    def failed(self) -> Collection[tuple[int, LoggedFailure]]:
        """(pipe, call that ended without an answer), where that is told."""

    @property
    def problems(self) -> Sequence[Problem]:
        """That belong to no message."""

    def offset(self, capture: int) -> ClockOffset | None:
        """Of a capture's clock against the first one's."""

    @property
    def sums(self) -> tuple[int, int, int, int]:
        """Bytes of RPC, of tensors, of other protocols and of the store."""

    @property
    def progress(self) -> tuple[int, int | None]:
        """Bytes that were read, of how many (None where nobody knows)."""

    @property
    def unread(self) -> dict[str, int]:
        """Packets that could not be read, by a short reason."""


def read_of(
    readers: Sequence[CaptureReader], twice: Callable[[CaptureReader], bool]
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

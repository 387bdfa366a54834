"""Sessions with their messages in memory, for whoever compares, replays or asks: the programmer's way in.

In: paths of captures. Out: an `OpenSession`: the session, every record, and the bytes of tensors for as long
as it is open. `decode` itself does not use this: it shows messages as they come and keeps none.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from types import TracebackType

from rpcinspect.pipeline import Decoding, Options
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.model import Session
from rpcinspect.trace.wire_facts import ConnectionEnd
from rpcinspect.wire.ranges import CaptureBytes, Extent


class OpenSession:
    """A decoded session whose captures are still open. Use it in a `with` statement."""

    def __init__(self, paths: Sequence[str], options: Options | None = None) -> None:
        """Reads everything; raises `CaptureError` for a path that is no capture."""
        self._decoding = Decoding(paths, options)
        try:
            self._records = list(self._decoding.records())
            self.session: Session = self._decoding.session
        except BaseException:
            self._decoding.close()
            raise

    def __len__(self) -> int:
        return len(self._records)

    def message(self, index: int) -> RpcRecord:
        """The record of a message by its index, its place in the order of time."""
        return self._records[int(self.session.order[index])]

    def messages(self) -> list[RpcRecord]:
        """Every record in the order of time."""
        return [self._records[row] for row in self.session.order.tolist()]

    @property
    def ended_early(self) -> Sequence[str]:
        """Of captures of which there is more than was read, why."""
        return self._decoding.ended_early

    @property
    def bytes(self) -> CaptureBytes:
        """Bytes by their place in the captures."""
        return self._decoding.bytes

    @property
    def ends(self) -> Sequence[ConnectionEnd]:
        """How the connections of the captures ended."""
        return self._decoding.ends

    def read(self, extent: Extent) -> builtins.bytes:
        """The bytes of an extent, zeros where they were not captured."""
        return extent.read(self.bytes)

    def close(self) -> None:
        """Closes the captures."""
        self._decoding.close()

    def __enter__(self) -> OpenSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_session(path: str, *more: str, options: Options | None = None) -> OpenSession:
    """Reads captures as one session. The package offers it as `rpcinspect.open`."""
    return OpenSession((path, *more), options)

"""The tensors of one pipe on the connections of its channel, in both directions.

In: the lanes of a channel, connected or not yet; bytes of tensors to send; the length of the next tensor to
come, which its descriptor says. Out: whole tensors, in order. May assume that lanes, being connections of the
pipe, lose it when they are lost; a frame of another length than that of its tensor's part loses it too.

Mirrors `tensorpipe/channel/basic` and `tensorpipe/channel/mpt`; `wire/channel.py` knows which lane has what.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rpcinspect.replay.peers.connection import Connection
from rpcinspect.wire.channel import CHANNELS


class TensorChannel:
    """The lanes of one pipe; `basic` has one, `mpt_uv` 16."""

    def __init__(self, name: str, lanes: Sequence[Connection]) -> None:
        self._split = CHANNELS[name].split
        self._lanes = lanes
        self._parts: list[bytes | None] = [None] * len(lanes)
        self._left = 0
        """Parts of the tensor that is being received, which have not come."""
        self.on_tensor: Callable[[bytes], None] = lambda _: None
        for number, lane in enumerate(lanes):
            lane.on_frame = self._receiver(number)
            lane.allow(None)

    def send(self, tensors: Sequence[bytes]) -> None:
        """Queues tensors; empty ones never travel."""
        for data in tensors:
            start = 0
            for lane, length in self._split(len(data)) if data else ():
                self._lanes[lane].send(data[start : start + length])
                start += length

    def expect(self, length: int) -> None:
        """How long the next tensor is. Saying it again before that has come is fine."""
        if self._left:
            return
        parts = self._split(length)
        self._left = len(parts)
        for lane, size in parts:
            self._lanes[lane].allow(size, exact=True)

    @property
    def arriving(self) -> bool:
        """Whether a frame was begun by the other side."""
        return any(lane.arriving for lane in self._lanes)

    def _receiver(self, number: int) -> Callable[[bytes], None]:
        def received(body: bytes) -> None:
            self._lanes[number].allow(None)
            self._parts[number] = body
            self._left -= 1
            if not self._left:
                whole = b"".join([part for part in self._parts if part is not None])
                self._parts = [None] * len(self._lanes)
                self.on_tensor(whole)

        return received

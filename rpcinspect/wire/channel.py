"""Which connection carries which tensor bytes: one entry per channel of TensorPipe.

In: the tensors of each direction's messages in order (`expect`), and the streams of the channel's connections
as they turn up (`attach`). Out: each tensor's place in the capture, through its `TensorSlot`. Strict order is
the only rule: a channel uses each of its lanes in the order of messages, then of tensors; time tells nothing
under load.

Mirrors `tensorpipe/channel/{basic,mpt,cuda_basic}/channel_impl.cc`. Channels that move bytes outside the
network are named in `INVISIBLE`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from rpcinspect.wire.frame import HEADER_BYTES, FrameCursor
from rpcinspect.wire.records import Placement, TpTensor
from rpcinspect.wire.stream import Extent, Stream

MPT_LANES = 16
CUDA_CHUNK_BYTES = 1 << 20


class PendingMessage:
    """Counts the tensors that a message still waits for, and widens its span of time by theirs."""

    __slots__ = ("first_ns", "last_ns", "left", "payload", "tensors")

    def __init__(self, payload: object, first_ns: int, last_ns: int) -> None:
        self.payload = payload
        self.first_ns = first_ns
        self.last_ns = last_ns
        self.left = 0
        self.tensors: list[TpTensor] = []


class TensorSlot:
    """One tensor on its way: collects its parts, lane by lane."""

    __slots__ = ("index", "left", "lost", "message", "parts")

    def __init__(self, message: PendingMessage, index: int, parts: int) -> None:
        self.message = message
        self.index = index
        self.parts: list[Extent | None] = [None] * parts
        self.left = parts
        self.lost: Placement | None = None

    def place(self, part: int, extent: Extent | None, placement: Placement) -> bool:
        """Takes one part; True if this was the last thing that the message waited for."""
        self.parts[part] = extent
        if placement is not Placement.CERTAIN and self.lost is not Placement.UNCERTAIN:
            self.lost = placement
        self.left -= 1
        if self.left:
            return False
        tensor = self.message.tensors[self.index]
        if self.lost is None:
            tensor.extent = _joined(self.parts)
            tensor.placement = Placement.CERTAIN
        else:
            tensor.placement = self.lost
        self.message.left -= 1
        return self.message.left == 0


@dataclass(eq=False, slots=True)
class Part:
    """What one lane carries of one tensor: one frame."""

    slot: TensorSlot
    index: int
    length: int


class Lane:
    """One direction of one connection of a channel."""

    __slots__ = ("broken", "cursor", "frame_bytes", "queue", "tensor_bytes")

    def __init__(self) -> None:
        self.cursor: FrameCursor | None = None
        self.queue: deque[Part] = deque()
        self.broken: str | None = None
        """Why the place of everything from here on is not certain."""
        self.frame_bytes = 0
        self.tensor_bytes = 0

    def attach(self, stream: Stream, position: int) -> None:
        """The stream that carries this lane, from behind its hello."""
        self.cursor = FrameCursor(stream, position)

    def doubt(self, reason: str) -> None:
        """From here on the order of tensors is not known."""
        if self.broken is None:
            self.broken = reason

    def advance(self) -> list[PendingMessage]:
        """Gives frames to the tensors that wait for them; returns the messages that are complete now."""
        done: list[PendingMessage] = []
        cursor, queue = self.cursor, self.queue
        if cursor is None:
            return done
        stream = cursor.stream
        while queue:
            part = queue[0]
            if self.broken is not None:
                queue.popleft()
                self._settle(part, None, Placement.UNCERTAIN, done)
                continue
            position, end = cursor.position, stream.end
            length = part.length
            if end is None or end - position < HEADER_BYTES:
                break
            if not stream.holes or not stream.missing(position, position + HEADER_BYTES):
                # A length that was not captured is the one that the descriptor gives.
                announced = cursor.length(position)
                if announced != length:
                    self.doubt(
                        f"a tensor of {length:,} bytes was due, a frame of {announced:,} bytes is there"
                    )
                    continue
            start, stop = position + HEADER_BYTES, position + HEADER_BYTES + length
            if end < stop:
                break
            queue.popleft()
            cursor.position = stop
            self.frame_bytes += HEADER_BYTES
            self._take(part, stream, start, stop, done)
        cursor.release()
        return done

    def finish(self) -> list[PendingMessage]:
        """Settles what still waits: a tensor that the end of the capture cut keeps what is there of it."""
        done = self.advance()
        cursor = self.cursor
        if self.queue and cursor is not None and self.broken is None:
            part, stream = self.queue[0], cursor.stream
            start = cursor.position + HEADER_BYTES
            if (
                stream.end is not None
                and start < stream.end
                and cursor.length(cursor.position) == part.length
            ):
                self.queue.popleft()
                seen = stream.extent(start, stream.end)
                tail = (stream.end - start, part.length)
                cut = Extent(part.length, seen.pieces, (*seen.missing, tail))
                self._stamp(part, stream, start, stream.end)
                self.tensor_bytes += part.length - cut.missing_bytes
                self._settle(part, cut, Placement.CERTAIN, done)
        placement = Placement.MISSING if self.broken is None else Placement.UNCERTAIN
        while self.queue:
            self._settle(self.queue.popleft(), None, placement, done)
        return done

    def _take(self, part: Part, stream: Stream, start: int, stop: int, done: list[PendingMessage]) -> None:
        extent = stream.extent(start, stop)
        self._stamp(part, stream, start - HEADER_BYTES, stop)
        self.tensor_bytes += part.length - extent.missing_bytes
        self._settle(part, extent, Placement.CERTAIN, done)

    @staticmethod
    def _stamp(part: Part, stream: Stream, start: int, stop: int) -> None:
        first, last, capture, _ = stream.stamp(start, stop)
        if capture >= 0:
            message = part.slot.message
            if first < message.first_ns:
                message.first_ns = first
            if last > message.last_ns:
                message.last_ns = last

    @staticmethod
    def _settle(part: Part, extent: Extent | None, placement: Placement, done: list[PendingMessage]) -> None:
        if part.slot.place(part.index, extent, placement):
            done.append(part.slot.message)


class Channel:
    """All lanes of one channel of one pipe, both directions: index 0 from the client, 1 from the server."""

    __slots__ = ("lanes", "name", "split")

    def __init__(self, name: str) -> None:
        self.name = name
        kind = CHANNELS[name]
        self.split = kind.split
        self.lanes: tuple[list[Lane], list[Lane]] = (
            [Lane() for _ in range(kind.lanes)],
            [Lane() for _ in range(kind.lanes)],
        )

    def expect(self, direction: int, message: PendingMessage, index: int, length: int) -> None:
        """The next tensor of a direction: the `index`-th of its message."""
        lanes = self.lanes[direction]
        parts = self.split(length)
        slot = TensorSlot(message, index, len(parts))
        for number, (lane, part) in enumerate(parts):
            lanes[lane].queue.append(Part(slot, number, part))

    def all_lanes(self) -> list[Lane]:
        """Lanes of both directions."""
        return [*self.lanes[0], *self.lanes[1]]


@dataclass(frozen=True, slots=True)
class ChannelKind:
    """How a channel that a capture can show lays tensors on its connections."""

    lanes: int
    split: Callable[[int], list[tuple[int, int]]]
    """Bytes of a tensor → (lane, bytes) of each frame, in order."""
    lane_of_connection: dict[int, int]
    """Index among the pipe's requested connections of this channel → lane."""


def _split_basic(length: int) -> list[tuple[int, int]]:
    return [(0, length)]


def _split_mpt(length: int) -> list[tuple[int, int]]:
    edges = [length * i // MPT_LANES for i in range(MPT_LANES + 1)]
    return [(i, edges[i + 1] - edges[i]) for i in range(MPT_LANES)]


def _split_cuda_basic(length: int) -> list[tuple[int, int]]:
    full, rest = divmod(length, CUDA_CHUNK_BYTES)
    return [(0, CUDA_CHUNK_BYTES)] * full + ([(0, rest)] if rest else [])


def _joined(parts: list[Extent | None]) -> Extent | None:
    """One extent from the parts of a tensor, all of which are there."""
    if len(parts) == 1:
        return parts[0]
    pieces: list[tuple[int, int, int]] = []
    missing: list[tuple[int, int]] = []
    length = 0
    for part in parts:
        assert part is not None
        pieces += part.pieces
        missing += [(a + length, b + length) for a, b in part.missing]
        length += part.length
    return Extent(length, tuple(pieces), tuple(missing))


MPT = "mpt_uv"
"""Its one requested connection only tells the addresses of its lanes, which are connections of their own."""

CHANNELS: dict[str, ChannelKind] = {
    "basic": ChannelKind(1, _split_basic, {0: 0}),
    MPT: ChannelKind(MPT_LANES, _split_mpt, {}),
    "cuda_basic": ChannelKind(1, _split_cuda_basic, {0: 0}),
}

INVISIBLE: dict[str, str] = {
    "cma": "tensor bytes are read from the other process's memory (cma, process_vm_readv)",
    "shm": "tensor bytes are moved through shared memory",
    "xth": "tensor bytes are copied between threads of one process (xth)",
    "mpt_shm": "tensor bytes are moved through shared memory (mpt_shm)",
    "cuda_ipc": "tensor bytes are copied between GPUs of one host (cuda_ipc)",
    "cuda_xth": "tensor bytes are copied inside one process (cuda_xth)",
    "cuda_gdr": "tensor bytes are moved by RDMA from GPU memory (cuda_gdr)",
    "mpt_ibv": "tensor bytes are moved by RDMA (mpt_ibv)",
}

"""Which connection carries which tensor bytes: one entry per channel of TensorPipe.

In: the tensors of each direction's messages in order (`expect`), and the streams of the channel's connections
as they turn up (`attach`). Out: each tensor's place in the capture, in its `TpTensor`. Strict order is
the only rule: a channel uses each of its lanes in the order of messages, then of tensors; time tells nothing
under load.

Mirrors `tensorpipe/channel/{basic,mpt,cuda_basic}/channel_impl.cc`. Channels that move bytes outside the
network are named in `INVISIBLE`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from rpcinspect.wire.frame import HEADER, HEADER_BYTES, FrameCursor
from rpcinspect.wire.records import Placement, TpMessage, TpTensor
from rpcinspect.wire.stream import Extent, Stream

MPT_LANES = 16
CUDA_CHUNK_BYTES = 1 << 20
MAX_QUEUED_FRAMES = 1 << 20
"""How many frames one lane waits for before a tensor that needs several is not taken apart any more."""


class TensorParts:
    """Collects the parts of a tensor that travels on several lanes, or in several frames of one."""

    __slots__ = ("left", "lost", "parts")

    def __init__(self, parts: int) -> None:
        self.parts: list[Extent | None] = [None] * parts
        self.left = parts
        self.lost: Placement | None = None

    def place(self, tensor: TpTensor, part: int, extent: Extent | None, placement: Placement) -> bool:
        """Takes one part; True if the tensor's place is settled now."""
        self.parts[part] = extent
        if placement is not Placement.CERTAIN and self.lost is not Placement.UNCERTAIN:
            self.lost = placement
        self.left -= 1
        if self.left:
            return False
        if self.lost is None:
            tensor.extent = _joined(self.parts)
            tensor.placement = Placement.CERTAIN
        else:
            tensor.placement = self.lost
        return True


Frame: TypeAlias = tuple[TpMessage, TpTensor, int, TensorParts | None, int]
"""What one frame on a lane will be: (message, tensor, bytes, its parts or None if it is the only one, which
part).
"""


class Lane:
    """One direction of one connection of a channel."""

    __slots__ = ("broken", "cursor", "frame_bytes", "queue", "sure", "tensor_bytes")

    def __init__(self) -> None:
        self.cursor: FrameCursor | None = None
        self.queue: deque[Frame] = deque()
        self.broken: str | None = None
        """Why the place of everything is not certain, but for the next `sure` frames."""
        self.sure = 0
        self.frame_bytes = 0
        self.tensor_bytes = 0

    def attach(self, stream: Stream, position: int) -> None:
        """The stream that carries this lane, from behind its hello."""
        self.cursor = FrameCursor(stream, position)

    def doubt(self, reason: str, sure: int = 0) -> None:
        """The order of tensors is known of so many frames of the queue, and not of those behind them."""
        if self.broken is None or sure < self.sure:
            self.broken, self.sure = reason, sure

    def advance(self) -> list[TpMessage]:
        """Gives frames to the tensors that wait for them; returns the messages that are complete now."""
        done: list[TpMessage] = []
        cursor, queue = self.cursor, self.queue
        if cursor is None or not queue:
            return done
        stream = cursor.stream
        while queue:
            frame = queue[0]
            if self.broken is not None and not self.sure:
                queue.popleft()
                _settle(frame, None, Placement.UNCERTAIN, done)
                continue
            position, end = cursor.position, stream.end
            length = frame[2]
            if end is None or end - position < HEADER_BYTES:
                break
            start = position + HEADER_BYTES
            if not stream.holes or not stream.missing(position, start):
                # A length that was not captured is the one that the descriptor gives.
                buffer, at = cursor.buffer(position, HEADER_BYTES)
                announced = HEADER.unpack_from(buffer, at)[0]
                if announced != length:
                    self.doubt(
                        f"a tensor of {length:,} bytes was due, a frame of {announced:,} bytes is there"
                    )
                    continue
            stop = start + length
            if end < stop:
                break
            queue.popleft()
            if self.sure:
                self.sure -= 1
            cursor.position = stop
            extent, first, last = stream.place(start, stop)
            self.frame_bytes += HEADER_BYTES
            self.tensor_bytes += length - extent.missing_bytes if extent.missing else length
            message = frame[0]
            if extent.pieces:
                if first < message.first_ns:
                    message.first_ns = first
                if last > message.last_ns:
                    message.last_ns = last
            _settle(frame, extent, Placement.CERTAIN, done)
        cursor.release()
        return done

    def finish(self) -> list[TpMessage]:
        """Settles what still waits: a tensor that the end of the capture cut keeps what is there of it."""
        done = self.advance()
        cursor = self.cursor
        if self.queue and cursor is not None and (self.broken is None or self.sure):
            frame, stream = self.queue[0], cursor.stream
            length, start = frame[2], cursor.position + HEADER_BYTES
            if stream.end is not None and start < stream.end and cursor.length(cursor.position) == length:
                self.queue.popleft()
                self.sure = max(0, self.sure - 1)
                seen, first, last = stream.place(start, stream.end)
                tail = (stream.end - start, length)
                cut = Extent(length, seen.pieces, (*seen.missing, tail))
                message = frame[0]
                if seen.pieces:
                    message.first_ns = min(message.first_ns, first)
                    message.last_ns = max(message.last_ns, last)
                self.tensor_bytes += length - cut.missing_bytes
                _settle(frame, cut, Placement.CERTAIN, done)
        while self.queue:
            placement = Placement.MISSING if self.broken is None or self.sure else Placement.UNCERTAIN
            self.sure = max(0, self.sure - 1)
            _settle(self.queue.popleft(), None, placement, done)
        return done


def _settle(frame: Frame, extent: Extent | None, placement: Placement, done: list[TpMessage]) -> None:
    """Gives a tensor its place, or what is known of it; a message that waits for no more is done."""
    message, tensor, _, parts, number = frame
    if parts is None:
        tensor.extent = extent
        tensor.placement = placement
    elif not parts.place(tensor, number, extent, placement):
        return
    message.waiting -= 1
    if not message.waiting:
        done.append(message)


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

    def expect(self, direction: int, message: TpMessage, tensor: TpTensor) -> None:
        """The next tensor of a direction; it belongs to that message, which waits for it."""
        lanes = self.lanes[direction]
        length = tensor.descriptor.length
        if length // CUDA_CHUNK_BYTES + len(lanes[0].queue) > MAX_QUEUED_FRAMES and len(lanes) == 1:
            frames = [(0, length)]  # absurd: no such frame will come, and that is what will be said
        else:
            frames = self.split(length)
        message.waiting += 1
        if len(frames) == 1:
            lanes[frames[0][0]].queue.append((message, tensor, length, None, 0))
            return
        parts = TensorParts(len(frames))
        for number, (lane, size) in enumerate(frames):
            lanes[lane].queue.append((message, tensor, size, parts, number))

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

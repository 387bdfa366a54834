"""Which connection carries which tensor bytes, for one channel of a pipe.

In: the tensors of each direction's messages in order (`expect`), and the streams of the channel's connections
as they turn up (`attach`). Out: each tensor's place in the capture, in its `TpTensor`. Strict order is
the only rule: a channel uses each of its lanes in the order of messages, then of tensors; time tells nothing
under load. Mirrors `tensorpipe/channel/{basic,mpt,cuda_basic}/channel_impl.cc`.
"""

from __future__ import annotations

from collections import deque
from itertools import islice

import numpy as np
from msgspec import Struct

from rpcinspect.tcp.ranges import Extent
from rpcinspect.tcp.stream import Stream
from rpcinspect.tensorpipe.align import Places, align
from rpcinspect.tensorpipe.channel_kinds import CHANNELS, CUDA_CHUNK_BYTES, split_basic
from rpcinspect.tensorpipe.frame import HEADER, HEADER_BYTES, FrameCursor
from rpcinspect.tensorpipe.records import Placement, TpMessage, TpTensor

MAX_QUEUED_FRAMES = 1 << 20
"""How many frames one lane waits for before a tensor that needs several is not taken apart any more."""

MANY = 16
"""Frames that are looked for all at once by numpy; fewer are faster one by one."""
AT_ONCE = 4096
ONE_BY_ONE = 64
"""Frames that are taken one by one where a look for many has found few."""


class TensorParts:
    """Collects the parts of a tensor that travels on several lanes, or in several frames of one."""

    __slots__ = ("left", "lost", "parts")

    def __init__(self, parts: int) -> None:
        self.parts: list[Extent | None] = [None] * parts
        self.left = parts
        self.lost: Placement | None = None

    def place(self, tensor: TpTensor, part: int, extent: Extent | None, placement: Placement) -> bool:
        """Sets the place of one part; returns True once all parts of the tensor have one."""
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


class LaneFrame(Struct, eq=False, gc=False):
    """What the next frame on a lane belongs to."""

    message: TpMessage | None
    """None: of a message that was lost, but whose lengths are known."""
    tensor: TpTensor | None
    length: int
    parts: TensorParts | None = None
    """None: the frame is the whole tensor."""
    part: int = 0


class DueFrame(Struct, frozen=True):
    """A frame that must be on a lane."""

    length: int
    message: TpMessage | None
    """None: of a message that was lost."""


class Lane:
    """A direction of one connection of a channel.

    While nothing was lost, frames are given to tensors as they come. Behind a loss, or if the start of the
    stream was not captured, everything waits until the end, and then is aligned.
    """

    __slots__ = (
        "_contradiction",
        "_end",
        "_groups",
        "_patient",
        "_start_known",
        "_unsent",
        "cursor",
        "frame_bytes",
        "queue",
        "tensor_bytes",
    )

    def __init__(self, patient: bool = True) -> None:
        """`patient`: what can be placed only at the end waits for that, else its place stays uncertain."""
        self._patient = patient
        self.cursor: FrameCursor | None = None
        self.queue: deque[LaneFrame] = deque()
        """What is due before the first loss."""
        self._groups: list[list[LaneFrame]] = []
        """What is due behind each loss."""
        self._start_known = True
        self._end: int | None = None
        self._unsent = 0
        self._contradiction: str | None = None
        self.frame_bytes = 0
        self.tensor_bytes = 0

    def attach(self, stream: Stream, position: int | None) -> None:
        """The stream that carries this lane, from behind its hello; None: where frames begin is not known."""
        self._start_known = position is not None
        self.cursor = FrameCursor(stream, position if position is not None else stream.origin or 0)

    def expect(self, frame: LaneFrame) -> None:
        """The next frame."""
        if self._groups:
            self._groups[-1].append(frame)
        else:
            self.queue.append(frame)

    def lose(self) -> None:
        """Messages were lost here, with an unknown number of frames."""
        if not self._groups or self._groups[-1] or not self.queue:
            self._groups.append([])

    def due(self) -> list[DueFrame]:
        """What is due since the last loss."""
        frames = self._groups[-1] if self._groups else self.queue
        return [DueFrame(f.length, f.message) for f in frames]

    def end_at(self, position: int, unsent: int) -> None:
        """The frames that are due end there, but for the last ones, which were never sent."""
        self._end = position
        self._unsent = unsent

    @property
    def waiting(self) -> bool:
        """Whether anything is due."""
        return bool(self.queue) or bool(self._groups)

    def advance(self) -> list[TpMessage]:
        """Gives frames to the tensors that wait for them; returns the messages that are complete now."""
        done: list[TpMessage] = []
        cursor, queue = self.cursor, self.queue
        if not self._patient:
            self._give_up(done)
        if cursor is None or not queue or not self._start_known or self._contradiction is not None:
            return done
        one_by_one = 0
        while queue:
            if one_by_one:
                one_by_one -= 1
            elif len(queue) >= MANY and not cursor.stream.holes and self._take_whole(cursor, done) < MANY:
                one_by_one = ONE_BY_ONE
            if not queue or not self._take_one(cursor, done):
                break
        cursor.release()
        return done

    def _take_whole(self, cursor: FrameCursor, done: list[TpMessage]) -> int:
        """Gives frames to tensors as long as each lies inside one segment, as small ones do; how many.

        2 µs for each, where `_take_one` takes 6.
        """
        queue, stream = self.queue, cursor.stream
        end = stream.end
        edges = [cursor.position]
        for frame in islice(queue, AT_ONCE):
            stop = edges[-1] + HEADER_BYTES + frame.length
            if end is None or stop > end or not frame.length:
                break
            edges.append(stop)
        if len(edges) <= MANY:
            return 0
        heads = np.array(edges[:-1], dtype=np.int64)
        starts, stops = heads + HEADER_BYTES, np.array(edges[1:], dtype=np.int64)
        capture, offsets, _, _ = stream.whole(heads, starts)
        lengths = stream.numbers(capture, offsets)
        wrong = np.flatnonzero(lengths != (stops - starts)[: len(lengths)].astype(np.uint64))
        count = int(wrong[0]) if len(wrong) else len(lengths)
        if not count:
            return 0
        capture, offsets, times, packets = stream.whole(starts[:count], stops[:count])
        placed = 0
        for offset, time_ns, packet in zip(offsets.tolist(), times.tolist(), packets.tolist(), strict=True):
            frame = queue.popleft()
            message = frame.message
            if message is None:
                continue
            length = frame.length
            placed += 1
            self.tensor_bytes += length
            if time_ns < message.first_ns:
                message.first_ns = time_ns
            if time_ns > message.last_ns:
                message.last_ns = time_ns
            if message.capture == capture:
                if packet > message.last_packet:
                    message.last_packet = packet
                if packet < message.first_packet:
                    message.first_packet = packet
            _settle(frame, Extent(length, ((capture, offset, length),)), Placement.CERTAIN, done)
        self.frame_bytes += placed * HEADER_BYTES
        cursor.position = edges[len(offsets)]
        return len(offsets)

    def _take_one(self, cursor: FrameCursor, done: list[TpMessage]) -> bool:
        """Gives the next frame to its tensor, wherever it lies; False: not yet, or it is another one."""
        stream, frame = cursor.stream, self.queue[0]
        position, end = cursor.position, stream.end
        length = frame.length
        if end is None or end - position < HEADER_BYTES:
            return False
        start = position + HEADER_BYTES
        if not stream.holes or not stream.missing(position, start):
            # A length that was not captured is the one that the descriptor gives.
            buffer, at = cursor.buffer(position, HEADER_BYTES)
            announced = HEADER.unpack_from(buffer, at)[0]
            if announced != length:
                self._contradiction = (
                    f"a tensor of {length:,} bytes was due, a frame of {announced:,} bytes is there"
                )
                return False
        stop = start + length
        if end < stop:
            return False
        self.queue.popleft()
        cursor.position = stop
        self._place(frame, stream, start, stop, done)
        return True

    def _give_up(self, done: list[TpMessage]) -> None:
        """Settles what only the end could place."""
        frames = [frame for group in self._groups for frame in group]
        for group in self._groups:
            group.clear()
        if not self._start_known or self._contradiction is not None:
            frames = [*self.queue, *frames]
            self.queue.clear()
        for frame in frames:
            _settle(frame, None, Placement.UNCERTAIN, done)

    def finish(self, complete: bool, elsewhere: Placement = Placement.MISSING) -> list[TpMessage]:
        """Settles what still waits.

        `complete`: no message of this direction was lost at its end; `elsewhere`: what tensors are if the
        lane's connection is not known.
        """
        done = self.advance()
        groups = [[*self.queue], *self._groups]
        self.queue.clear()
        self._groups.clear()
        cursor = self.cursor
        places: Places = [[None] * len(group) for group in groups]
        if cursor is not None and any(groups) and self._contradiction is None:
            stream = cursor.stream
            start = cursor.position if self._start_known else None
            end = self._end
            if end is None and complete and ended_well(stream):
                end = stream.fin
            if self._unsent:
                unsent = groups[-1][-self._unsent :]
                del groups[-1][-self._unsent :]
                for frame in unsent:
                    _settle(frame, None, Placement.MISSING, done)
            places = align(stream, start, end, [[frame.length for frame in group] for group in groups])
        for group, positions in zip(groups, places, strict=True):
            for frame, position in zip(group, positions, strict=True):
                if cursor is None or position is None:
                    _settle(frame, None, elsewhere if cursor is None else Placement.UNCERTAIN, done)
                else:
                    start = position + HEADER_BYTES
                    self._place(frame, cursor.stream, start, start + frame.length, done)
        return done

    @property
    def doubts(self) -> str | None:
        """Why tensors have no certain place although the lane is there."""
        return self._contradiction

    def _place(self, frame: LaneFrame, stream: Stream, start: int, stop: int, done: list[TpMessage]) -> None:
        """Gives a frame its bytes, as far as they were captured."""
        message = frame.message
        if message is None:
            return
        end, origin = stream.end, stream.origin
        extent, (first, last, _, _, lowest, highest) = stream.place(start, stop, message.capture)
        if end is not None and origin is not None and origin <= start - HEADER_BYTES and start <= end:
            self.frame_bytes += HEADER_BYTES
            if stream.holes:
                self.frame_bytes -= stream.missing(start - HEADER_BYTES, start)
        self.tensor_bytes += frame.length - extent.missing_bytes if extent.missing else frame.length
        if extent.pieces:
            if first < message.first_ns:
                message.first_ns = first
            if last > message.last_ns:
                message.last_ns = last
            if highest >= 0:
                message.last_packet = max(message.last_packet, highest)
                message.first_packet = min(message.first_packet, lowest)
        if extent.length and not extent.pieces:
            _settle(frame, None, Placement.MISSING, done)
        else:
            _settle(frame, extent, Placement.CERTAIN, done)


def ended_well(stream: Stream) -> bool:
    """Whether the connection was closed in order, so that what was sent last is the end of the stream."""
    return stream.fin is not None and stream.fin == stream.end and stream.connection.reset_ns is None


def _settle(frame: LaneFrame, extent: Extent | None, placement: Placement, done: list[TpMessage]) -> None:
    """Gives a tensor its place, or its certainty; a message that waits for no more is done."""
    message, tensor, parts = frame.message, frame.tensor, frame.parts
    if message is None or tensor is None:
        return
    if parts is None:
        tensor.extent = extent
        tensor.placement = placement
    elif not parts.place(tensor, frame.part, extent, placement):
        return
    message.waiting -= 1
    if not message.waiting:
        done.append(message)


class Channel:
    """All lanes of one channel of one pipe, both directions: index 0 from the client, 1 from the server."""

    __slots__ = ("lanes", "name", "split")

    def __init__(self, name: str, patient: bool = True) -> None:
        self.name = name
        kind = CHANNELS[name]
        self.split = kind.split
        self.lanes: tuple[list[Lane], list[Lane]] = (
            [Lane(patient) for _ in range(kind.lanes)],
            [Lane(patient) for _ in range(kind.lanes)],
        )

    def expect(self, direction: int, message: TpMessage, tensor: TpTensor) -> None:
        """The next tensor of a direction; it belongs to that message, which waits for it."""
        lanes = self.lanes[direction]
        length = tensor.descriptor.length
        if self.split is split_basic:
            message.waiting += 1
            lanes[0].expect(LaneFrame(message, tensor, length))
            return
        if length // CUDA_CHUNK_BYTES + len(lanes[0].queue) > MAX_QUEUED_FRAMES and len(lanes) == 1:
            frames = [(0, length)]  # absurd: no such frame will come, and that is what will be said
        else:
            frames = self.split(length)
        message.waiting += 1
        if len(frames) == 1:
            lanes[frames[0][0]].expect(LaneFrame(message, tensor, length))
            return
        parts = TensorParts(len(frames))
        for number, (lane, size) in enumerate(frames):
            lanes[lane].expect(LaneFrame(message, tensor, size, parts, number))

    def expect_lost(self, direction: int, length: int) -> None:
        """A tensor of a message that was lost, of which only the length is known."""
        for lane, size in self.split(length):
            self.lanes[direction][lane].expect(LaneFrame(None, None, size))

    def all_lanes(self) -> list[Lane]:
        """Lanes of both directions."""
        return [*self.lanes[0], *self.lanes[1]]


def _joined(parts: list[Extent | None]) -> Extent | None:
    """Joins the parts of a tensor, all of which are known, into one extent."""
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

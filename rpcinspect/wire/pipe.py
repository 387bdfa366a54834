"""The one state table of a pipe: handshake, messages of both directions, and the channels that carry their
tensors.

In: streams of connections whose roles `demux.py` has found out. Out: `TpMessage`s, each when all that will
ever be known of it is there. A pipe is one worker's way of sending requests to another; answers come back on
it.

Mirrors `tensorpipe/core/pipe_impl.cc`.
"""

from __future__ import annotations

from collections.abc import Iterable

from rpcinspect.errors import Problem
from rpcinspect.limits import Limits
from rpcinspect.wire.channel import CHANNELS, INVISIBLE, MPT, Channel, PendingMessage
from rpcinspect.wire.descriptor import DescriptorReader, RawMessage, ShapeTable
from rpcinspect.wire.records import Pipe, Placement, TpMessage, TpTensor, Visibility
from rpcinspect.wire.stream import Extent, Stream
from rpcinspect.wire.tensorpipe import (
    LAYER,
    BrochureAnswer,
    Layout,
    TpDevice,
    TpTensorDescriptor,
)

FROM_CLIENT, FROM_SERVER = 0, 1

EMPTY = Extent(0, ())


class PipeState:
    """Joins the connections of one pipe; `advance` after any of its streams grew."""

    def __init__(self, pipe: Pipe, shapes: ShapeTable, limits: Limits) -> None:
        self.pipe = pipe
        self.problems: list[Problem] = []
        self.handshake_bytes = 0
        self._shapes = shapes
        self._limits = limits
        self._readers: list[DescriptorReader | None] = [None, None]
        self._channels: dict[str, Channel] = {}
        self._channel_for_pair: dict[tuple[TpDevice, TpDevice], str] = {}
        self._implied: str | None = None
        """The channel of a pipe whose handshake was not captured, once its connection has shown it."""
        self._held: list[tuple[int, RawMessage]] = []
        """Messages with tensors that came before the channel was known."""
        self._open: dict[int, PendingMessage] = {}

    # -- what the handshake tells ------------------------------------------------------------------------

    def agree(self, answer: BrochureAnswer, layout: Layout) -> None:
        """Takes the server's answer: transport, channels, and which channel is for which devices."""
        pipe = self.pipe
        pipe.layout = layout
        pipe.transport = answer.transport
        pipe.channels = answer.channel_for_device_pair
        self._channel_for_pair = dict(answer.channel_for_device_pair)
        names = [name for name, _ in answer.channel_registration_ids]
        if layout is Layout.V1_8 and not pipe.channels:
            cpu = TpDevice("cpu", 0)
            pipe.channels = tuple(((cpu, cpu), name) for name in names[:1])
        for name in names:
            self.open_channel(name)
        if answer.transport != "uv":
            pipe.visible = Visibility.HANDSHAKE_ONLY
            pipe.reason = (
                f"messages are moved by the transport {answer.transport}, which a capture of TCP can't hold"
            )
        elif names and all(name in INVISIBLE for name in names):
            pipe.visible = Visibility.NO_TENSORS
            pipe.reason = INVISIBLE[names[0]]

    def open_channel(self, name: str) -> Channel | None:
        """The channel of that name; None for one whose bytes a capture can't hold."""
        if name not in CHANNELS:
            self.pipe.invisible_channels.add(name)
            return None
        return self._channels.setdefault(name, Channel(name))

    def imply_channel(self, name: str) -> Channel | None:
        """The only channel of a pipe without a handshake."""
        self._implied = name
        channel = self.open_channel(name)
        cpu = TpDevice("cpu", 0)
        self.pipe.channels = (((cpu, cpu), name),)
        if channel is None:
            self.pipe.reason = f"{self.pipe.reason}; {INVISIBLE.get(name, name)}"
        return channel

    def attach_connection(
        self, name: str, index: int, streams: tuple[Stream, Stream], starts: tuple[int, int]
    ) -> None:
        """The `index`-th requested connection of a channel; streams and positions from the client, then the
        server.
        """
        channel = self.open_channel(name)
        if channel is None or name == MPT:
            return
        lane = CHANNELS[name].lane_of_connection.get(index)
        if lane is not None:
            self.attach_lane(name, lane, streams, starts)

    def attach_lane(
        self, name: str, lane: int, streams: tuple[Stream, Stream], starts: tuple[int, int]
    ) -> None:
        """A connection that carries one lane of a channel in both directions."""
        channel = self.open_channel(name)
        if channel is not None and lane < len(channel.lanes[0]):
            for direction in (FROM_CLIENT, FROM_SERVER):
                channel.lanes[direction][lane].attach(streams[direction], starts[direction])

    def read_messages(self, direction: int, stream: Stream, position: int, lost: bool = False) -> None:
        """Descriptors of this direction are on that stream from that position on."""
        self._readers[direction] = DescriptorReader(stream, position, self._shapes, self._limits, lost)

    # -- what the streams bring --------------------------------------------------------------------------

    def advance(self) -> list[TpMessage]:
        """Every message that has become complete."""
        done: list[TpMessage] = []
        for direction, reader in enumerate(self._readers):
            if reader is not None:
                self._take(direction, reader.advance(), done)
        if self._held and self._implied is not None:
            self._release_held(done)
        for channel in self._channels.values():
            for lane in channel.all_lanes():
                if lane.queue:
                    done += [self._complete(message) for message in lane.advance()]
        return done

    def finish(self) -> list[TpMessage]:
        """The rest: what was cut comes out with what is there of it."""
        done: list[TpMessage] = []
        for direction, reader in enumerate(self._readers):
            if reader is not None:
                self._take(direction, reader.finish(), done)
        self._release_held(done)
        for channel in self._channels.values():
            for lane in channel.all_lanes():
                done += [self._complete(message) for message in lane.finish()]
                if lane.broken is not None and lane.cursor is not None:
                    where = lane.cursor.stream.location(lane.cursor.position)
                    self.problems.append(Problem(LAYER, f"tensors can't be placed: {lane.broken}", where))
        for reader in self._readers:
            if reader is not None:
                self.problems += reader.problems
        return done

    @property
    def frame_bytes(self) -> int:
        """Bytes of frames that were understood, without the tensors in them."""
        messages = sum(reader.frame_bytes for reader in self._readers if reader is not None)
        lanes = sum(lane.frame_bytes for channel in self._channels.values() for lane in channel.all_lanes())
        return self.handshake_bytes + messages + lanes

    @property
    def tensor_bytes(self) -> int:
        """Tensor bytes that were captured and placed."""
        return sum(lane.tensor_bytes for channel in self._channels.values() for lane in channel.all_lanes())

    def _take(self, direction: int, messages: Iterable[RawMessage], done: list[TpMessage]) -> None:
        for raw in messages:
            if raw.after_loss and self._channels:
                reason = "messages before this point were lost, so the order of tensors is not known"
                for channel in self._channels.values():
                    for lane in channel.lanes[direction]:
                        lane.doubt(reason)
            if raw.shape.descriptor.tensors and self._unknown_channel():
                self._held.append((direction, raw))
            else:
                self._begin(direction, raw, done)

    def _unknown_channel(self) -> bool:
        return self._implied is None and self.pipe.visible is Visibility.NO_HANDSHAKE

    def _release_held(self, done: list[TpMessage]) -> None:
        held, self._held = self._held, []
        for direction, raw in held:
            self._begin(direction, raw, done)

    def _begin(self, direction: int, raw: RawMessage, done: list[TpMessage]) -> None:
        """Makes the message and sends its tensors to their channels."""
        tensors = raw.shape.descriptor.tensors
        if not tensors:
            done.append(self._message(direction, raw, (), raw.first_ns, raw.last_ns))
            return
        pending = PendingMessage((direction, raw), raw.first_ns, raw.last_ns)
        pending.left = 1  # held until every tensor is on its way
        for index, tensor in enumerate(tensors):
            if tensor.length == 0 and raw.shape.layout is not Layout.V1_8:
                pending.tensors.append(TpTensor(tensor, Placement.CERTAIN, EMPTY))
                continue
            pending.tensors.append(TpTensor(tensor, Placement.MISSING, None))
            channel = self._channel_of(direction, tensor)
            if channel is not None:
                pending.left += 1
                channel.expect(direction, pending, index, tensor.length)
            elif tensor.length == 0:
                pending.tensors[-1] = TpTensor(tensor, Placement.CERTAIN, EMPTY)
        pending.left -= 1
        if pending.left == 0:
            done.append(self._complete(pending))

    def _channel_of(self, direction: int, tensor: TpTensorDescriptor) -> Channel | None:
        if self._implied is not None:
            name: str | None = self._implied
        elif tensor.channel is not None:
            name = tensor.channel
        else:
            source, target = tensor.source_device, tensor.target_device or tensor.source_device
            pair = (target, source) if direction == FROM_CLIENT else (source, target)
            name = self._channel_for_pair.get(pair)
        if name is None:
            return None
        channel = self._channels.get(name)
        if channel is None:
            self.pipe.invisible_channels.add(name)
        return channel

    def _complete(self, pending: PendingMessage) -> TpMessage:
        payload = pending.payload
        assert isinstance(payload, tuple)
        direction, raw = payload
        return self._message(direction, raw, tuple(pending.tensors), pending.first_ns, pending.last_ns)

    def _message(
        self, direction: int, raw: RawMessage, tensors: tuple[TpTensor, ...], first_ns: int, last_ns: int
    ) -> TpMessage:
        reader = self._readers[direction]
        assert reader is not None
        stream = reader.cursor.stream
        return TpMessage(
            self.pipe,
            direction == FROM_CLIENT,
            raw.shape.descriptor,
            raw.shape.layout,
            raw.shape.body,
            raw.payloads,
            raw.payload_missing,
            tensors,
            first_ns,
            last_ns,
            raw.capture,
            raw.packet,
            stream.flow,
            stream.offset(raw.position),
            raw.length,
        )

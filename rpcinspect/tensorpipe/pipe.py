"""The one state table of a pipe: handshake, messages of both directions, and the channels that carry their
tensors.

In: streams of connections whose roles `demux.py` has found out. Out: `TpMessage`s, each when all that will
ever be known of it is there. A pipe is one worker's way of sending requests to another; answers come back on
it.

Mirrors `tensorpipe/core/pipe_impl.cc`.
"""

from __future__ import annotations

from collections.abc import Iterable

from rpcinspect.limits import Limits
from rpcinspect.problems import Problem
from rpcinspect.tcp.ranges import Extent
from rpcinspect.tcp.stream import WRAP, Connection, Stream
from rpcinspect.tensorpipe.channel import Channel, DueFrame
from rpcinspect.tensorpipe.channel_kinds import CHANNELS, INVISIBLE, MPT
from rpcinspect.tensorpipe.control_types import (
    BOOTSTRAP_TRANSPORT,
    TRANSPORT_DESCRIPTOR_ID,
    BrochureAnswer,
    ControlLayout,
    TpDevice,
    TpTensorDescriptor,
)
from rpcinspect.tensorpipe.descriptor import DescriptorReader
from rpcinspect.tensorpipe.nop import LAYER
from rpcinspect.tensorpipe.records import Pipe, Placement, TpMessage, TpTensor, Visibility
from rpcinspect.tensorpipe.shape_table import ShapeTable

FROM_CLIENT, FROM_SERVER = 0, 1

EMPTY = Extent(0, ())

BASIC = "basic"
"""The channel that a pipe without a handshake may turn out to have."""
MAX_MEMO = 4096


class PipeState:
    """Joins the connections of a pipe; `advance` after any of the streams grew."""

    def __init__(self, pipe: Pipe, shapes: ShapeTable, limits: Limits, *, patient: bool = True) -> None:
        """`patient`: messages whose tensors can be placed only at the end wait for that."""
        self.pipe = pipe
        self.connection: Connection | None = None
        """That of its descriptors, as far as it is known."""
        self.problems: list[Problem] = []
        self.handshake_bytes = 0
        self._patient = patient
        self._elsewhere = Placement.MISSING
        self._shapes = shapes
        self._limits = limits
        self._readers: list[DescriptorReader | None] = [None, None]
        self._channels: dict[str, Channel] = {}
        self._channel_for_pair: dict[tuple[TpDevice, TpDevice], str] = {}
        self._implied: str | None = None
        """The channel of a pipe that was opened out of sight, once its connection has shown it."""
        self.headless = False
        """The handshake was not captured: which channel there is, and where, only the end can tell."""
        self.awaits_channel = False
        """Messages with tensors are held until the channel has shown itself."""
        self._channel_memo: dict[tuple[int, int], tuple[TpTensorDescriptor, Channel]] = {}
        """(direction, id of a descriptor) → that descriptor and its channel: equal descriptors are one
        object.
        """
        self._held: list[tuple[int, TpMessage]] = []
        """Messages with tensors that came before the channel was known."""

    # -- what the handshake tells ------------------------------------------------------------------------

    def agree(self, answer: BrochureAnswer, layout: ControlLayout) -> None:
        """Takes the server's answer: transport, channels, and which channel is for which devices."""
        pipe = self.pipe
        pipe.layout = layout
        pipe.transport = answer.transport
        pipe.channels = answer.channel_for_device_pair
        self._channel_for_pair = dict(answer.channel_for_device_pair)
        names = [name for name, _ in answer.channel_registration_ids]
        if layout is ControlLayout.V1_8 and not pipe.channels:
            cpu = TpDevice("cpu", 0)
            pipe.channels = tuple(((cpu, cpu), name) for name in names[:1])
        for name in names:
            self.open_channel(name)
        moved = any(key == TRANSPORT_DESCRIPTOR_ID for key, _ in answer.transport_registration_ids)
        if answer.transport != BOOTSTRAP_TRANSPORT and moved:
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
        return self._channels.setdefault(name, Channel(name, self._patient))

    def imply_channel(self, name: str) -> Channel | None:
        """The only channel of a pipe without a handshake."""
        self._implied = name
        self.awaits_channel = False
        channel = self.open_channel(name)
        cpu = TpDevice("cpu", 0)
        self.pipe.channels = (((cpu, cpu), name),)
        if channel is None:
            self.pipe.reason = f"{self.pipe.reason}; {INVISIBLE.get(name, name)}"
        return channel

    def attach_connection(
        self, name: str, index: int, streams: tuple[Stream, Stream], starts: tuple[int | None, int | None]
    ) -> None:
        """The `index`-th requested connection of a channel; streams and positions from the client, then the
        server. Channels but mpt have one, which is their lane.
        """
        if self.open_channel(name) is not None and name != MPT and index == 0:
            self.attach_lane(name, 0, streams, starts)

    def attach_lane(
        self, name: str, lane: int, streams: tuple[Stream, Stream], starts: tuple[int | None, int | None]
    ) -> None:
        """Adds a connection that carries one lane of a channel in both directions."""
        channel = self.open_channel(name)
        if channel is not None and lane < len(channel.lanes[0]):
            for direction in (FROM_CLIENT, FROM_SERVER):
                channel.lanes[direction][lane].attach(streams[direction], starts[direction])

    @property
    def reads(self) -> bool:
        """Whether a message was read."""
        return any(reader is not None and reader.frame_bytes for reader in self._readers)

    def read_messages(self, direction: int, stream: Stream, position: int, lost: bool = False) -> None:
        """Descriptors of this direction are on that stream from that position on."""
        origins = list(self.pipe.origins)
        origins[direction] = (position - stream.offset(position)) % WRAP
        self.pipe.origins = (origins[FROM_CLIENT], origins[FROM_SERVER])
        self._readers[direction] = DescriptorReader(
            self.pipe, direction == FROM_CLIENT, stream, position, self._shapes, self._limits, lost
        )

    # -- what the streams bring --------------------------------------------------------------------------

    def advance(self) -> list[TpMessage]:
        """Every message that has become complete."""
        done: list[TpMessage] = []
        if self._held and not self.awaits_channel:
            self._release_held(done)
        for direction, reader in enumerate(self._readers):
            if reader is not None:
                self._take(direction, reader.advance(), done)
        for channel in self._channels.values():
            for lane in channel.all_lanes():
                if lane.waiting:
                    done += lane.advance()
        return done

    def finish_messages(self) -> list[TpMessage]:
        """The rest of both directions' messages: what was cut comes out with what is there of it."""
        done = self.advance()
        for direction, reader in enumerate(self._readers):
            if reader is not None:
                self._take(direction, reader.finish(), done)
        return done

    def finish(self, elsewhere: Placement = Placement.MISSING) -> list[TpMessage]:
        """Gives tensors the places that only the end of the capture tells; call `finish_messages` before.

        `elsewhere`: what tensors are whose connection is not known.
        """
        done: list[TpMessage] = []
        self._elsewhere = elsewhere
        self._release_held(done)
        for channel in self._channels.values():
            for direction, reader in enumerate(self._readers):
                complete = reader is None or reader.complete
                for lane in channel.lanes[direction]:
                    done += lane.finish(complete, elsewhere)
                    if lane.doubts is not None and lane.cursor is not None:
                        where = lane.cursor.stream.location(lane.cursor.position)
                        self.problems.append(Problem(LAYER, f"tensors can't be placed: {lane.doubts}", where))
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

    def _take(self, direction: int, messages: Iterable[TpMessage], done: list[TpMessage]) -> None:
        hold = self.awaits_channel and (self._patient or not self.headless)
        for message in messages:
            tensors = message.descriptor.tensors
            if hold:
                if tensors or message.after_loss:
                    self._held.append((direction, message))
            else:
                if message.after_loss:
                    self._lose(direction)
                if tensors or not message.identified:
                    self._begin(direction, message, done)
            if message.identified and not tensors:
                done.append(message)

    def _lose(self, direction: int) -> None:
        """Messages of this direction were lost, and nobody knows which tensors they had."""
        for channel in self._channels.values():
            for lane in channel.lanes[direction]:
                lane.lose()

    def _release_held(self, done: list[TpMessage]) -> None:
        """Sends on the tensors of messages that were held back; those without any have gone before."""
        held, self._held = self._held, []
        for direction, message in held:
            if message.after_loss:
                self._lose(direction)
            if message.descriptor.tensors:
                self._begin(direction, message, done)

    def _begin(self, direction: int, message: TpMessage, done: list[TpMessage]) -> None:
        """Sends on a message's tensors; of one that nobody can name, only their lengths count."""
        if message.identified:
            self._send_tensors(direction, message)
            if not message.waiting:
                done.append(message)
            return
        for descriptor in message.descriptor.tensors:
            channel = self._channel_of(direction, descriptor)
            if channel is not None and (descriptor.length or message.layout is ControlLayout.V1_8):
                channel.expect_lost(direction, descriptor.length)

    @property
    def _knows_channels(self) -> bool:
        """Returns whether the channels of tensors are known, invisible ones included."""
        return self._implied is not None or self.pipe.visible is not Visibility.NO_HANDSHAKE

    @property
    def orphaned(self) -> bool:
        """Whether tensors are due on a connection that is not known."""
        if self.awaits_channel:
            return any(message.descriptor.tensors for _, message in self._held)
        channel = self._channels.get(BASIC)
        return channel is not None and any(
            lane.cursor is None and lane.waiting for lane in channel.all_lanes()
        )

    def due(self, direction: int) -> tuple[list[DueFrame], bool]:
        """The tensors due since the last loss of messages, and whether they are the last of a direction
        that was closed in order. None where messages may have been lost behind all that were read.
        """
        reader = self._readers[direction]
        if reader is None:
            return [], True
        if not reader.ends_known:
            return [], False
        if not self.awaits_channel:
            return self._channels[BASIC].lanes[direction][0].due(), reader.complete
        due: list[DueFrame] = []
        for its, message in self._held:
            if its == direction:
                if message.after_loss:
                    due.clear()
                due += [DueFrame(t.length, message) for t in message.descriptor.tensors if t.length]
        return due, reader.complete

    def end_lane(self, name: str, direction: int, unsent: int) -> None:
        """What is due on a lane ends with its stream, but for the last tensors, which were never sent, and
        unless messages may have been lost behind all that were read.
        """
        reader = self._readers[direction]
        if reader is not None and not reader.ends_known:
            return
        lane = self._channels[name].lanes[direction][0]
        if lane.cursor is not None and lane.cursor.stream.end is not None:
            lane.end_at(lane.cursor.stream.end, unsent)

    def _send_tensors(self, direction: int, message: TpMessage) -> None:
        """Puts each tensor of a message into the queue of its channel."""
        message.tensors = tensors = []
        empty_frames = message.layout is ControlLayout.V1_8
        unplaced = Placement.MISSING if self._knows_channels else self._elsewhere
        for descriptor in message.descriptor.tensors:
            channel = self._channel_of(direction, descriptor)
            if descriptor.length == 0 and (channel is None or not empty_frames):
                tensors.append(TpTensor(descriptor, Placement.CERTAIN, EMPTY))
                continue
            tensor = TpTensor(descriptor, unplaced, None)
            tensors.append(tensor)
            if channel is not None:
                channel.expect(direction, message, tensor)

    def _channel_of(self, direction: int, tensor: TpTensorDescriptor) -> Channel | None:
        known = self._channel_memo.get((direction, id(tensor)))
        if known is not None and known[0] is tensor:
            return known[1]
        name: str | None
        if self._implied is not None:
            name = self._implied
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
            return None
        if len(self._channel_memo) >= MAX_MEMO:
            self._channel_memo.clear()
        self._channel_memo[direction, id(tensor)] = (tensor, channel)
        return channel

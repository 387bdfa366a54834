"""One pipe and its messages → the TCP connections that carry them, with a complete handshake.

In: a `Pipe` and records with their indexes. Out: `Talk`s: the connection of descriptors, that of their
replies, and one of the channel `basic`. Payloads, descriptors and tensors are the captured bytes; what was
not captured is a gap in its connection. Of a message the first and the last byte have their captured times,
of its descriptor and payloads too; all between has one of those.

Mirrors `tensorpipe/core/pipe_impl.cc` and `tensorpipe/channel/basic/channel_impl.cc`.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field

from rpcinspect.export.pcap.channels import BASIC, CPU, Channels, channels_of
from rpcinspect.export.pcap.flows import CLIENT, SERVER, Ports, Talk
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.tcp.segment import Endpoint
from rpcinspect.tensorpipe.control import frame, write_brochure, write_brochure_answer, write_first_frame
from rpcinspect.tensorpipe.control_types import (
    TRANSPORT_DESCRIPTOR_REPLY_ID,
    Brochure,
    BrochureAnswer,
    ControlLayout,
    DeviceDescriptors,
    RequestedConnection,
    SpontaneousConnection,
    TpDevice,
)
from rpcinspect.tensorpipe.records import Pipe, TpMessage, TpTensor

UV, UV_DOMAIN = "uv", "uv:*"
DOMAIN = "any"
"""What `basic` says of every device: it needs nothing in common."""


class Numbered(Struct, frozen=True):
    """A message with its index."""

    index: int
    record: RpcRecord


def pipe_talks(
    pipe: Pipe, name: str, messages: Sequence[Numbered], registration_id: int, ports: Ports
) -> list[Talk]:
    """The connections of a pipe; `name`: its client's, empty if that is not known; `registration_id`: this
    one and the next are free. `messages` are those of the pipe in the order of their indexes; at least one.
    """
    begin = min(pipe.first_ns or messages[0].record.tp.first_ns, *[m.record.tp.first_ns for m in messages])
    listener = pipe.listener or pipe.server
    channels = channels_of(pipe, [m.record.tp for m in messages])
    talks = [Talk(pipe.client, listener, begin)]
    reply, channel = registration_id, registration_id + 1
    _greet(talks[0], name, listener, channels, reply, channel)
    if channels.layout is not ControlLayout.V1_8:
        talks.append(_requested(reply, listener, begin, ports.take(pipe.client.host)))
    lane = None
    if BASIC in channels.names:
        lane = _requested(channel, listener, begin, ports.take(pipe.client.host))
        talks.append(lane)
    for side in (CLIENT, SERVER):
        its = [m for m in messages if m.record.tp.from_client == (side == CLIENT)]
        writer = _Direction(side, channels, talks[0], lane)
        for message in sorted(its, key=_order):
            writer.write(message.index, message.record.tp)
    return talks


def _order(message: Numbered) -> tuple[int, int]:
    """That of the stream; what a log tells was in none."""
    tp = message.record.tp
    return 0 if tp.pipe.logged else tp.offset, message.index


def _greet(talk: Talk, name: str, listener: Endpoint, channels: Channels, reply: int, channel: int) -> None:
    """Hello, brochure and answer."""
    layout = channels.layout
    devices = _devices(channels)
    offered = tuple((each, devices) for each in channels.names)
    answer = BrochureAnswer(
        transport=UV,
        address=str(listener),
        transport_registration_ids=()
        if layout is ControlLayout.V1_8
        else ((TRANSPORT_DESCRIPTOR_REPLY_ID, reply),),
        transport_domain_descriptor=UV_DOMAIN,
        channel_registration_ids=tuple(
            (each, (channel,) if each == BASIC else ()) for each in channels.names
        ),
        channel_device_descriptors=offered,
        channel_for_device_pair=() if layout is ControlLayout.V1_8 else tuple(channels.for_pair.items()),
    )
    talk.greet(CLIENT, frame(write_first_frame(SpontaneousConnection(name))))
    talk.greet(CLIENT, frame(write_brochure(Brochure(((UV, UV_DOMAIN),), offered), layout)))
    talk.greet(SERVER, frame(write_brochure_answer(answer, layout)))


def _devices(channels: Channels) -> DeviceDescriptors:
    if channels.layout is ControlLayout.V1_8:
        return ((CPU, DOMAIN),)
    found: dict[TpDevice, None] = {}
    for pair in channels.for_pair:
        found.update(dict.fromkeys(pair))
    return tuple((device, DOMAIN) for device in found)


def _requested(registration_id: int, listener: Endpoint, begin: int, client: Endpoint) -> Talk:
    """A connection that the listening side has asked for."""
    talk = Talk(client, listener, begin)
    talk.greet(CLIENT, frame(write_first_frame(RequestedConnection(registration_id))))
    return talk


class _Direction(Struct, eq=False):
    """The messages of one side of a pipe, one after the other."""

    side: int
    channels: Channels
    talk: Talk
    lane: Talk | None
    lane_ns: int = field(default=0)
    """When the last tensor ended."""

    def write(self, index: int, tp: TpMessage) -> None:
        first, last = tp.payloads_ns or (tp.first_ns, tp.last_ns)
        self._payloads(index, tp, first, last)
        tensors = [tensor for tensor in tp.tensors if self.channels.carries(tp, tensor)]
        if self.lane is None or not tensors:
            return
        # Bytes of tensors must have been the first or the last of the message where the others were not.
        begin = tp.first_ns if tp.first_ns < first else min(max(first, self.lane_ns), tp.last_ns)
        end = tp.last_ns if tp.last_ns > last else begin
        self.lane_ns = max(begin, end, self.lane_ns)
        self._tensors(index, self.lane, tensors, begin, max(begin, end))

    def _payloads(self, index: int, tp: TpMessage, first_ns: int, last_ns: int) -> None:
        said = frame(self.channels.descriptor_body(tp))
        if first_ns != last_ns:
            self.talk.say(first_ns, index, self.side, said)
            said = b""
        for number, announced in enumerate(tp.descriptor.payloads):
            payload = tp.payloads[number] if number < len(tp.payloads) else b""
            said += announced.length.to_bytes(8, "little") + payload
            if len(payload) < announced.length:  # what comes behind the first lost byte was not kept
                self.talk.say(last_ns, index, self.side, said)
                self.talk.skip(self.side, announced.length - len(payload))
                said = b""
        self.talk.say(last_ns, index, self.side, said)

    def _tensors(
        self, index: int, lane: Talk, tensors: Sequence[TpTensor], begin_ns: int, end_ns: int
    ) -> None:
        cut = _last_captured(tensors) if begin_ns != end_ns else None
        time_ns = begin_ns
        for number, tensor in enumerate(tensors):
            length, extent = tensor.descriptor.length, tensor.extent
            lane.say(time_ns, index, self.side, length.to_bytes(8, "little"))
            if extent is None:
                lane.skip(self.side, length)
                continue
            start = 0
            if cut is not None and cut[0] == number:
                lane.say(time_ns, index, self.side, extent.part(0, cut[1]))
                start, time_ns = cut[1], end_ns
            lane.say(time_ns, index, self.side, extent.part(start, extent.length))


def _last_captured(tensors: Sequence[TpTensor]) -> tuple[int, int] | None:
    """(tensor, byte) of the last byte that was captured."""
    for number in range(len(tensors) - 1, -1, -1):
        extent = tensors[number].extent
        if extent is not None and extent.missing_bytes < extent.length:
            return number, extent.starts[-1] + extent.pieces[-1][2] - 1
    return None

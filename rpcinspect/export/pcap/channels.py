"""Which channel each tensor of a pipe is written on.

In: a pipe and its messages. Out: `Channels`: what the handshake has to say, and for each tensor whether it
has a frame on the connection of `basic`. All that a capture can hold is written with `basic`, whichever
channel it came on; channels that move bytes outside the network keep their names, and their tensors stay
missing.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from rpcinspect.tensorpipe.channel_kinds import CHANNELS
from rpcinspect.tensorpipe.control import write_descriptor
from rpcinspect.tensorpipe.control_types import ControlLayout, TpDescriptor, TpDevice, TpTensorDescriptor
from rpcinspect.tensorpipe.records import Pipe, TpMessage, TpTensor

BASIC = "basic"
CPU = TpDevice("cpu", 0)
DevicePair = tuple[TpDevice, TpDevice]


class Channels(Struct, frozen=True):
    """The channels of one pipe."""

    layout: ControlLayout
    for_pair: dict[DevicePair, str]
    """(server's device, client's device) → channel; what has no channel is not in it."""
    names: tuple[str, ...]

    def carries(self, message: TpMessage, tensor: TpTensor) -> bool:
        """Returns whether a tensor has a frame of its own on the connection of `basic`."""
        descriptor = tensor.descriptor
        if self.layout is ControlLayout.V1_8:
            return descriptor.channel in CHANNELS  # empty tensors have an empty frame there
        return bool(descriptor.length) and self.for_pair.get(pair_of(message, descriptor)) == BASIC

    def descriptor_body(self, message: TpMessage) -> bytes:
        """The descriptor as captured, but for a channel that 1.8 names in it."""
        tensors = message.descriptor.tensors
        if all(tensor.channel in (None, BASIC) or tensor.channel not in CHANNELS for tensor in tensors):
            return message.descriptor_body
        renamed = [replace(t, channel=BASIC) if t.channel in CHANNELS else t for t in tensors]
        whole = message.descriptor
        return write_descriptor(TpDescriptor(whole.metadata, whole.payloads, tuple(renamed)), message.layout)


def channels_of(pipe: Pipe, messages: Iterable[TpMessage]) -> Channels:
    """The channels to be named in the handshake of a pipe."""
    for_pair = {pair: BASIC if name in CHANNELS else name for pair, name in pipe.channels}
    named = list(for_pair.values())
    for message in messages:
        for tensor in message.tensors:
            if tensor.descriptor.channel is not None:
                named.append(BASIC if tensor.descriptor.channel in CHANNELS else tensor.descriptor.channel)
            elif tensor.descriptor.length and tensor.extent is not None:
                for_pair[pair_of(message, tensor.descriptor)] = BASIC
    if pipe.layout is not ControlLayout.V1_8:
        named = list(for_pair.values())
    if not named:
        for_pair, named = {(CPU, CPU): BASIC}, [BASIC]
    return Channels(pipe.layout, for_pair, tuple(dict.fromkeys(named)))


def pair_of(message: TpMessage, tensor: TpTensorDescriptor) -> DevicePair:
    """(server's device, client's device) of a tensor on its way."""
    source, target = tensor.source_device, tensor.target_device or tensor.source_device
    return (target, source) if message.from_client else (source, target)

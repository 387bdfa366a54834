"""TensorPipe's control structures as plain values; `control.py` reads and writes them.

Mirrors `tensorpipe/core/nop_types.h`, `tensorpipe/core/message.h`, `tensorpipe/channel/mpt/nop_types.h` and
the `Descriptor` of `tensorpipe/channel/cma/channel_impl.cc`. Fields have upstream's names in snake case;
where TensorPipe and PyTorch share a word, TensorPipe's gets `Tp`.

Maps are tuples of pairs, in the order of the wire: upstream's are unordered, so it can't be made up again.
Strings that name something are `str`, decoded as UTF-8 with `surrogateescape` so that any bytes survive;
strings that carry data are `bytes`. What the 1.8 layout lacks or has in addition is said at each field.
"""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

from msgspec import Struct

UNKNOWN_INDEX = -1
"""Index of a device that the 1.8 layout names by its type only."""

BOOTSTRAP_TRANSPORT = "uv"
"""The transport of every handshake that TCP can show."""

TRANSPORT_DESCRIPTOR_ID = 0
TRANSPORT_DESCRIPTOR_REPLY_ID = 1
"""Keys of `BrochureAnswer.transport_registration_ids`: `ConnectionId` of `tensorpipe/core/pipe_impl.h`."""


class ControlLayout(Enum):
    """The two sets of structures; the first frame, mpt's hellos and cma's descriptor are equal in both."""

    V1_8 = "1.8"
    """PyTorch 1.8: every object lies in one Variant, channels are chosen per tensor."""
    V1_9 = "1.9"
    """PyTorch 1.9 and later."""


class TpDevice(Struct, frozen=True):
    type: str
    """`cpu` or `cuda`."""
    index: int

    def __str__(self) -> str:
        """Returns the device as torch writes it: `cpu`, `cuda:1`."""
        return self.type if self.type == "cpu" or self.index < 0 else f"{self.type}:{self.index}"


class SpontaneousConnection(Struct, frozen=True):
    """First frame of a connection that opens a pipe."""

    context_name: str
    """Name of the connecting side, in torch the worker's name."""


class RequestedConnection(Struct, frozen=True):
    """First frame of a connection that the listening side asked for."""

    registration_id: int


FirstFrame: TypeAlias = SpontaneousConnection | RequestedConnection
DeviceDescriptors: TypeAlias = tuple[tuple[TpDevice, str], ...]
"""Device -> what a channel says about it."""


class Brochure(Struct, frozen=True):
    """Second frame of the connecting side: the transports and channels that it offers."""

    transport_domain_descriptors: tuple[tuple[str, str], ...]
    channel_device_descriptors: tuple[tuple[str, DeviceDescriptors], ...]


class BrochureAnswer(Struct, frozen=True, kw_only=True):
    """First frame of the listening side: the chosen transport and channels, and ids of the connections to
    open."""

    transport: str
    address: str
    transport_registration_ids: tuple[tuple[int, int], ...]
    """`TRANSPORT_DESCRIPTOR_ID` is there only if messages move to another transport than this frame's."""
    transport_domain_descriptor: str
    channel_registration_ids: tuple[tuple[str, tuple[int, ...]], ...]
    channel_device_descriptors: tuple[tuple[str, DeviceDescriptors], ...]
    channel_for_device_pair: tuple[tuple[tuple[TpDevice, TpDevice], str], ...]
    """(listening side's device, connecting side's device) -> channel; empty in 1.8, where tensors say it."""
    unused_registration_id: int | None = None
    """1.8 always writes a transport registration id; here it is when it stands for nothing."""


class TpPayload(Struct, frozen=True):
    length: int
    """Bytes."""
    metadata: bytes = b""


class TpTensorDescriptor(Struct, frozen=True, kw_only=True):
    length: int
    """Bytes."""
    source_device: TpDevice
    target_device: TpDevice | None
    """None: left to the receiver (never written by torch >= 1.9, not part of 1.8's layout)."""
    metadata: bytes = b""
    channel: str | None = None
    """Only in 1.8's layout."""
    channel_descriptor: bytes | None = None
    """Only in 1.8's layout: what later layouts send on the channel's connection, e.g. a `CmaDescriptor`."""


class TpDescriptor(Struct, frozen=True):
    """Descriptor that precedes each message: the lengths of the message's parts."""

    metadata: bytes
    payloads: tuple[TpPayload, ...]
    tensors: tuple[TpTensorDescriptor, ...]


class LaneAdvertisement(Struct, frozen=True):
    address: str
    registration_id: int


class MptServerHello(Struct, frozen=True):
    """First frame on mpt's control connection, from the listening side."""

    lane_advertisements: tuple[LaneAdvertisement, ...]


class MptClientHello(Struct, frozen=True):
    """First frame on a lane. The same bytes as a RequestedConnection: only the listener tells them apart."""

    registration_id: int


MptHello: TypeAlias = MptServerHello | MptClientHello


class CmaDescriptor(Struct, frozen=True):
    """Where in which process a tensor's bytes can be read; they are not on the network."""

    pid: int
    ptr: int

"""What the wire stage hands on: pipes, TensorPipe messages and where their tensors' bytes lie.

Plain records; the machinery that makes them is in `pipe.py` and `channel.py`. Records that exist once per
message are out of the garbage collector's sight: nothing that they hold leads back to them, and looking
through them was a tenth of all time before the views.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from msgspec import Struct, field

from rpcinspect.tcp.ranges import Extent
from rpcinspect.tcp.segment import Endpoint, Flow
from rpcinspect.tensorpipe.control_types import ControlLayout, TpDescriptor, TpDevice, TpTensorDescriptor

NO_FLOW = Flow(Endpoint("", 0), Endpoint("", 0))
"""Of what was on no network."""


class Placement(Enum):
    """Certainty about which captured bytes belong to a tensor."""

    CERTAIN = "certain"
    UNCERTAIN = "uncertain"
    """Bytes were captured, but which of them are this tensor's is unknown."""
    MISSING = "missing"
    """The bytes were not captured, or never were on the network."""


class Visibility(Enum):
    """How much of a pipe a capture of the network can show."""

    FULL = "full"
    NO_TENSORS = "no-tensors"
    HANDSHAKE_ONLY = "handshake-only"
    NO_HANDSHAKE = "no-handshake"


class MessageOrigin(Enum):
    """Where a message was seen."""

    PACKET = "packet"
    """On the network."""
    LOG = "log"
    """In a log of what an agent sent: between whom it went is known, not on what."""
    LIVE = "live"
    """In this process: a live worker has sent it to a replay."""


class Pipe(Struct, eq=False):
    """The connections that carry one worker's requests to another; one of them is named here.

    In a log it is all that the worker has asked the other one, whichever way that took.
    """

    number: int
    flow: Flow
    """Of the descriptor connection, from the client (who sends the requests) to the server."""
    layout: ControlLayout = ControlLayout.V1_9
    client_name: str | None = None
    """The context name in the handshake."""
    listener: Endpoint | None = None
    """Where the server accepts connections; None while that is not known."""
    transport: str = "uv"
    channels: tuple[tuple[tuple[TpDevice, TpDevice], str], ...] = ()
    """(server's device, client's device) → channel."""
    visible: Visibility = Visibility.FULL
    reason: str | None = None
    first_ns: int = 0
    ended_ns: int | None = None
    """When its descriptor connection was closed or reset, as far as that was captured by now."""
    invisible_channels: set[str] = field(default_factory=set)
    server_name: str | None = None
    """As a log says; on the network the server has none."""
    origins: tuple[int | None, int | None] = (None, None)
    """TCP sequence number of offset 0 of its messages, of those from the client and of those from the
    server; None where none were read."""
    origin: MessageOrigin = MessageOrigin.PACKET
    """Where its messages were seen. In a log the ends of `flow` are names, with a number that makes them
    unique."""

    @property
    def logged(self) -> bool:
        """Returns whether the messages come from a log."""
        return self.origin is MessageOrigin.LOG

    @property
    def client(self) -> Endpoint:
        """The client's end of the descriptor connection."""
        return self.flow.source

    @property
    def server(self) -> Endpoint:
        """The server's end of the descriptor connection."""
        return self.flow.destination


class TpTensor(Struct, eq=False, gc=False):
    """A tensor of a TensorPipe message: in torch a *storage*, which several torch tensors may share."""

    descriptor: TpTensorDescriptor
    placement: Placement
    extent: Extent | None
    """Where its bytes lie; None unless `placement` is certain."""

    @property
    def missing_bytes(self) -> int:
        """Bytes of the tensor that were not captured."""
        if self.extent is not None:
            return self.extent.missing_bytes
        return self.descriptor.length if self.placement is Placement.MISSING else 0


class TpMessage(Struct, eq=False, gc=False):
    """A message with its payloads in memory and its tensors as places in the capture."""

    pipe: Pipe
    from_client: bool
    descriptor: TpDescriptor
    layout: ControlLayout
    descriptor_body: bytes
    """The descriptor as captured; one object for all equal ones."""
    payloads: tuple[bytes, ...]
    """As captured; a payload with missing bytes holds what came before the first of them."""
    payload_missing: tuple[int, ...] | None
    """Bytes of each payload that were not captured; None where all were."""
    tensors: Sequence[TpTensor]
    waiting: int = 0
    """Tensors whose place is not settled yet; 0 in every message that the stage has handed on."""
    first_ns: int = 0
    """Of the first captured byte of descriptor, payloads and tensors together."""
    last_ns: int = 0
    capture: int = -1
    packet: int = -1
    """Of the descriptor's first byte."""
    first_packet: int = -1
    """The lowest packet of `capture` with bytes of descriptor, payloads or tensors; in a log as `packet`."""
    last_packet: int = -1
    """The highest one."""
    flow: Flow = NO_FLOW
    offset: int = 0
    """Of the descriptor's frame in its stream."""
    length: int = 0
    """Bytes of the descriptor's and the payloads' frames, which follow each other."""
    after_loss: bool = False
    """An unknown number of messages of this direction before this one was lost."""
    identified: bool = True
    """Whether type and id were captured; false only inside the wire stage."""
    payloads_ns: tuple[int, int] | None = None
    """First and last captured byte of descriptor and payloads alone; None without tensors, where they are
    `first_ns` and `last_ns`."""
    hashes: tuple[str | None, ...] = ()
    """sha256 of the elements of torch's tensors, in the order of their table, where a log says it in place of
    their bytes."""

    @classmethod
    def live(cls, descriptor: TpDescriptor, payloads: tuple[bytes, ...]) -> TpMessage:
        """A message that a live worker has just sent: it has no place in a capture and no time. The pieces of
        its extents name the tensor, by its index, instead of a capture."""
        tensors = [
            TpTensor(one, Placement.CERTAIN, Extent(one.length, ((n, 0, one.length),) if one.length else ()))
            for n, one in enumerate(descriptor.tensors)
        ]
        return cls(LIVE_PIPE, True, descriptor, ControlLayout.V1_9, b"", payloads, None, tensors)


LIVE_PIPE = Pipe(-1, NO_FLOW, origin=MessageOrigin.LIVE)
"""Of what live workers send to a replay: peers know their own pipes."""

"""One end of a TensorPipe pipe over uv: the messages of both directions with their tensors, without their
meaning.

In: the connections of a pipe, as they become known (`handshake.py` makes them), and messages to send. Out:
whole messages with their tensors, in order, and at most one loss with a reason. May assume nothing about
the other side: every length in a descriptor is checked against the limits before a byte of it is read, and
everything must come exactly as announced.

What is written is for CPU workers only: each descriptor says cpu:0 on both sides, whatever the captured one
said, since a device that the receiver doesn't have ends its process.

Mirrors `tensorpipe/core/pipe_impl.cc`, `tensorpipe/channel/basic` and `tensorpipe/channel/mpt`;
`tensorpipe/channel.py` knows which lane of a channel has what.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

from msgspec import Struct, field

from rpcinspect.errors import DecodeError, ReplayError
from rpcinspect.limits import DEFAULT_LIMITS
from rpcinspect.replayer.peers.connection import FrameConnection
from rpcinspect.replayer.peers.loop import Loop
from rpcinspect.rpc.message import RpcMessage, from_payloads
from rpcinspect.tensorpipe.channel_kinds import CHANNELS
from rpcinspect.tensorpipe.control import read_descriptor, write_descriptor
from rpcinspect.tensorpipe.control_types import (
    ControlLayout,
    TpDescriptor,
    TpDevice,
    TpPayload,
    TpTensorDescriptor,
)

CPU = TpDevice("cpu", 0)
_CPUS = (CPU, TpDevice("cpu", -1), None)


def cpu_descriptor(payloads: Sequence[bytes], tensors: Sequence[bytes]) -> TpDescriptor:
    """The descriptor of a message from CPU to CPU."""
    carried = [TpTensorDescriptor(length=len(data), source_device=CPU, target_device=CPU) for data in tensors]
    return TpDescriptor(b"", tuple([TpPayload(len(payload)) for payload in payloads]), tuple(carried))


class _Incoming(Struct):
    """A message whose descriptor was read."""

    payload_lengths: tuple[int, ...]
    tensors: list[bytes]
    """Empty until they come; those of length 0 never do."""
    waiting: deque[tuple[int, int]]
    """(index, bytes) of the tensors that the channel has still to bring."""
    begun: float
    payloads: list[bytes] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        return len(self.payloads) == len(self.payload_lengths) and not self.waiting


class PeerPipe:
    """A pipe of one peer to one other process; several connections."""

    def __init__(
        self,
        loop: Loop,
        *,
        inbound: bool,
        other: str,
        on_message: Callable[[PeerPipe, RpcMessage, tuple[bytes, ...]], None],
        on_lost: Callable[[PeerPipe, str], None],
    ) -> None:
        """`inbound`: the other side opened it. `other`: its name, empty while that is not known."""
        self.loop = loop
        self.number = loop.next_pipe()
        self.inbound = inbound
        self.other = other
        self.lost = False
        self.ready = False
        self._on_message = on_message
        self._on_lost = on_lost
        self._descriptor: FrameConnection | None = None
        self._channel: TensorChannel | None = None
        self._connections: list[FrameConnection] = []
        self._begun = time.monotonic()
        self._before_ready: deque[tuple[RpcMessage, tuple[bytes, ...]]] = deque()
        self._kept_bytes = 0
        """Of messages that wait for the end of the handshake."""
        self._incoming: deque[_Incoming] = deque()
        self._reading: _Incoming | None = None
        """The message whose payloads come now."""
        self.on_close: list[Callable[[], object]] = []
        """Called once when the pipe ends, however that comes about."""
        loop.add_timer(self._check)

    # --- for whoever makes the pipe ------------------------------------------------------------------------

    def adopt(self, connection: FrameConnection, what: str) -> None:
        """The connection belongs to this pipe: if it is lost, so is the pipe."""
        self._connections.append(connection)
        connection.on_lost = lambda reason: self.lose(f"{what}: {reason}")

    def start(self, descriptor: FrameConnection, channel: TensorChannel, reply: FrameConnection) -> None:
        """The handshake is done; all connections are adopted already."""
        self.ready = True
        self._descriptor, self._channel = descriptor, channel
        descriptor.on_frame, channel.on_tensor = self._frame, self._tensor
        reply.on_frame = lambda _: self.lose("a descriptor reply came, but no descriptor left a device open")
        reply.allow(self.loop.limits.handshake_bytes)
        while self._before_ready and not self.lost:
            self._write(*self._before_ready.popleft())
        self._kept_bytes = 0
        if not self.lost:
            descriptor.allow(self.loop.limits.descriptor_bytes)

    # --- for the peer --------------------------------------------------------------------------------------

    def send(self, message: RpcMessage, tensors: Sequence[bytes]) -> None:
        """Queues a message, also before the handshake ends. Raises `ReplayError` if too much is queued."""
        if self.lost:
            raise ReplayError(f"the pipe to {self.other[:80]!a} is lost")
        size = len(message.payload) + len(message.tensor_table) + sum([len(data) for data in tensors])
        waiting = self._kept_bytes + sum([connection.queued_bytes for connection in self._connections])
        if waiting + size > self.loop.limits.queued_bytes:
            raise ReplayError(f"{waiting:,} bytes wait to be sent: {self.other[:80]!a} does not read")
        if self.ready:
            self._write(message, tuple(tensors))
        else:
            self._kept_bytes += size
            self._before_ready.append((message, tuple(tensors)))

    @property
    def reached(self) -> bool:
        """Whether the other end has taken a connection of it."""
        return any(connection.opened for connection in self._connections)

    def lose(self, reason: str) -> None:
        """The pipe is broken: everything is closed, and the owner hears of it once."""
        if not self.lost:
            self.close()
            self._on_lost(self, reason)

    def close(self, *, reset: bool = False) -> None:
        """Closes all connections without a word to the owner; `reset`: by an RST."""
        self.lost = True
        self.loop.remove_timer(self._check)
        for connection in self._connections:
            connection.close(reset=reset)
        self._before_ready.clear()
        self._incoming.clear()
        while self.on_close:
            self.on_close.pop()()

    # --- writing -------------------------------------------------------------------------------------------

    def _write(self, message: RpcMessage, tensors: tuple[bytes, ...]) -> None:
        assert self._descriptor is not None
        assert self._channel is not None
        payloads = message.to_payloads()
        descriptor = write_descriptor(cpu_descriptor(payloads, tensors), ControlLayout.V1_9)
        self._descriptor.send(descriptor, *payloads)
        self._channel.send(tensors)

    # --- reading -------------------------------------------------------------------------------------------

    def _frame(self, body: bytes) -> None:
        """A frame of the descriptor connection: a descriptor or the next payload."""
        if self._reading is None:
            try:
                self._reading = self._begin(body)
            except DecodeError as error:
                self.lose(f"a descriptor that can't be read: {error}")
                return
        else:
            self._reading.payloads.append(body)
        self._continue()

    def _begin(self, body: bytes) -> _Incoming:
        """Checks a descriptor; raises `DecodeError`."""
        limits = self.loop.limits
        descriptor, layout = read_descriptor(body, DEFAULT_LIMITS)
        if layout is not ControlLayout.V1_9:
            raise DecodeError("tensorpipe", "it has the layout of PyTorch 1.8")
        lengths = tuple([payload.length for payload in descriptor.payloads])
        if len(lengths) != 4 or lengths[:2] != (4, 8):
            raise DecodeError("tensorpipe", f"payloads of {lengths[:8]} bytes instead of 4, 8 and two more")
        if max(lengths) > limits.payload_bytes:
            raise DecodeError("tensorpipe", f"a payload of {max(lengths):,} bytes is over the limit")
        if len(descriptor.tensors) > limits.tensors:
            raise DecodeError("tensorpipe", f"{len(descriptor.tensors):,} tensors are over the limit")
        total = sum([tensor.length for tensor in descriptor.tensors])
        if total > limits.tensor_bytes:
            raise DecodeError("tensorpipe", f"tensors of {total:,} bytes are over the limit")
        for tensor in descriptor.tensors:
            if tensor.source_device not in _CPUS or tensor.target_device not in _CPUS:
                raise DecodeError("tensorpipe", "a tensor that is not on the CPU")
        incoming = _Incoming(
            lengths,
            [b""] * len(descriptor.tensors),
            deque([(i, t.length) for i, t in enumerate(descriptor.tensors) if t.length]),
            time.monotonic(),
        )
        self._incoming.append(incoming)
        return incoming

    def _continue(self) -> None:
        """Says what must come next on both connections, and delivers what is complete."""
        reading = self._reading
        if reading is not None and len(reading.payloads) == len(reading.payload_lengths):
            self._reading = reading = None
        self._deliver()
        if self.lost:
            return
        assert self._descriptor is not None
        if reading is not None:
            self._descriptor.allow(reading.payload_lengths[len(reading.payloads)], exact=True)
        elif len(self._incoming) >= self.loop.limits.pending_messages:
            self._descriptor.allow(None)
        else:
            self._descriptor.allow(self.loop.limits.descriptor_bytes)
        self._expect_tensor()

    def _expect_tensor(self) -> None:
        if self.lost:
            return
        assert self._channel is not None
        for incoming in self._incoming:
            if incoming.waiting:
                self._channel.expect(incoming.waiting[0][1])
                return

    def _tensor(self, body: bytes) -> None:
        """Takes the first tensor that is waited for, from the channel."""
        for incoming in self._incoming:
            if incoming.waiting:
                index, _ = incoming.waiting.popleft()
                incoming.tensors[index] = body
                incoming.begun = time.monotonic()
                break
        if self._reading is None:
            self._continue()
        else:
            self._deliver()
            self._expect_tensor()

    def _deliver(self) -> None:
        """TensorPipe hands messages on in order, so a complete one waits for those before it."""
        while self._incoming and self._incoming[0].complete and not self.lost:
            incoming = self._incoming.popleft()
            self._on_message(self, from_payloads(incoming.payloads), tuple(incoming.tensors))

    def _check(self, now: float) -> None:
        timeout = self.loop.limits.timeout_s
        if not self.ready:
            if now - self._begun > timeout:
                self.lose(f"the handshake was not complete within {timeout:g} s")
        elif self._incoming and not self._progressing() and now - self._incoming[0].begun > timeout:
            self.lose(f"a message is not complete after {timeout:g} s")

    def _progressing(self) -> bool:
        """Whether bytes of a frame are there: then the connection watches over its pace."""
        return any(c.arriving for c in (self._descriptor, self._channel) if c is not None)


class TensorChannel:
    """Tensors of one pipe on the lanes of its channel, in both directions; `basic` has one lane, `mpt_uv` 16.

    Lanes, being connections of the pipe, lose it when they are lost; so does a frame of another length than
    that of its tensor's part.
    """

    def __init__(self, name: str, lanes: Sequence[FrameConnection]) -> None:
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
        """Lets the next tensor, of this length, be read. Calling it again before that has come is fine."""
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

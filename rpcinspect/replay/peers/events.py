"""What a peer tells the replayer, and the bounds on what it takes from others.

In: nothing. Out: plain records. Everything inbound was chosen by the other side, which runs user code and
may be hostile: lengths are bounded before memory is taken, and nothing is decoded beyond the four payloads.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from rpcinspect.rpc.message import Message


class PeerLimits(Struct, frozen=True, kw_only=True):
    """Bounds per connection, pipe and peer; a breach loses the pipe with a reason."""

    handshake_bytes: int = 1 << 16
    """One frame of a handshake."""
    descriptor_bytes: int = 1 << 24
    payload_bytes: int = 1 << 31
    """One payload."""
    tensor_bytes: int = 1 << 34
    """All tensors of one message."""
    tensors: int = 1 << 16
    """Of one message."""
    pending_messages: int = 256
    """Messages of one pipe that wait for their tensors; no more are read until some are complete."""
    unanswered: int = 1 << 16
    """Requests of one pipe that await an answer."""
    queued_bytes: int = 1 << 33
    """What one pipe may have to send."""
    connections: int = 1024
    """At one listener; more are closed at once."""
    timeout_s: float = 30.0
    """For a handshake, and for any progress of a frame that was begun or that the other side does not
    read."""
    bytes_per_s: int = 1 << 20
    """A frame that comes slower than this is given up once it takes longer than `timeout_s`."""


DEFAULT_PEER_LIMITS = PeerLimits()

ROOM_TIMES, ROOM_BYTES = 8, 1 << 28
"""How much larger than the largest captured one a live message may be, and how large in any case."""


def limits_for(largest: int) -> PeerLimits:
    """The bounds of a session whose largest captured message has so many bytes: what is far larger is no
    answer to be compared, and memory must not be what bounds it.
    """
    room = max(ROOM_TIMES * largest, ROOM_BYTES)
    default = DEFAULT_PEER_LIMITS
    return replace(
        default,
        payload_bytes=min(default.payload_bytes, room),
        tensor_bytes=min(default.tensor_bytes, room),
    )


class RequestArrived(Struct, frozen=True, kw_only=True):
    """A live worker asks a peer for something. Exactly one answer is due: `Peer.answer`."""

    peer: str
    """Name of the peer that was asked."""
    sender: str
    """Name that the other side gave itself when it opened the pipe."""
    pipe: int
    """Number of the pipe, unique in a loop: message ids are only unique within one."""
    message: Message
    tensors: tuple[bytes, ...]
    """The storages, in the order of their indexes."""
    time_ns: int
    """When it was complete, as `time.time_ns`."""


class ResponseArrived(Struct, frozen=True, kw_only=True):
    """The answer to a message that a peer sent."""

    peer: str
    to: str
    """Who was asked and answers."""
    pipe: int
    message: Message
    """Its id is that of the request."""
    tensors: tuple[bytes, ...]
    time_ns: int
    late: bool = False
    """`Unanswered` was told before."""


class Unanswered(Struct, frozen=True, kw_only=True):
    """No answer came within the time that the sender gave. The pipe is kept, the answer may still come."""

    peer: str
    to: str
    message_id: int
    timeout_s: float


class PipeLost(Struct, frozen=True, kw_only=True):
    """A pipe could not be opened, was closed or broke; what was sent over it stays unanswered."""

    peer: str
    other: str
    """Name of the other side; empty for a connection that never said whose it is."""
    pipe: int
    inbound: bool
    """Whether the other side had opened it."""
    reason: str
    unanswered: tuple[int, ...]
    """Ids of this peer's own requests that get no answer any more."""


PeerEvent: TypeAlias = RequestArrived | ResponseArrived | Unanswered | PipeLost


def ended_by(event: PeerEvent) -> tuple[tuple[str, int], ...]:
    """(peer, number) of the requests for which nobody need wait any more after an event."""
    if isinstance(event, ResponseArrived):
        return ((event.peer, event.message.id),)
    if isinstance(event, Unanswered):
        return ((event.peer, event.message_id),)
    return tuple((event.peer, number) for number in event.unanswered) if isinstance(event, PipeLost) else ()

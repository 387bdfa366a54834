"""One thread that waits for all sockets of a replay at once, the events that it hears of, and the bounds on
what is taken from others.

In: handlers with a socket each (listeners, connections), which post events. Out: those events, from `wait`.
All peers of a replay share one loop, so that it is one thread that decides about order. Deadlines are
looked at a few times a second; nothing blocks longer than asked for. Everything inbound was chosen by the
other side, which runs user code and may be hostile: lengths are bounded before memory is taken, and nothing
is decoded beyond the four payloads.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from rpcinspect.errors import ReplayError
from rpcinspect.files.closing import Closing
from rpcinspect.replayer.peers.traffic_pcap import TrafficRecorder
from rpcinspect.rpc.message import RpcMessage


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
    message: RpcMessage
    tensors: tuple[bytes, ...]
    """The storages, in the order of their indexes."""
    doubtful: bool = False
    """Whether another worker may be the sender: torch's agent does not always tell."""


class ResponseArrived(Struct, frozen=True, kw_only=True):
    """The answer to a message that a peer sent."""

    peer: str
    to: str
    """Who was asked and answers."""
    pipe: int
    message: RpcMessage
    """Its id is that of the request."""
    tensors: tuple[bytes, ...]
    late: bool = False
    """`Unanswered` was told before."""


class Unanswered(Struct, frozen=True, kw_only=True):
    """Event: no answer came within the sender's timeout. The pipe is kept, the answer may still come."""

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


class NotSent(Struct, frozen=True, kw_only=True):
    """A request that could not be sent, as is known only later; its pipe is kept."""

    peer: str
    to: str
    message_id: int
    reason: str


PeerEvent: TypeAlias = RequestArrived | ResponseArrived | Unanswered | NotSent | PipeLost
Handle: TypeAlias = Callable[[PeerEvent], bool]
"""Deals with an event that is a matter of membership in the group; False: it is none."""


def ended_by(event: PeerEvent) -> tuple[tuple[str, int], ...]:
    """(peer, number) of the requests for which nobody need wait any more after an event."""
    if isinstance(event, ResponseArrived):
        return ((event.peer, event.message.id),)
    if isinstance(event, (Unanswered, NotSent)):
        return ((event.peer, event.message_id),)
    return tuple((event.peer, number) for number in event.unanswered) if isinstance(event, PipeLost) else ()


TICK_S = 0.05
"""How often deadlines are looked at."""

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class SocketHandler(Protocol):
    """Owner of a socket, which the loop calls."""

    def ready(self, events: int) -> None:
        """The socket can be read or written."""

    def close(self) -> None:
        """Give up the socket; must be harmless when called again."""


class Loop(Closing):
    """The sockets and the events. Use it in a `with` statement: closing it closes every socket."""

    def __init__(
        self, limits: PeerLimits = DEFAULT_PEER_LIMITS, *, tap: TrafficRecorder | None = None
    ) -> None:
        self.limits = limits
        self.tap = tap
        self._selector = selectors.DefaultSelector()
        self._handlers: dict[SocketHandler, tuple[socket.socket, int]] = {}
        self._timers: list[Callable[[float], None]] = []
        self._events: deque[PeerEvent] = deque()
        self._next_tick = 0.0
        self._pipes = count(1)
        self._closed = False

    # --- for handlers --------------------------------------------------------------------------------------

    def watch(self, handler: SocketHandler, sock: socket.socket, events: int) -> None:
        """Calls `handler` from now on when `events` are possible; 0: never, until it asks again."""
        if self._closed:
            handler.close()
            raise ReplayError("the loop is closed")
        before = self._handlers.get(handler)
        if before is not None and before[1] == events:
            return
        if before is not None and before[1]:
            if events:
                self._selector.modify(sock, events, handler)
            else:
                self._selector.unregister(sock)
        elif events:
            self._selector.register(sock, events, handler)
        self._handlers[handler] = (sock, events)

    def forget(self, handler: SocketHandler) -> None:
        """The handler's socket is about to be closed."""
        sock, events = self._handlers.pop(handler, (None, 0))
        if sock is not None and events:
            self._selector.unregister(sock)

    def add_timer(self, check: Callable[[float], None]) -> None:
        """`check` is called a few times a second with `time.monotonic()`: for deadlines."""
        self._timers.append(check)

    def remove_timer(self, check: Callable[[float], None]) -> None:
        """The opposite; harmless if it isn't there."""
        if check in self._timers:
            self._timers.remove(check)

    def post(self, event: PeerEvent) -> None:
        """Hand an event to whoever waits."""
        self._events.append(event)

    def next_pipe(self) -> int:
        """A number for a pipe, unique in this loop."""
        return next(self._pipes)

    # --- for the replayer ----------------------------------------------------------------------------------

    def wait(self, timeout_s: float) -> list[PeerEvent]:
        """Returns all events so far; if there are none, waits for the first, but no longer than `timeout_s`.

        Raises `ReplayError` once the loop is closed.
        """
        end = time.monotonic() + timeout_s
        while True:
            self._step(0.0 if self._events else min(TICK_S, max(end - time.monotonic(), 0.0)))
            if self._events or time.monotonic() >= end:
                events = list(self._events)
                self._events.clear()
                return events

    def wait_until(self, done: Callable[[PeerEvent], bool], timeout_s: float) -> PeerEvent | None:
        """Returns the first event for which `done` is true; None after the timeout.

        All other events are kept, in order, for the next `wait`.
        """
        end = time.monotonic() + timeout_s
        kept: list[PeerEvent] = []
        events: list[PeerEvent] = []
        try:
            while True:
                events = self.wait(max(end - time.monotonic(), 0.0))
                while events:
                    if done(events[0]):
                        return events.pop(0)
                    kept.append(events.pop(0))
                if time.monotonic() >= end:
                    return None
        finally:
            self._events.extendleft(reversed(kept + events))

    def close(self) -> None:
        """Closes every socket; calling it again is fine."""
        if self._closed:
            return
        for handler in list(self._handlers):
            handler.close()
        self._handlers.clear()
        self._timers.clear()
        self._events.clear()
        self._closed = True
        self._selector.close()

    def _step(self, timeout_s: float) -> None:
        if self._closed:
            raise ReplayError("the loop is closed")
        for key, events in self._selector.select(timeout_s):
            handler: SocketHandler = key.data
            if handler in self._handlers:  # an earlier handler of this round may have closed it
                handler.ready(events)
        now = time.monotonic()
        if now >= self._next_tick:
            self._next_tick = now + TICK_S
            for check in list(self._timers):
                check(now)

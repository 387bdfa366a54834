"""The requests of a played worker that have no answer, and the events of what it asks and is asked; the same
for every engine.

In: requests, and what came of them. Out: events in the loop: answers, requests of live workers, what was
lost, and what got no answer in its time.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from msgspec import Struct

from rpcinspect.replayer.peers.loop import (
    Loop,
    NotSent,
    PipeLost,
    RequestArrived,
    ResponseArrived,
    Unanswered,
)
from rpcinspect.rpc.message import RpcMessage

T = TypeVar("T")

NO_PIPE = -1
"""Of an engine that has no pipes to tell apart."""


class Open(Struct, Generic[T]):
    """A request without an answer."""

    to: str
    seconds: float | None
    """That it has; None: no limit."""
    what: T
    """What the engine knows of it."""
    deadline: float = float("inf")

    def renew(self) -> None:
        """Restarts the timeout of the request."""
        if self.seconds is not None:
            self.deadline = time.monotonic() + self.seconds


class OpenRequests(Generic[T]):
    """The open requests of one played worker, by their numbers."""

    def __init__(self, loop: Loop, name: str) -> None:
        self._loop = loop
        self._name = name
        self._next = 0
        self._pipes: dict[int, dict[int, Open[T]]] = defaultdict(dict)
        """Pipe → number → request."""
        self._given_up: dict[int, str] = {}
        """Number → who was asked and did not answer in time."""

    def add(self, to: str, timeout_s: float | None, what: T, pipe: int = NO_PIPE) -> int:
        """The number of a request that is about to be sent; `timeout_s` None: no limit."""
        number, self._next = self._next, self._next + 1
        self._pipes[pipe][number] = one = Open(to, timeout_s, what)
        one.renew()
        return number

    def on(self, pipe: int = NO_PIPE) -> Mapping[int, Open[T]]:
        """Returns the open requests of a pipe, in the order in which they were sent."""
        return self._pipes[pipe]

    def drop(self, number: int, pipe: int = NO_PIPE) -> None:
        """Forgets a request that could not be sent."""
        self._pipes.get(pipe, {}).pop(number, None)

    def forget(self, pipe: int) -> tuple[int, ...]:
        """Drops all requests of a pipe; their numbers."""
        return tuple(self._pipes.pop(pipe, ()))

    def renew(self, number: int) -> None:
        """Restarts the timeout of a request; harmless if it was answered."""
        for its in self._pipes.values():
            if number in its:
                its[number].renew()

    def overdue(self, now: float) -> None:
        """Posts what has waited too long."""
        for its in self._pipes.values():
            for number, one in [item for item in its.items() if item[1].deadline < now]:
                del its[number]
                self._given_up[number] = one.to
                seconds = one.seconds or 0.0
                self._loop.post(Unanswered(peer=self._name, to=one.to, message_id=number, timeout_s=seconds))

    def not_sent(self, number: int, reason: str) -> None:
        """Posts that a request could not be sent; harmless if nothing is waited for."""
        one = self.on().get(number)
        if one is not None:
            self.drop(number)
            self._loop.post(NotSent(peer=self._name, to=one.to, message_id=number, reason=reason))

    def answered(self, message: RpcMessage, tensors: Sequence[bytes] = (), pipe: int = NO_PIPE) -> bool:
        """Posts the answer to the request of the message's number. False: no such request waits for one on
        this pipe, nor was one given up."""
        one = self._pipes.get(pipe, {}).pop(message.id, None)
        late = self._given_up.pop(message.id, None)
        to = late if one is None else one.to
        if to is not None:
            self._loop.post(
                ResponseArrived(
                    peer=self._name,
                    to=to,
                    pipe=pipe,
                    message=message,
                    tensors=tuple(tensors),
                    late=late is not None,
                )
            )
        return to is not None

    def asked(
        self,
        sender: str,
        message: RpcMessage,
        tensors: Sequence[bytes] = (),
        pipe: int = NO_PIPE,
        *,
        doubtful: bool = False,
    ) -> None:
        """Posts a request of a live worker."""
        self._loop.post(
            RequestArrived(
                peer=self._name,
                sender=sender,
                pipe=pipe,
                message=message,
                tensors=tuple(tensors),
                doubtful=doubtful,
            )
        )

    def lost(
        self,
        other: str,
        reason: str,
        numbers: Iterable[int] = (),
        *,
        pipe: int = NO_PIPE,
        inbound: bool = False,
    ) -> None:
        """Posts that a pipe is lost, and that nothing will come for these requests."""
        gone = tuple(numbers)
        for number in gone:
            self.drop(number, pipe)
        self._loop.post(
            PipeLost(peer=self._name, other=other, pipe=pipe, inbound=inbound, reason=reason, unanswered=gone)
        )

"""The requests of a played worker that torch's agent has sent and that have no answer, and the events of
them.

In: requests, and what came of them. Out: events in the loop, as those of `peer.py`: answers, requests of live
workers, what was lost, and what got no answer in its time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from rpcinspect.replay.peers.events import PipeLost, RequestArrived, ResponseArrived, Unanswered
from rpcinspect.replay.peers.loop import Loop
from rpcinspect.rpc.command import Command
from rpcinspect.rpc.message import Message

NO_PIPE = -1
"""torch has the pipes."""


class Open(Struct):
    """A request without an answer."""

    to: str
    command: Command
    context: int | None
    deadline: float
    seconds: float


class OpenRequests:
    """Those of one played worker, by their numbers."""

    def __init__(self, loop: Loop, name: str) -> None:
        self._loop = loop
        self._name = name
        self._open: dict[int, Open] = {}
        self._next = 0

    def add(
        self, to: str, command: Command, context: int | None, timeout_s: float | None
    ) -> tuple[int, Open]:
        """A request that is about to be sent; `timeout_s` None: no limit."""
        n, self._next = self._next, self._next + 1
        deadline = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        one = self._open[n] = Open(to, command, context, deadline, timeout_s or 0.0)
        return n, one

    def get(self, n: int) -> Open | None:
        """None: it is answered, or was given up."""
        return self._open.get(n)

    def drop(self, n: int) -> None:
        """It could not be sent, and nobody waits."""
        self._open.pop(n, None)

    def renew(self, n: int) -> None:
        """Gives it its whole time again."""
        one = self._open.get(n)
        if one is not None:
            one.deadline = time.monotonic() + one.seconds

    def __iter__(self) -> Iterator[tuple[int, Open]]:
        return iter(list(self._open.items()))

    def answered(self, n: int, message: Message, storages: Sequence[bytes] = ()) -> None:
        """Posts the answer; harmless where nobody waits."""
        one = self._open.pop(n, None)
        if one is not None:
            self._loop.post(
                ResponseArrived(
                    peer=self._name,
                    to=one.to,
                    pipe=NO_PIPE,
                    message=replace(message, id=n),
                    tensors=tuple(storages),
                    time_ns=time.time_ns(),
                )
            )

    def lost(self, n: int, reason: str) -> None:
        """Posts that nothing will come."""
        one = self._open.pop(n, None)
        self._loop.post(
            PipeLost(
                peer=self._name,
                other="" if one is None else one.to,
                pipe=NO_PIPE,
                inbound=False,
                reason=reason,
                unanswered=(n,),
            )
        )

    def overdue(self, now: float) -> None:
        """Posts what has waited too long."""
        for n, one in self:
            if one.deadline < now:
                del self._open[n]
                self._loop.post(Unanswered(peer=self._name, to=one.to, message_id=n, timeout_s=one.seconds))

    def asked(self, sender: str, number: int, message: Message, storages: Sequence[bytes]) -> None:
        """Posts a request of a live worker."""
        self._loop.post(
            RequestArrived(
                peer=self._name,
                sender=sender,
                pipe=NO_PIPE,
                message=replace(message, id=number),
                tensors=tuple(storages),
                time_ns=time.time_ns(),
            )
        )

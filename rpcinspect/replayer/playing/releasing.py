"""Takes back what a session has made in live workers that go on without us, before it leaves their group.

In: what the session has sent and what came, in its end or in its middle. Out: live workers have dropped the
contexts and remote references that the session made, as far as they answer. Requests that come meanwhile are
acknowledged or refused.

Order matters, as torch's agents (2.13) do several things at once. A worker that was given a reference asks
its owner for a fork of its own; where the giver's is deleted by then, the object is gone, whoever fetches it
waits, and so do owner and user when they shut down. The owner of a new reference notes its user once the
function has run: a deletion that is there before is lost. So what is on its way comes to its end first.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping

from rpcinspect.errors import ReplayError
from rpcinspect.replayer.peers.loop import Handle, Loop, PeerEvent, RequestArrived, ResponseArrived, ended_by
from rpcinspect.replayer.peers.membership import farewell
from rpcinspect.replayer.peers.peer import Peer
from rpcinspect.replayer.playing.progress import SessionProgress
from rpcinspect.replayer.playing.translate import LiveRecords
from rpcinspect.replayer.playing.uncaptured import acknowledgement, refusal
from rpcinspect.rpc.command import RRefForkRequest
from rpcinspect.rpc.message import RpcMessage
from rpcinspect.rpc.questions import created
from rpcinspect.run.exchanges import Exchange

SETTLE_S = 5.0
"""The longest wait until requests on their way are done: a function may run for ever."""
RELEASE_S = 5.0
"""The longest wait until live workers have dropped what is left of a session."""
ROUNDS = 2
"""A live worker may give away one more reference while others are dropped."""


class Releases:
    """What a session has to take back; call `run` once it sends nothing more."""

    def __init__(
        self, progress: SessionProgress, peers: Mapping[str, Peer], loop: Loop, handle: Handle
    ) -> None:
        """`peers` by the worker that they play; `handle` gets each event first."""
        self._progress = progress
        self._peers = peers
        self._loop = loop
        self._handle = handle
        self._records = LiveRecords()

    def run(self) -> None:
        """Lets live workers drop what the session has made; takes `SETTLE_S` and `RELEASE_S` at most."""
        self._settle()
        live_name = self._progress.inputs.live_name
        for _ in range(ROUNDS):
            left = list(self._progress.leftovers.releases())
            if left:
                calls = [(self._peers[role], live_name(to), message) for role, to, message in left]
                farewell(calls, RELEASE_S, self._asked)

    def _settle(self) -> None:
        """Waits until nothing is on its way that makes a reference or hands one on."""
        for request in self._progress.asked.values():  # whoever waits for it has to go on
            self._answer(request, refusal())
        self._progress.asked.clear()
        sent = self._progress.sent
        end = time.monotonic() + SETTLE_S
        while (
            any(moves_references(one.call) for one in sent.values()) and (left := end - time.monotonic()) > 0
        ):
            for event in self._loop.wait(left):
                self._take(event)

    def _take(self, event: PeerEvent) -> None:
        if isinstance(event, RequestArrived):
            self._asked(event)
        for key in ended_by(event):
            sent = self._progress.sent.pop(key, None)
            if sent is not None and isinstance(event, ResponseArrived):
                live = self._records.decode(event.message, event.tensors)
                self._progress.leftovers.came(sent.step.role, sent.step.to, live.record)

    def _asked(self, event: RequestArrived) -> None:
        if self._handle(event):
            return
        live = self._records.decode(event.message, event.tensors)
        sender = self._progress.inputs.captured_name(event.sender)
        self._progress.leftovers.came(self._progress.roles[event.peer], sender, live.record)
        self._answer(event, acknowledgement(live.record) or refusal())

    def _answer(self, event: RequestArrived, message: RpcMessage) -> None:
        with contextlib.suppress(ReplayError):  # it is gone
            self._peers[self._progress.roles[event.peer]].answer(event, message)


def moves_references(call: Exchange) -> bool:
    """Returns whether a request makes a remote reference, hands one on, or is answered with one."""
    if created(call.request) is not None or isinstance(call.request.rpc.command, RRefForkRequest):
        return True
    return bool(call.request.facts.forks) or (call.response is not None and bool(call.response.facts.forks))

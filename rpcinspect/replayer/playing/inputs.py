"""What a session is played from, and by whom: the same for every engine and every kind of group.

In: a planned session and its captured exchanges. Out: plain records, what the player asks of those who carry
its messages, and how much memory live workers may take.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from msgspec import Struct, field

from rpcinspect.equality.difference import Difference
from rpcinspect.equality.elements import ReadExtent
from rpcinspect.equality.ids import IdMap
from rpcinspect.equality.messages import compare_messages
from rpcinspect.equality.rules import Rules
from rpcinspect.replayer.peers.loop import RequestArrived
from rpcinspect.replayer.planning.model import PlannedSession
from rpcinspect.replayer.playing.translate import LiveMessage
from rpcinspect.replayer.workers.parent_process import Waiting
from rpcinspect.rpc.message import RpcMessage
from rpcinspect.rpc.questions import size_of
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.run.exchanges import Exchange

MAKING_S = 300.0
"""A function of the user's may read a large file."""


class SessionInputs(Struct, frozen=True, kw_only=True):
    """Inputs that a session is played from."""

    planned: PlannedSession
    calls: Mapping[int, Exchange]
    """By the index of their request."""
    read: ReadExtent
    """Of captured bytes."""
    rules: Rules
    worker_ids: Mapping[str, int]
    """Of all workers, as captured. The rules say who has another name in the live group."""
    ids_in_group: Mapping[str, int]
    """Captured names → ids as they have joined; of all who have."""
    ids: IdMap = field(default_factory=IdMap)
    """Captured → live, as the player learns them."""
    programs: Mapping[str, int] = MappingProxyType({})
    """Live workers whose own program is played, since it makes calls to its own worker in autograd contexts →
    the id under which it gets the gradients."""
    elsewhere: bool = False
    """Whether tensors are on other devices than in the capture: then device maps are no difference."""
    making_s: float = MAKING_S
    """Seconds that a live worker may take for an object of the user's."""
    waiting: Waiting = lambda what, seconds: None
    """Is called each second in which nothing comes."""
    early: frozenset[int] = frozenset()
    """Requests whose answers nobody waits for, since the engine sees them later than they come."""

    kept: KeptMessages | None = None
    """Where live messages that differ are kept; None: they are not."""

    @property
    def largest(self) -> int:
        """Bytes of the largest captured message, tensors and what was not captured of them included."""
        both = (record for call in self.calls.values() for record in (call.request, call.response))
        return max((size_of(record) for record in both if record is not None), default=0)

    def storages(self, record: RpcRecord) -> list[bytes]:
        """The captured bytes of a message's tensors."""
        return [b"" if tensor.extent is None else self.read(tensor.extent) for tensor in record.tp.tensors]

    def compare(self, captured: RpcRecord, live: LiveMessage) -> list[Difference]:
        """Returns the differences of a live message; its ids are learned."""
        return compare_messages(captured, live.record, self.read, live.read, self.rules, self.ids)

    def live_name(self, captured: str) -> str:
        """The name in the live group of a worker of the capture."""
        return self.rules.worker_name(captured)

    def captured_name(self, live: str) -> str:
        """The name in the capture of a worker of the live group."""
        return next((name for name, other in self.rules.renames.items() if other == live), live)


class PlayedWorker(Protocol):
    """A worker that is played: a `Peer`, or an `AgentPeer`."""

    name: str

    def send(
        self, to: str, message: RpcMessage, tensors: Sequence[bytes] = (), *, timeout_s: float | None = None
    ) -> int:
        """Sends a request and returns its number; the rest comes as events."""

    def renew(self, message_id: int) -> None:
        """Restarts the timeout of a request."""

    def answer(self, request: RequestArrived, message: RpcMessage, tensors: Sequence[bytes] = ()) -> bool:
        """Answers a request; False: nobody waits any more."""

    def end(self, *, reset: bool) -> bool:
        """Ends as a process does, all at once; returns whether the engine can do that. `reset`: its
        connections end by an RST."""


class KeptMessages:
    """Takes live messages that differ, to be compared with those of another replay, as long as there is
    room."""

    def __init__(self, room: int) -> None:
        """`room`: bytes of payloads and tensors."""
        self._room = room

    def keep(self, live: LiveMessage) -> LiveMessage | None:
        """Returns the message, if there is room for it."""
        size = captured_bytes(live.record)
        if size > self._room:
            return None
        self._room -= size
        return live


LEAST = 4 * 10**9
"""A model of some hundred million parameters, with gradients and the state of an optimizer, is made by a
message of a few numbers."""
TIMES = 16
"""Of all bytes that are sent and come back: as if all were kept, with gradients, copies and what is computed
between them."""


def allowance(planned: PlannedSession, calls: Mapping[int, Exchange]) -> int:
    """Bytes that each live worker of a session may take, beyond those that it has once it has joined.
    Captured bytes count, not announced ones: a capture can't raise the bound by a lie."""
    replayed = [calls[step.message] for step in planned.steps if step.action != "skip"]
    both = [record for call in replayed for record in (call.request, call.response) if record is not None]
    return max(LEAST, TIMES * sum(map(captured_bytes, both)))


def captured_bytes(record: RpcRecord) -> int:
    """Captured bytes of the payloads and tensors of a message."""
    tensors = (
        tensor.descriptor.length - tensor.missing_bytes
        for tensor in record.tp.tensors
        if tensor.extent is not None
    )
    return sum(map(len, record.tp.payloads)) + sum(tensors)

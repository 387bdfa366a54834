"""Live workers without torch, which are real peers and answer as a test says; and a player against them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from rpcinspect.equality.rules import Rules
from rpcinspect.replayer.peers.loop import Loop, PeerEvent, PeerLimits, RequestArrived, ResponseArrived
from rpcinspect.replayer.peers.membership import Membership
from rpcinspect.replayer.peers.peer import Peer
from rpcinspect.replayer.planning.model import PlannedSession, Step
from rpcinspect.replayer.planning.plan import PlanOptions, plan
from rpcinspect.replayer.planning.sessions import worker_ids
from rpcinspect.replayer.playing.inputs import SessionInputs
from rpcinspect.replayer.playing.outcome import StepOutcome
from rpcinspect.replayer.playing.player import Player
from rpcinspect.replayer.playing.process_ends import EndedProcesses
from rpcinspect.replayer.playing.progress import SessionProgress
from rpcinspect.replayer.playing.schedule import Schedule
from rpcinspect.replayer.playing.timeouts import Timeouts
from rpcinspect.rpc.command import Command
from rpcinspect.rpc.command_codec import message_type_of, to_payload
from rpcinspect.rpc.envelope import Envelope, wrap
from rpcinspect.rpc.message import NO_TENSORS, RpcMessage
from rpcinspect.run.exchanges import Exchange
from rpcinspect.tcp.ranges import Extent
from tests.replayer.talks import Workers

STORAGE = b"\0\0\x80?"
"""The bytes of every captured tensor of these tests: one float, 1.0."""


def message_of(command: Command, *envelopes: Envelope, table: bytes = NO_TENSORS) -> RpcMessage:
    kind = envelopes[0].message_type if envelopes else message_type_of(command)
    return RpcMessage(kind, 0, wrap(envelopes, to_payload(command)), table)


def read_ones(extent: Extent) -> bytes:
    return STORAGE[: extent.length]


@dataclass
class Scripted:
    """A live worker: `does` is called for each request that it gets, with itself and the request."""

    peer: Peer
    does: Callable[[Scripted, RequestArrived], None]
    requests: list[RequestArrived] = field(default_factory=list)
    events: list[PeerEvent] = field(default_factory=list)
    """What else happened to it, answers to its own requests above all."""

    def take(self, event: PeerEvent) -> None:
        if isinstance(event, RequestArrived):
            self.requests.append(event)
            self.does(self, event)
        else:
            self.events.append(event)

    def answer(self, request: RequestArrived, command: Command, **more: Any) -> None:
        self.peer.answer(request, message_of(command, **more))

    def ask(self, to: str, command: Command, *envelopes: Envelope) -> int:
        return self.peer.send(to, message_of(command, *envelopes), timeout_s=5.0)

    @property
    def answers(self) -> list[RpcMessage]:
        """What it got for its own requests, in the order in which it asked."""
        come = [event.message for event in self.events if isinstance(event, ResponseArrived)]
        return sorted(come, key=lambda message: message.id)


class Stage(Loop):
    """A loop in which scripted workers take their own events, whoever waits."""

    def __init__(self, limits: PeerLimits | None = None) -> None:
        super().__init__(limits or PeerLimits(timeout_s=5.0))
        self.scripted: dict[str, Scripted] = {}

    def wait(self, timeout_s: float) -> list[PeerEvent]:
        kept = []
        for event in super().wait(timeout_s):
            worker = self.scripted.get(event.peer)
            if worker is None:
                kept.append(event)
            else:
                worker.take(event)
        return kept


@dataclass
class Played:
    """A session that was played."""

    planned: PlannedSession
    calls: Mapping[int, Exchange]
    progress: SessionProgress
    live: Mapping[str, Scripted]
    wall_s: float

    @property
    def steps(self) -> dict[int, StepOutcome]:
        return {one.step.message: one for one in self.progress.all_outcomes()}

    def results(self) -> list[str | None]:
        """In the order of the plan."""
        return [one.result for one in self.progress.all_outcomes()]


def planned_of(
    workers: Workers, roles: Sequence[str] = ("w0",), **options: Any
) -> tuple[PlannedSession, dict[int, Exchange]]:
    """The one session in which these are played."""
    run = workers.run()
    made = plan(run, PlanOptions(roles=tuple(roles), trust=True, **options))
    assert len(made.sessions) == 1
    return made.sessions[0], run.calls


def play(
    workers: Workers,
    does: Callable[[Scripted, RequestArrived], None],
    *,
    roles: Sequence[str] = ("w0",),
    timeout_s: float | None = 5.0,
    rules: Rules | None = None,
    limits: PeerLimits | None = None,
    unheard: tuple[str, ...] = (),
    speed: float | None = None,
    ended: EndedProcesses = lambda seconds, known: (),
    **more: Any,
) -> Played:
    """Plays a conversation against scripted workers; everything is closed afterwards. `unheard`: as of the
    planned session."""
    run = workers.run()
    planned = plan(run, PlanOptions(roles=tuple(roles), trust=True)).sessions[0]
    planned = replace(planned, unheard=unheard)
    calls = run.calls
    ids = worker_ids(run.session, planned.cast, calls.values())
    with Stage(limits) as stage:
        peers = {role: Peer(stage, role, ids[role]) for role in planned.cast.roles}
        for name in planned.cast.live:
            stage.scripted[name] = Scripted(Peer(stage, name, ids[name]), does)
        everybody = [*peers.values(), *(worker.peer for worker in stage.scripted.values())]
        for peer in everybody:
            peer.addresses.update({other.name: other.address for other in everybody})
        inputs = SessionInputs(
            planned=planned,
            calls=calls,
            read=read_ones,
            rules=rules or Rules(strict=True),
            worker_ids=ids,
            ids_in_group=ids,
        )
        members = Membership(None, list(peers.values()))  # type: ignore[arg-type]  # nobody joins or leaves
        schedule = Schedule(planned, calls, speed=speed)
        progress = SessionProgress(inputs, peers, Timeouts(calls, timeout_s), schedule, **more)
        player = Player(progress, stage, members.handle, ended=ended)
        began = time.monotonic()
        player.run()
        wall_s = time.monotonic() - began
        stage.wait(0.05)  # for what the scripted workers were given last
    return Played(planned, calls, progress, stage.scripted, wall_s)


def captured_answer(workers: Workers, request: RequestArrived) -> RpcMessage | None:
    """What was answered in the capture to the first request with these bytes."""
    for call in workers.calls():
        if call.request.rpc.message.payload == request.message.payload and call.response is not None:
            return call.response.rpc.message
    return None


def sends(planned: PlannedSession) -> list[Step]:
    return [step for step in planned.steps if step.action == "send"]

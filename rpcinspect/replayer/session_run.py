"""One session of a replay, from the start of its live workers to their end, or in a group that others have
started.

In: a planned session, and what all sessions of the replay have in common. Out: its outcome, whatever happens.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from msgspec.structs import replace

from rpcinspect.errors import ReplayError
from rpcinspect.replayer.agent.engine import ContextImporter, passes_of, start_agents
from rpcinspect.replayer.options import ReplayOptions
from rpcinspect.replayer.peers.loop import Handle, Loop, limits_for
from rpcinspect.replayer.peers.membership import PREFIX, Membership
from rpcinspect.replayer.peers.peer import Peer
from rpcinspect.replayer.peers.store_client import StoreClient
from rpcinspect.replayer.peers.traffic_pcap import TrafficRecorder
from rpcinspect.replayer.planning.devices import DevicePlacement
from rpcinspect.replayer.planning.model import PlannedSession
from rpcinspect.replayer.planning.sessions import MAX_ID, worker_ids
from rpcinspect.replayer.playing.attach import play_joined
from rpcinspect.replayer.playing.debug_relay import DebugRelay
from rpcinspect.replayer.playing.debugging import Debugging, Gradients, SessionDebugger
from rpcinspect.replayer.playing.inputs import (
    MAKING_S,
    PlayedWorker,
    SessionInputs,
    allowance,
)
from rpcinspect.replayer.playing.outcome import (
    InboundOutcome,
    SessionOutcome,
    StepOutcome,
    not_played,
    with_reasons,
)
from rpcinspect.replayer.playing.player import Player
from rpcinspect.replayer.playing.process_ends import GRACE_S, EndedProcesses
from rpcinspect.replayer.playing.progress import SessionProgress
from rpcinspect.replayer.playing.rref_substitutes import give
from rpcinspect.replayer.playing.schedule import Schedule
from rpcinspect.replayer.playing.timeouts import Timeouts
from rpcinspect.replayer.workers.live_group import LeafGradient, LiveGroup
from rpcinspect.replayer.workers.parent_process import Waiting
from rpcinspect.replayer.workers.process_exit import EarlyExit
from rpcinspect.replayer.workers.seeds import Seeds
from rpcinspect.replayer.workers.workers import Workers
from rpcinspect.run.run import RunModel


@dataclass(eq=False)
class SharedState:
    """What the sessions of a replay have in common."""

    opened: RunModel
    options: ReplayOptions
    waiting: Waiting
    debugging: Debugging | None = None
    relay: DebugRelay | None = None
    silent: set[str] = field(default_factory=set)
    stubborn: set[str | None] = field(default_factory=set)
    """Functions that did not answer, or not soon, see `Timeouts` and `Schedule`."""


@dataclass(eq=False)
class SessionRun:
    """A session while it is played; `outcome` has the result afterwards, also after an exception."""

    shared: SharedState
    planned: PlannedSession
    seeds: Seeds = field(default_factory=Seeds)
    tick: Callable[[StepOutcome], None] = lambda outcome: None
    tap: TrafficRecorder | None = None
    mute: bool = False
    """Nothing of what its workers write is shown: it only looks for seeds, and the replay itself follows."""
    player: Player | None = None
    debugger: SessionDebugger | None = None
    gradients: Mapping[str, Mapping[int, tuple[LeafGradient, ...]]] | None = None
    ended: tuple[EarlyExit, ...] = ()
    trouble: list[str] = field(default_factory=list)
    """That the group which was joined could not be left."""

    def __post_init__(self) -> None:
        job, every = self.planned.cast.job, self.shared.opened.calls
        self.options = self.shared.options
        self.calls = {index: call for index, call in every.items() if call.job == job}
        """Those of its job."""

    @cached_property
    def placement(self) -> DevicePlacement:
        """The devices of tensors in this replay."""
        return DevicePlacement.of(self.options.devices, self.calls.values())

    @cached_property
    def ids(self) -> dict[str, int]:
        """Worker → captured id. Raises `ReplayError` if these can't be told apart."""
        return worker_ids(self.shared.opened.session, self.planned.cast, self.calls.values())

    def go(self, workers: Workers) -> None:
        """Plays the session with live workers that are started for it."""
        cast, ids = self.planned.cast, self.ids
        with LiveGroup(workers, self._memory()) as group:
            wait_s = 0.0
            try:
                group.seeds = self.seeds
                if self.shared.debugging is not None and not self.mute:
                    group.debug = self.shared.debugging.options.of_worker
                group.maps = self.placement.maps(ids, self.calls.values())
                for name in cast.live:
                    group.start(name, ids[name])
                self.debugger = self._debugger(group)
                self._play(group)
            except ReplayError:
                wait_s = GRACE_S  # a process that has ended may be why, and the system tells it late
                raise
            finally:
                ended = group.ended(wait_s)
                self.ended = ended if self.player is None else self.player.progress.with_last(ended)

    def join(self) -> None:
        """Plays the session in a group that others have started."""
        assert self.options.join is not None
        inputs, trouble = self.inputs(), self.trouble.append
        play_joined(inputs, self.options.join, self._new_player, tap=self.tap, trouble=trouble)

    def inputs(self) -> SessionInputs:
        """Returns the inputs of the player."""
        return SessionInputs(
            planned=self.planned,
            calls=self.calls,
            read=self.shared.opened.read,
            rules=self.options.rules,
            worker_ids=self.ids,
            ids_in_group=self.ids,
            programs=self.programs,
            elsewhere=self.placement.moves,
            making_s=MAKING_S if self.options.timeout_s is None else self.options.timeout_s,
            waiting=self.shared.waiting,
            kept=self.options.kept,
        )

    def _play(self, group: LiveGroup) -> None:
        if self.options.engine == "agent":
            self._play_agents(group)
            return
        cast, inputs = self.planned.cast, self.inputs()
        with (
            Loop(limits_for(inputs.largest), tap=self.tap) as loop,
            StoreClient("127.0.0.1", group.port, prefix=PREFIX, tap=self.tap) as store,
            contextlib.ExitStack() as stack,
        ):
            peers = {role: stack.enter_context(Peer(loop, role, self.ids[role])) for role in cast.roles}
            for name, number in self.programs.items():
                peers[name] = stack.enter_context(Peer(loop, f"{name}:program", number))
            membership = Membership(store, list(peers.values()))
            membership.join()  # nobody leaves: the group ends with the session
            self_callers = {
                step.role for step in self.planned.steps if step.action == "send" and step.role == step.to
            }
            for name in self_callers - peers.keys():
                peer = peers[name] = stack.enter_context(Peer(loop, name, self.ids[name]))
                peer.addresses[name] = store.get(f"addrs/{name}").decode("utf-8", "replace")
            give(inputs, loop, peers, membership.handle)
            self._run_player(group, loop, inputs, peers, membership.handle)

    def _play_agents(self, group: LiveGroup) -> None:
        """Plays the session with torch's agents in the place of played workers."""
        passes = passes_of(self.shared.opened, self.planned)
        early = frozenset().union(*(its.early for its in passes.values()))
        inputs = replace(self.inputs(), early=early)
        limits = limits_for(inputs.largest)
        with Loop(limits) as loop, StoreClient("127.0.0.1", group.port, prefix=PREFIX) as store:
            bring = ContextImporter(loop, store)
            agents = start_agents(group, loop, inputs, passes, self.placement, bring)
            # torch's agents see to their membership themselves
            self._run_player(group, loop, inputs, agents, lambda event: False)

    def _run_player(
        self,
        group: LiveGroup,
        loop: Loop,
        inputs: SessionInputs,
        peers: Mapping[str, PlayedWorker],
        handle: Handle,
    ) -> None:
        if self.mute:
            group.mute()
        held = Gradients(group.workers)
        clean_up = held.collect if self.options.gradients else lambda context: None
        try:
            self._new_player(inputs, loop, peers, handle, group.ended, clean_up).run()
            for context in sorted({one.context for one in self.calls.values() if one.context is not None}):
                clean_up(context)
        finally:
            self.gradients = held.found if self.options.gradients else None
            group.mute()  # what follows is that played workers are gone

    def _new_player(
        self,
        inputs: SessionInputs,
        loop: Loop,
        peers: Mapping[str, PlayedWorker],
        handle: Handle,
        ended: EndedProcesses = lambda seconds, known: (),
        clean_up: Callable[[int], None] = lambda context: None,
    ) -> Player:
        shared, options = self.shared, self.options
        progress = SessionProgress(
            inputs,
            peers,
            Timeouts(self.calls, options.timeout_s, shared.silent),
            Schedule(self.planned, self.calls, speed=options.speed, stubborn=shared.stubborn),
            debugger=self.debugger,
            done=self.tick,
        )
        self.player = Player(progress, loop, handle, clean_up=clean_up, ended=ended)
        return self.player

    def _debugger(self, group: LiveGroup) -> SessionDebugger | None:
        """The debugger of the session, whose live workers the relay serves from now on."""
        debugging, relay = self.shared.debugging, self.shared.relay
        if debugging is None or relay is None or self.mute:
            return None
        made = SessionDebugger(debugging, self.inputs(), group.workers)
        for name, worker in group.workers.items():
            for file in worker.child.control.take_files():
                relay.add(name, file, made)
        return made

    @cached_property
    def programs(self) -> dict[str, int]:
        """Live worker that gets calls of its own program in autograd contexts → an id for that program, which
        is played, and gets their gradients."""
        callers = {
            step.role for step in self.planned.steps if step.action == "answer" and step.role == step.to
        }
        free = (number for number in range(MAX_ID, 0, -1) if number not in self.ids.values())
        return dict(zip(sorted(callers), free, strict=False))

    def _memory(self) -> int | None:
        """Bytes that each live worker may take; None: as much as there is."""
        given = self.options.memory
        if given is None and self.options.devices.kind == "cuda":
            return None  # nobody has measured what CUDA takes in the host's memory
        return allowance(self.planned, self.calls) if given is None else given or None

    def outcome(self, failure: str | None) -> SessionOutcome:
        """The result of the session; `failure`: why it ended early."""
        failure = "; ".join([*filter(None, [failure]), *self.trouble]) or None
        if failure is not None and self.ended and self.ended[0].text not in failure:
            failure = f"{failure}; {self.ended[0].text}"
        steps, wall_s = not_played(self.planned, failure), 0.0
        inbound: tuple[InboundOutcome, ...] = ()
        if self.player is not None:
            progress, wall_s = self.player.progress, self.player.wall_s
            failure = progress.failure = failure or progress.failure
            steps, inbound = with_reasons(progress.all_outcomes(), progress.inbound, self.calls)
        return SessionOutcome(
            planned=self.planned,
            steps=steps,
            inbound=inbound,
            wall_s=wall_s,
            failure=failure,
            gradients=self.gradients,
            ended=self.ended,
        )

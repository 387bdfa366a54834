"""A whole replay: every session of a plan, each against fresh live workers; and nothing left behind.

In: an open session, a plan whose names the gate has passed, options. Out: a `ReplayOutcome`. Starts the
processes of live workers and ends all of them, whatever happens; what can't go on becomes the failure of its
session, and the next one begins. Longer than other modules: one place starts processes and ends them.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from functools import cached_property, partial
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from rpcinspect.equality.rules import Rules
from rpcinspect.errors import DeviceError, ReplayError
from rpcinspect.pickles.semantic import SCRIPT_PREFIX
from rpcinspect.replayer.agent.engine import ContextImporter, passes_of, start_agents
from rpcinspect.replayer.peers.loop import Handle, Loop, limits_for
from rpcinspect.replayer.peers.membership import PREFIX, Membership
from rpcinspect.replayer.peers.peer import Peer
from rpcinspect.replayer.peers.store_client import StoreClient
from rpcinspect.replayer.peers.traffic_pcap import TrafficRecorder
from rpcinspect.replayer.planning.devices import DevicePlacement, Devices
from rpcinspect.replayer.planning.model import Engine, Plan, PlannedSession, Step, some_of
from rpcinspect.replayer.planning.sessions import MAX_ID, worker_ids
from rpcinspect.replayer.playing.attach import JoinOptions, check, play_joined
from rpcinspect.replayer.playing.debugging import Debugging, DebugOptions, Gradients, SessionDebugger
from rpcinspect.replayer.playing.inputs import (
    MAKING_S,
    KeptMessages,
    PlayedWorker,
    SessionInputs,
    allowance,
)
from rpcinspect.replayer.playing.outcome import (
    InboundOutcome,
    ReplayOutcome,
    SeedSearch,
    SessionOutcome,
    StepOutcome,
    TrafficRecording,
    not_played,
    with_reasons,
)
from rpcinspect.replayer.playing.player import GRACE_S, EndedProcesses, Player
from rpcinspect.replayer.playing.rref_substitutes import give
from rpcinspect.replayer.playing.seed_search import EnoughError, search
from rpcinspect.replayer.playing.stops import Stops
from rpcinspect.replayer.playing.timeouts import Timeouts
from rpcinspect.replayer.workers.debug_relay import DebugRelay, Terminal
from rpcinspect.replayer.workers.live_group import LeafGradient, LiveGroup
from rpcinspect.replayer.workers.outputs import Show
from rpcinspect.replayer.workers.parent_process import ParentProcess, Waiting
from rpcinspect.replayer.workers.process_exit import EarlyExit
from rpcinspect.replayer.workers.seeds import Seeds
from rpcinspect.replayer.workers.workers import WorkerOptions, Workers
from rpcinspect.rpc.questions import failed
from rpcinspect.run.exchanges import Exchange
from rpcinspect.run.run import RunModel
from rpcinspect.signals import never_lost

OPTIMIZERS = ("torch.distributed.optim.", "torch.optim.")
LOADED_BY_OPTIMIZERS = "torch._dynamo.disable"
"""The first optimizer of a process imports its module, for seconds, while somebody waits for the answer."""

StepProgress = Callable[[int, int], None]
"""Called with the steps that are done and the steps that there are, skips left out."""


class ReplayOptions(Struct, frozen=True, kw_only=True):
    """How a plan is carried out."""

    workers: WorkerOptions = field(default_factory=WorkerOptions)
    parent: ParentProcess | None = None
    """One that was begun for these workers, and is theirs now; None: it is started when it is needed."""
    rules: Rules = field(default_factory=lambda: Rules(strict=True))
    """What counts as a difference. Forms should: identical answers have them."""
    timeout_s: float | None = None
    """The longest wait for an answer; None: as the captured times suggest."""
    memory: int | None = None
    """Bytes that each live worker may take beyond those that it has when it has joined; 0: as much as there
    is; None: as the captured sizes suggest."""
    speed: float | None = None
    """1.0: at the captured pace; None: as fast as causality allows."""
    repeat: int = 1
    record: Path | None = None
    """Where the played workers' own connections are written as a capture."""
    gradients: bool = False
    """Whether to show what the leaves of live workers hold in each context."""
    debug: DebugOptions | None = None
    """What to stop at and to look for; None: live workers have no debugger."""
    terminal: Terminal | None = None
    """Of their debuggers."""
    engine: Engine = "wire"
    """That of the plan."""
    devices: Devices = field(default_factory=Devices)
    """Where tensors are; the workers' options must allow CUDA for it."""
    join: JoinOptions | None = None
    """The group that others have started and that is joined; None: live workers are started."""
    seeds: Seeds = field(default_factory=Seeds)
    """Of the live workers."""
    show: Show | None = None
    """Shows lines that live workers write."""
    kept: KeptMessages | None = None
    """Where live messages that differ are kept; None: they are not."""
    search_seeds: range | None = None
    """Seeds to try for live workers whose messages are not as captured, before all else."""


@never_lost()
def replay(
    opened: RunModel,
    plan: Plan,
    options: ReplayOptions,
    *,
    progress: StepProgress | None = None,
    waiting: Waiting = lambda what, seconds: None,
    tell: Callable[[str], None] = lambda line: None,
    workers: Workers | None = None,
) -> ReplayOutcome:
    """Carries out a plan. `workers`: the parent process of live workers, if there is one already; it has its
    own options, imports nothing more, and stays. Of a plan with names that nobody allowed nothing is run.
    `waiting` is called each second in which nothing comes, `tell` before all else with what will fail.

    Raises `ReplayError` where nothing could be started: torch is absent or too old, or what the user or a
    captured request names can't be imported; `OutputError` where the recording can't be written at all.
    Ctrl-C ends it early: what was done until then is in the outcome.
    """
    began = time.monotonic()
    runs: list[tuple[SessionOutcome, ...]] = []
    interrupted = False
    replayer = _Replayer(opened, plan, options, progress, waiting)
    recorder = TrafficRecorder(options.record) if replayer.count and options.record is not None else None
    if replayer.count and not plan.refused:
        replayer.check()
        with recorder or contextlib.nullcontext(), contextlib.ExitStack() as stack:
            if replayer.debugging is not None:
                assert options.terminal is not None
                replayer.relay = stack.enter_context(DebugRelay(options.terminal))
            if workers is None and options.join is None:
                started = Workers(with_modules(options.workers, plan), options.show, waiting, options.parent)
                workers = stack.enter_context(started)
                replayer.check_names(workers)
                lacking = tuple(replayer.lacking(workers))
                plan = replace(plan, notes=(*plan.notes, *lacking))
                for line in lacking:
                    tell(line)
            if options.devices.kind == "cuda" and workers is not None:
                replayer.check_gpus(workers)
            interrupted = workers is not None and not replayer.search(workers)
            for _ in range(0 if interrupted else options.repeat):
                outcomes: list[SessionOutcome] = []
                try:
                    for planned in plan.sessions:
                        outcomes.append(replayer.play(planned, workers, recorder))
                except _Interrupted as error:
                    outcomes.append(error.outcome)
                    interrupted = True
                except KeyboardInterrupt:  # between two sessions
                    interrupted = True
                runs.append(tuple(outcomes))
                if interrupted:
                    break
    return ReplayOutcome(
        plan=plan,
        searches=tuple(replayer.searches),
        runs=tuple(runs),
        engine=options.engine,
        device=options.devices.kind,
        wall_s=time.monotonic() - began,
        captured_wall_s=replayer.captured_wall_s,
        interrupted=interrupted,
        missed_stops=tuple(sorted(replayer.debugging.missed)) if replayer.debugging is not None else (),
        recording=None
        if recorder is None
        else TrafficRecording(path=recorder.path, failure=recorder.failure),
    )


def with_modules(options: WorkerOptions, plan: Plan) -> WorkerOptions:
    """Lets the modules of everything that the plan brings to live workers be imported before they are forked:
    once, and not while a call is waited for."""
    names = [use.name.removeprefix(SCRIPT_PREFIX) for use in plan.globals if use.allowed or plan.trusted]
    if any(name.startswith(OPTIMIZERS) for name in names):
        names.append(LOADED_BY_OPTIMIZERS)
    return replace(options, names=(*options.names, *names))


def _is_torchs(name: str) -> bool:
    return name.partition(".")[0] == "torch"


class _Interrupted(Exception):
    """Ctrl-C during a session, with what was done until then; it never leaves this module."""

    def __init__(self, outcome: SessionOutcome) -> None:
        super().__init__()
        self.outcome = outcome


class _Replayer:
    """Plays the sessions of a replay, and keeps what they have in common."""

    def __init__(
        self,
        opened: RunModel,
        plan: Plan,
        options: ReplayOptions,
        progress: StepProgress | None,
        waiting: Waiting,
    ) -> None:
        self.opened = opened
        self.waiting = waiting
        self._plan = plan
        self.options = options
        self._progress = progress
        self._calls = opened.calls
        self.count = sum(session.count("send") for session in plan.sessions)
        self._all = options.repeat * sum(s.count("send") + s.count("answer") for s in plan.sessions)
        self._done = 0
        self.searches: list[SeedSearch] = []
        self._seeds: dict[int, Seeds] = {}
        """Of each session that was searched for seeds."""
        self.silent: set[str] = set()
        self.stubborn: set[str | None] = set()
        """Functions that did not answer, or not soon, see `Timeouts` and `Schedule`."""
        self.relay: DebugRelay | None = None
        self.debugging: Debugging | None = None
        if options.debug is not None and options.terminal is not None:
            stops = Stops.read(options.debug.stop_at, self._calls)
            stops.check(plan.sessions, self._calls)
            self.debugging = Debugging(options.debug, stops, options.terminal.say)
        moments = [call.begin_ns for call in self._calls.values()]
        moments += [call.end_ns for call in self._calls.values() if call.end_ns is not None]
        self.captured_wall_s = (max(moments) - min(moments)) / 1e9 if moments else 0.0

    def check(self) -> None:
        """Whether all sessions can be played in the group that is to be joined; `ReplayError` if not."""
        if self.options.join is not None:
            played = [planned for planned in self._plan.sessions if planned.count("send")]
            check([_SessionRun(self, planned).inputs() for planned in played], self.options.join)

    def play(
        self, planned: PlannedSession, workers: Workers | None, tap: TrafficRecorder | None
    ) -> SessionOutcome:
        """Plays a session, from the start of its live workers to their end; without `workers`, in the joined
        group."""
        if not planned.count("send"):
            return _SessionRun(self, planned).outcome(None)
        seeds = self._seeds.get(planned.number, self.options.seeds)
        return self._play(planned, workers, seeds, self._tick, tap=tap)

    def search(self, workers: Workers) -> bool:
        """Looks for seeds, session by session, if that is asked for; False: it was interrupted."""
        tries = self.options.search_seeds
        for planned in self._plan.sessions if tries is not None else ():
            if planned.count("send"):
                play = partial(self._play, planned, workers, tap=None, mute=True)
                try:
                    found = search(planned.number, tries or range(0), self.options.seeds, play, self._calls)
                except _Interrupted:
                    return False
                self.searches.append(found)
                self._seeds[planned.number] = found.seeds(self.options.seeds)
        return True

    def _play(
        self,
        planned: PlannedSession,
        workers: Workers | None,
        seeds: Seeds,
        done: Callable[[StepOutcome], None],
        *,
        tap: TrafficRecorder | None,
        mute: bool = False,
    ) -> SessionOutcome:
        run = _SessionRun(self, planned, seeds, done, tap, mute)
        try:
            if workers is not None:
                run.go(workers)
            else:
                run.join()
        except KeyboardInterrupt:
            raise _Interrupted(run.outcome("it was interrupted")) from None
        except ReplayError as error:
            return run.outcome(str(error))
        except EnoughError:
            pass
        return run.outcome(None)

    def check_names(self, workers: Workers) -> None:
        """Raises `ReplayError` where live workers can't find what a request calls or an answer holds, though
        the captured ones found it. Names of torch, which a release may lack, are told by `lacking`."""
        lines = [
            f"{name} ({some_of([f'#{index}' for index in needed])}): {why}"
            for name, needed, why in self._missing(workers)
            if not _is_torchs(name)
        ]
        if lines:
            raise ReplayError("\n".join(["live workers can't find what the capture names:", *lines]))

    def lacking(self, workers: Workers) -> Iterator[str]:
        """Yields what of torch itself requests name and the release of live workers lacks."""
        for name, needed, _ in self._missing(workers):
            if _is_torchs(name):
                its = some_of([f"#{index}" for index in needed])
                release = f"torch {workers.torch_version}"
                yield f"{release} lacks {name}, needed by {its}; --interpreter PY replays with another"

    def _missing(self, workers: Workers) -> Iterator[tuple[str, list[int], str]]:
        """Yields names that live workers can't find, the messages that need them, and why."""
        steps = [step for session in self._plan.sessions for step in session.steps]
        messages = {step.message for step in steps if step.action == "send" and not self._failed(step)}
        messages |= {step.answer for step in steps if step.action == "answer" and step.answer is not None}
        for use in self._plan.globals:
            name = use.name.removeprefix(SCRIPT_PREFIX)
            needed = sorted(messages.intersection(use.messages))
            if needed and name in workers.missing:
                yield name, needed, workers.missing[name]

    def _failed(self, step: Step) -> bool:
        answer = self._calls[step.message].response if step.message in self._calls else None
        return answer is not None and failed(answer)

    def check_gpus(self, workers: Workers) -> None:
        """Raises `DeviceError` unless torch has every GPU that something is to be on."""
        placement = DevicePlacement.of(self.options.devices, self._calls.values())
        needed = max([int(name.partition(":")[2]) for name in placement.used if name != "cpu"], default=0)
        found = workers.gpus()
        gpus = found.get("gpus")
        count = len(gpus) if isinstance(gpus, list) else 0
        if not count:
            why = "finds no GPU" if found.get("cuda") else "is built without CUDA"
            raise DeviceError(f"--device cuda: PyTorch {workers.torch_version} {why}")
        if needed >= count:
            raise DeviceError(
                f"cuda:{needed}: there are {count} GPUs; --map cuda:{needed}=cuda:0 moves its tensors"
            )

    def _tick(self, outcome: StepOutcome) -> None:
        self._done += 1
        if self._progress is not None:
            self._progress(self._done, self._all)


@dataclass(eq=False)
class _SessionRun:
    """A session while it is played; `outcome` has the result afterwards, also after an exception."""

    replay: _Replayer
    planned: PlannedSession
    seeds: Seeds = dataclass_field(default_factory=Seeds)
    tick: Callable[[StepOutcome], None] = lambda outcome: None
    tap: TrafficRecorder | None = None
    mute: bool = False
    """Nothing of what its workers write is shown: it only looks for seeds, and the replay itself follows."""
    player: Player | None = None
    debugger: SessionDebugger | None = None
    gradients: dict[str, dict[int, tuple[LeafGradient, ...]]] | None = None
    ended: tuple[EarlyExit, ...] = ()
    trouble: list[str] = dataclass_field(default_factory=list)
    """That the group which was joined could not be left."""

    @property
    def options(self) -> ReplayOptions:
        """Returns the options of the whole replay."""
        return self.replay.options

    @cached_property
    def calls(self) -> Mapping[int, Exchange]:
        """Those of its job."""
        every = self.replay.opened.calls
        return {index: call for index, call in every.items() if call.job == self.planned.cast.job}

    @cached_property
    def placement(self) -> DevicePlacement:
        """The devices of tensors in this replay."""
        return DevicePlacement.of(self.options.devices, self.calls.values())

    @cached_property
    def ids(self) -> dict[str, int]:
        """Worker → captured id. Raises `ReplayError` if these can't be told apart."""
        return worker_ids(self.replay.opened.session, self.planned.cast, self.calls.values())

    def go(self, workers: Workers) -> None:
        """Plays the session with live workers that are started for it."""
        cast, ids = self.planned.cast, self.ids
        with LiveGroup(workers, self._memory()) as group:
            wait_s = 0.0
            try:
                group.seeds = self.seeds
                if self.replay.debugging is not None and not self.mute:
                    group.debug = self.replay.debugging.options.of_worker
                group.maps = self.placement.maps(ids, self.calls.values())
                for name in cast.live:
                    group.start(name, ids[name])
                self.debugger = self._debugger(group)
                self._play(group)
            except ReplayError:
                wait_s = GRACE_S  # a process that has ended may be why, and the system tells it late
                raise
            finally:
                self._note_ended(group, wait_s)

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
            read=self.replay.opened.read,
            rules=self.options.rules,
            worker_ids=self.ids,
            programs=self.programs,
            elsewhere=self.placement.moves,
            making_s=MAKING_S if self.options.timeout_s is None else self.options.timeout_s,
            waiting=self.replay.waiting,
            kept=self.options.kept,
        )

    def _play(self, group: LiveGroup) -> None:
        if self.options.engine == "agent":
            self._play_agents(group)
            return
        cast = self.planned.cast
        with (
            Loop(limits_for(self.inputs().largest), tap=self.tap) as loop,
            StoreClient("127.0.0.1", group.port, prefix=PREFIX, tap=self.tap) as store,
            contextlib.ExitStack() as stack,
        ):
            peers = {role: stack.enter_context(Peer(loop, role, self.ids[role])) for role in cast.roles}
            for name, number in self.programs.items():
                peers[name] = stack.enter_context(Peer(loop, f"{name}:program", number))
            membership = Membership(store, list(peers.values()))
            membership.join()  # nobody leaves: the group ends with the session
            for name in self._self_callers() - peers.keys():
                peer = peers[name] = stack.enter_context(Peer(loop, name, self.ids[name]))
                peer.addresses[name] = store.get(f"addrs/{name}").decode("utf-8", "replace")
            inputs = self.inputs()
            give(inputs, loop, peers, membership.handle)
            self._run_player(group, loop, inputs, peers, membership.handle)

    def _play_agents(self, group: LiveGroup) -> None:
        """Plays the session with torch's agents in the place of played workers."""
        passes = passes_of(self.replay.opened, self.planned)
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
            if self.options.gradients:
                for context in sorted(
                    {one.context for one in self.calls.values() if one.context is not None}
                ):
                    held.collect(context)
        finally:
            if self.options.gradients:
                self.gradients = held.found
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
        timeouts = Timeouts(self.calls, self.options.timeout_s, self.replay.silent, self.replay.stubborn)
        speed = self.options.speed
        self.player = Player(
            inputs,
            loop,
            peers,
            handle,
            timeouts,
            speed=speed,
            debugger=self.debugger,
            clean_up=clean_up,
            ended=ended,
            done=self.tick,
        )
        return self.player

    def _debugger(self, group: LiveGroup) -> SessionDebugger | None:
        """The debugger of the session, whose live workers the relay serves from now on."""
        debugging, relay = self.replay.debugging, self.replay.relay
        if debugging is None or relay is None or self.mute:
            return None
        made = SessionDebugger(debugging, self.inputs(), group.workers)
        for name, worker in group.workers.items():
            for file in worker.child.control.take_files():
                relay.add(name, file, made)
        return made

    def _self_callers(self) -> set[str]:
        """Live workers to which a call of their own is sent."""
        return {step.role for step in self.planned.steps if step.action == "send" and step.role == step.to}

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

    def _note_ended(self, group: LiveGroup, wait_s: float) -> None:
        ended = group.ended(wait_s)
        self.ended = ended if self.player is None else self.player.with_last(ended)

    def outcome(self, failure: str | None) -> SessionOutcome:
        """The result of the session; `failure`: why it ended early."""
        failure = "; ".join([*filter(None, [failure]), *self.trouble]) or None
        if failure is not None and self.ended and self.ended[0].text not in failure:
            failure = f"{failure}; {self.ended[0].text}"
        player = self.player
        steps = not_played(self.planned, failure)
        inbound: tuple[InboundOutcome, ...] = ()
        if player is not None:
            failure = player.failure = failure or player.failure
            steps, inbound = with_reasons(player.outcomes(), player.inbound, self.calls)
        return SessionOutcome(
            planned=self.planned,
            steps=steps,
            inbound=inbound,
            wall_s=0.0 if player is None else player.wall_s,
            failure=failure,
            gradients=self.gradients,
            ended=self.ended,
        )

"""What the command line says of a replay, what is wrong with it, and what the plan and the engine take of it.

In: values of options. Out: a `Request`; one line about the first mistake in it; options for below.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from rpcinspect.commands.arguments import ReadingRequest, names, read_size, renames, wrong_tolerances
from rpcinspect.commands.output import overwriting
from rpcinspect.equality.rules import Rules
from rpcinspect.fields.phrases import read_packed
from rpcinspect.pipeline import Options, Progress
from rpcinspect.replayer.peers.running_group import StoreAddress
from rpcinspect.replayer.planning.allowances import Allowance
from rpcinspect.replayer.planning.devices import DEVICE, Devices, plain
from rpcinspect.replayer.planning.gate import Gate
from rpcinspect.replayer.planning.model import Engine
from rpcinspect.replayer.planning.plan import PlanOptions
from rpcinspect.replayer.planning.sources import Sources
from rpcinspect.replayer.playing.attach import JoinOptions
from rpcinspect.replayer.replayer import ReplayOptions
from rpcinspect.replayer.workers.seeds import MAX_TRIES, read_range, read_seed, read_seeds
from rpcinspect.replayer.workers.workers import WorkerOptions

MAX_THREADS = 1024


class Request(ReadingRequest, frozen=True, kw_only=True):
    """What the command line asked for; see `cli.replay` for the meaning of each."""

    plan: bool = False
    roles: tuple[str, ...] = ()
    live: tuple[str, ...] = ()
    context: str | None = None
    allow: tuple[str, ...] = ()
    paths: tuple[Path, ...] = ()
    main: Path | None = None
    trust: bool = False
    imports: tuple[str, ...] = ()
    seeds: tuple[str, ...] = ()
    search_seed: str | None = None
    stand_ins: bool = False
    threads: int = 1
    memory: str | None = None
    timeout_s: float | None = None
    speed: float | None = None
    repeat: int = 1
    tolerance: bool = False
    rtol: float | None = None
    atol: float | None = None
    engine: Engine | None = None
    device: Literal["cpu", "cuda"] = "cpu"
    maps: tuple[str, ...] = ()
    record: Path | None = None
    show_gradients: bool = False
    require_all: bool = False
    show_all: bool = False
    export: Path | None = None
    message: int | None = None
    pytest: bool = False
    quiet_workers: bool = False
    format: Literal["table", "jsonl"] = "table"
    connect: str | None = None
    renames: tuple[str, ...] = ()
    yes_join: bool = False
    leave: tuple[str, ...] = ()

    @property
    def jsonl(self) -> bool:
        """Lines of the contract, not text."""
        return self.format == "jsonl"

    @property
    def player(self) -> Engine:
        """The engine: only torch's own agent can use a GPU, or place tensors."""
        return self.engine or ("agent" if self.device == "cuda" or self.maps else "wire")

    @property
    def seed(self) -> int | None:
        """That of every live worker which has none of its own."""
        return read_seeds(self.seeds).everybody

    def memory_bytes(self) -> int | None:
        """As `ReplayOptions` has it."""
        return None if self.memory is None else 0 if self.memory == "none" else read_size(self.memory)

    def device_map(self) -> dict[str, str]:
        """Captured device → device of the replay, as `--map` says it."""
        pairs = (pair.partition("=") for pair in names(self.maps))
        return {plain(own): plain(other) for own, _, other in pairs}

    def decoding_options(self, progress: Progress | None = None) -> Options:
        """For the captures."""
        return Options(audit=False, reading=self.reading(), progress=progress)

    def sources(self) -> Sources:
        """The user's files. Raises `OutputError` for those that can't be read."""
        return Sources(self.main, self.paths)

    def gate(self, sources: Sources) -> Gate:
        """Who may be imported and called."""
        return Gate([found for found in map(Allowance.parse, self.allow) if found is not None], sources)

    def plan_options(self) -> PlanOptions:
        """For the plan."""
        return PlanOptions(
            roles=names(self.roles),
            live=names(self.live),
            context=None if self.context is None else read_packed(self.context),
            trust=self.trust,
            engine=self.player,
            stand_ins=self.stand_ins,
            joins=self.connect is not None,
        )

    def replay_options(self, sources: Sources) -> ReplayOptions:
        """For the engine. What was judged by the user's files must be imported from them."""
        folders = [path.parent if path.is_file() else path for path in self.paths]
        return ReplayOptions(
            workers=WorkerOptions(
                path=tuple(dict.fromkeys(map(str, folders))),
                imports=self.imports,
                files=() if self.trust else tuple(sources.files().items()),
                main=None if self.main is None else str(self.main),
                threads=self.threads,
                cuda=self.device == "cuda",
            ),
            rules=self.rules(),
            timeout_s=self.timeout_s,
            memory=self.memory_bytes(),
            speed=self.speed,
            repeat=self.repeat,
            record=self.record,
            show_gradients=self.show_gradients,
            devices=Devices(self.device, self.device_map()),
            engine=self.player,
            join=self.join_options(),
            seeds=read_seeds(self.seeds),
            search_seeds=None if self.search_seed is None else read_range(self.search_seed),
        )

    def join_options(self) -> JoinOptions | None:
        """For a group that others have started."""
        store = None if self.connect is None else StoreAddress.parse(self.connect)
        return None if store is None else JoinOptions(store=store, renames=renames(self.renames) or {})

    def rules(self) -> Rules:
        """Identical means the same form too."""
        return Rules(rtol=self.rtol, atol=self.atol, by_dtype=self.tolerance, strict=True)


def mistake(request: Request) -> str | None:
    """What is wrong with the options, in one line."""
    return next(_mistakes(request), None)


def _mistakes(request: Request) -> Iterator[str]:
    if not request.files and not request.leave:
        yield "no capture is named: give FILE, or - for standard input"
    yield from _wrong_group(request)
    if request.files.count("-") > 1:
        yield "standard input can be read only once"
    if request.roles and request.live:
        yield "--role and --live can't be used together: each says who the others are"
    yield from _wrong_engine(request)
    for allowed in request.allow:
        if Allowance.parse(allowed) is None:
            yield f"--allow {allowed}: none of MODULE, MODULE:NAME, MODULE:CLASS.METHOD and aten::NAME"
    for module in request.imports:
        if not all(part.isidentifier() for part in module.split(".")):
            yield f"--import {module}: not the name of a module"
    if request.context is not None and read_packed(request.context) is None:
        yield f"--context {request.context}: not a context id, such as 3 or 0:3"
    yield from request.wrong_reading()
    yield from _wrong_numbers(request)
    yield from _wrong_export(request)
    yield from _overwritten(request)


def _wrong_engine(request: Request) -> Iterator[str]:
    if request.record is not None and request.player == "agent":
        yield "--record writes the connections of the wire engine; torch's agent has its own"
    if request.stand_ins and request.player == "agent":
        yield "--stand-ins needs the wire engine: torch's agent can't make an RRef under a captured id"
    if request.engine == "wire" and request.device == "cuda":
        yield "--device cuda needs --engine agent: our own peers have no GPU"
    if request.engine == "wire" and request.maps:
        yield "--map needs --engine agent: with the wire engine everything is on the CPU"
    for pair in names(request.maps):
        own, equals, other = pair.partition("=")
        if not equals or not all(DEVICE.fullmatch(plain(one)) for one in (own, other)):
            yield f"--map {pair}: not CAPTURED=LIVE, such as cuda:0=cuda:1"
        elif request.device == "cpu" and plain(other) != "cpu":
            yield f"--map {pair}: {other} needs --device cuda"


def _wrong_group(request: Request) -> Iterator[str]:
    """About a group that others have started."""
    given = renames(request.renames)
    if given is None or len(set(given.values())) < len(given):
        yield "--rename: not CAPTURED=MEMBER with each name once"
    if request.connect is None:
        for option in request.given("leave renames"):
            yield f"{option} needs --connect tcp://HOST:PORT: the store of the group"
        if request.yes_join:
            yield "--yes-join is for --connect"
        return
    if StoreAddress.parse(request.connect) is None:
        yield f"--connect {request.connect}: not tcp://HOST:PORT, the store of the group"
    if request.leave and (request.files or request.plan):
        yield "--leave replays nothing: it takes no capture and no --plan"
    theirs = request.given("imports seeds search_seed stand_ins threads memory show_gradients")
    for option in [*theirs, *(["--engine agent"] if request.player != "wire" else [])]:
        yield f"{option} can't be used with --connect: the group's workers run already, and are not ours"


def _wrong_numbers(request: Request) -> Iterator[str]:
    for word in request.seeds:
        if read_seed(word) is None:
            yield f"--seed {word}: not N or NAME=N; torch takes seeds of 64 bits"
    if request.search_seed is not None and read_range(request.search_seed) is None:
        yield f"--search-seed {request.search_seed}: not FROM:TO, such as 0:100, of at most {MAX_TRIES:,}"
    if not 1 <= request.threads <= MAX_THREADS:
        yield f"--threads {request.threads}: a number from 1 to {MAX_THREADS}"
    if request.memory not in (None, "none") and not request.memory_bytes():
        yield f"--memory {request.memory}: not a size, such as 4GB, or none"
    if request.repeat < 1:
        yield f"--repeat {request.repeat}: a number from 1 up"
    for name, value in (("--timeout", request.timeout_s), ("--speed", request.speed)):
        if value is not None and not 0 < value < math.inf:
            yield f"{name} {value:g}: a finite number above 0"
    yield from wrong_tolerances(request.rtol, request.atol)


def _wrong_export(request: Request) -> Iterator[str]:
    if request.export is None:
        for option in request.given("message pytest"):
            yield f"{option} goes with --export"
        return
    if request.main is not None and not request.main.stem.isidentifier():
        yield f"{request.main}: a script can't import a module of that name; rename a copy of it"
    if request.message is not None and request.context is not None:
        yield "--message and --context can't be used together"
    if request.plan or request.jsonl or request.output is not None:
        yield "--export writes a folder: --plan, --format and --output have nothing to say there"
    unused = "stand_ins search_seed record repeat speed engine device memory maps connect show_gradients"
    for option in request.given(f"{unused} tolerance rtol atol"):
        name = "a tolerance" if option in ("--tolerance", "--rtol", "--atol") else option
        yield f"{name} is for a replay: a script that --export writes compares every bit, once"


def _overwritten(request: Request) -> Iterator[str]:
    inputs = [*request.files, *(str(path) for path in (request.main, *request.paths) if path is not None)]
    yield from overwriting({"--output": request.output, "--record": request.record}, inputs)
    named = [path.absolute() for path in (request.output, request.record) if path is not None]
    if len(set(named)) < len(named):
        yield f"{request.record}: --output and --record are the same file"

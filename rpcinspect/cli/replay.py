"""`rpcinspect replay`: captured requests to live workers, which it starts."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from msgspec.structs import replace

from rpcinspect.cli.ci_reports import reported
from rpcinspect.cli.guard import UsageMistake
from rpcinspect.cli.options import option
from rpcinspect.cli.replay_debugging import DebuggingOptions
from rpcinspect.cli.replay_options import (
    COMPARING,
    LACKS,
    LIVE,
    LOOKING,
    SENDING,
    ImportOption,
    SeedOption,
    read_workers,
)

if TYPE_CHECKING:
    from rpcinspect.replayer.options import ReplayOptions
    from rpcinspect.replayer.planning.model import Engine
    from rpcinspect.replayer.planning.plan import PlanOptions
    from rpcinspect.replayer.planning.sources import Sources
    from rpcinspect.replayer.workers.parent_process import ParentProcess
    from rpcinspect.replayer.workers.workers import WorkerOptions


class ReplayCommand(DebuggingOptions, frozen=True, kw_only=True):
    """Resend captured requests to live workers and compare the answers.

    Live workers run what the capture names: it must come from senders whom you trust. What you did not allow
    is refused before anything of it runs.
    """

    EXAMPLES: ClassVar = (
        "replay run.pcap --plan",
        "replay run.pcap --path ./src --main train.py",
        "replay run.pcap --path . --context 0:3 --seed 1 --tolerance",
        "replay run.pcap --path . --require-all --format jsonl",
        "replay run.pcap --path . --stop-at nonfinite",
        "replay run.pcap --path ./src --against ./fixed",
        "replay run.pcap --path . --matrix torch==2.13.0,torch==2.14.1",
    )

    imports: ImportOption = []
    seeds: SeedOption = []
    search_seed: Annotated[
        str | None,
        option("--search-seed [FROM:]TO", "Try these seeds until a differing answer matches.", **LACKS),
    ] = None
    stand_ins: Annotated[
        bool, option("--stand-ins", "Fill RRefs older than the capture from captured answers.", **LACKS)
    ] = False
    every_worker: Annotated[
        bool, option("--every-worker", "Run each worker live in its turn, alone; play the others.", **LIVE)
    ] = False
    provide: Annotated[
        list[str],
        option(
            "--provide RREF=MODULE:FUNCTION", "Make an RRef older than the capture by this call.", **LACKS
        ),
    ] = []
    checkpoints: Annotated[
        list[str],
        option("--checkpoint RREF=FILE", "Load this state_dict into the object of an RRef.", **LACKS),
    ] = []
    restore_parameters: Annotated[
        bool,
        option(
            "--restore-parameters", "Put the parameters that the capture shows into live workers.", **LACKS
        ),
    ] = False
    threads: Annotated[
        str,
        option(
            "--threads N,…", "Set the threads per live worker; of several, replay with each.", **COMPARING
        ),
    ] = "1"
    against: Annotated[
        Path | None,
        option(
            "--against DIR",
            "Replay with these sources too (or a FILE for --main); compare by message.",
            **COMPARING,
        ),
    ] = None
    matrix: Annotated[
        list[str],
        option(
            "--matrix ENV,…",
            "Replay in each of these: torch==X, the path of a Python, or NAME=PATH.",
            **COMPARING,
        ),
    ] = []
    interpreter: Annotated[
        str | None,
        option("--interpreter PY", "Run live workers in this Python; it needs torch only.", **COMPARING),
    ] = None
    memory: Annotated[
        str | None,
        option(
            "--memory SIZE",
            "Limit each live worker's memory, such as 8GB, or none. Default: from captured sizes.",
            **SENDING,
        ),
    ] = None
    engine: Annotated[
        Literal["wire", "agent"] | None,
        option(
            "--engine",
            "Send with rpcinspect's own peers (wire) or torch's agent (agent; also CUDA).",
            **SENDING,
        ),
    ] = None
    device: Annotated[
        Literal["cpu", "cuda"], option("--device", "Use this device; cuda needs --engine agent.", **SENDING)
    ] = "cpu"
    maps: Annotated[
        list[str], option("--map CAPTURED=LIVE,…", "Map devices, such as cuda:0=cuda:1.", **SENDING)
    ] = []
    quiet_workers: Annotated[bool, option("--quiet-workers", "Hide what live workers print.", **LOOKING)] = (
        False
    )

    def run(self) -> int:
        """Replays; returns the exit code."""
        with reported(self, "replay", self.files):
            return self._replayed()

    def _replayed(self) -> int:
        if self.against is not None:
            with self._begun() as first, self._begun() as second:
                from rpcinspect.cli.against import replayed_against

                return replayed_against(self, first, second)
        if not self.plan and (self.matrix or len(self.thread_counts()) > 1):
            from rpcinspect.cli.matrix import replayed_in_each

            return replayed_in_each(self)
        with self._begun() as parent:
            from rpcinspect.cli.replaying import replayed

            return replayed(self, parent=parent)

    def _begun(self) -> AbstractContextManager["ParentProcess | None"]:
        """Begins the process that live workers are forked from: it imports torch, which takes longest, while
        all else is imported here, and the capture is read. None where it is not known yet which Python that
        is, or where there is no torch."""
        from rpcinspect.cli.requirements import missing_cuda, missing_torch
        from rpcinspect.replayer.workers.parent_process import ParentProcess

        cuda = self.device == "cuda"
        if self.plan or self.interpreter is not None or missing_torch() or (cuda and missing_cuda()):
            return nullcontext()
        return ParentProcess(threads=self.thread_counts()[0], cuda=cuda)

    @property
    def player(self) -> "Engine":
        """Returns the engine; only torch's own agent can use a GPU, or place tensors."""
        return self.engine or ("agent" if self.device == "cuda" or self.maps else "wire")

    def plan_options(self) -> "PlanOptions":
        return replace(
            super().plan_options(),
            every_worker=self.every_worker,
            stand_ins=self.stand_ins,
            provide=tuple(self._provided().items()),
            checkpoints=tuple(self._by_rref("--checkpoint", self.checkpoints, "FILE").items()),
            restore_parameters=self.restore_parameters,
        )

    def _provided(self) -> dict[tuple[int, int], str]:
        from rpcinspect.replayer.planning.provisions import is_source

        found = self._by_rref("--provide", self.provide, "MODULE:FUNCTION")
        for rref, source in found.items():
            if not is_source(source):
                form = "MODULE:FUNCTION, MODULE:FUNCTION(1, 'text') or RREF.ATTRIBUTE"
                raise UsageMistake(f"--provide {rref[0]}:{rref[1]}={source}: not {form}")
            if self.main is not None and source.startswith(f"{self.main.stem}:"):
                found[rref] = f"__main__{source[len(self.main.stem) :]}"  # or it would be run once more
        return found

    def _by_rref(self, name: str, given: list[str], form: str) -> dict[tuple[int, int], str]:
        """Reads RREF=VALUE, each RRef once; the path of a file becomes absolute."""
        from rpcinspect.cli.arguments import read_rref

        found: dict[tuple[int, int], str] = {}
        for word in given:
            text, _, value = word.partition("=")
            rref = read_rref(text)
            if rref is None or not value:
                raise UsageMistake(f"{name} {word}: not RREF={form}, such as 0:2={form}")
            if rref in found:
                raise UsageMistake(f"{name} {word}: {text} is given twice")
            if form == "FILE" and not Path(value).is_file():
                raise UsageMistake(f"{name} {word}: {value} is not a file")
            found[rref] = str(Path(value).absolute()) if form == "FILE" else value
        return found

    def thread_counts(self) -> list[int]:
        """Returns each number of threads to replay with."""
        counts = [word.strip() for word in self.threads.split(",")]
        if not all(word.isascii() and word.isdigit() for word in counts):
            raise UsageMistake(f"--threads {self.threads}: not N, nor several such as 1,4")
        return list(dict.fromkeys(map(int, counts)))

    def replay_options(self, files: "Sources") -> "ReplayOptions":
        from rpcinspect.cli.arguments import read_size
        from rpcinspect.replayer.planning.devices import Devices
        from rpcinspect.replayer.workers.seeds import MAX_TRIES, read_range

        memory = None if self.memory is None else 0 if self.memory == "none" else read_size(self.memory)
        if self.memory is not None and memory is None:
            raise UsageMistake(f"--memory {self.memory}: not a size, such as 4GB, or none")
        tried = None if self.search_seed is None else read_range(self.search_seed)
        if self.search_seed is not None and tried is None:
            form = f"not FROM:TO, such as 0:100, of at most {MAX_TRIES:,}"
            raise UsageMistake(f"--search-seed {self.search_seed}: {form}")
        options = super().replay_options(files)
        return replace(
            options,
            memory=memory,
            devices=Devices(self.device, self._device_map()),
            seeds=read_workers(self.imports, self.seeds, *self.thread_counts()),
            search_seeds=tried,
            show=None if self.quiet_workers or options.terminal is None else options.terminal.show,
        )

    def _device_map(self) -> dict[str, str]:
        """Captured device → device of the replay."""
        from rpcinspect.cli.arguments import names
        from rpcinspect.replayer.planning.devices import DEVICE, plain

        found = {}
        for pair in names(self.maps):
            own, equals, other = pair.partition("=")
            if not equals or not all(DEVICE.fullmatch(plain(one)) for one in (own, other)):
                raise UsageMistake(f"--map {pair}: not CAPTURED=LIVE, such as cuda:0=cuda:1")
            if self.device == "cpu" and plain(other) != "cpu":
                raise UsageMistake(f"--map {pair}: {other} needs --device cuda")
            found[plain(own)] = plain(other)
        return found

    def worker_options(self, files: "Sources") -> "WorkerOptions":
        from rpcinspect.replayer.planning.provisions import functions_of
        from rpcinspect.replayer.workers.interpreters import examine

        other = None if self.interpreter is None or self.plan else examine(self.interpreter)
        return replace(
            super().worker_options(files),
            interpreter=other,
            imports=tuple(self.imports),
            names=tuple(functions_of(self._provided().values())),
            threads=self.thread_counts()[0],
            cuda=self.device == "cuda",
        )

    def mistakes(self) -> Iterator[str]:
        yield from super().mistakes()
        if self.every_worker and (self.roles or self.live_workers):
            yield "--every-worker can't be used with --role or --live: each says who is live"
        if self.matrix and not any(word.strip(", ") for word in self.matrix):
            yield "--matrix: name an environment, such as torch==2.13.0"
        if self.matrix and self.interpreter is not None:
            yield "--matrix can't be used with --interpreter: each says where live workers run"
        stops = bool(self.stop_at) or self.debug_port is not None
        if stops and (self.matrix or "," in self.threads or self.against is not None):
            yield "--stop-at and --debug-port hold one replay: not for --matrix, --against, several --threads"
        if self.plan and (self.matrix or "," in self.threads):
            yield "--plan can't be used with --matrix or several --threads: the plan is the same in each"
        if self.against is not None:
            yield from self._against_mistakes()
        several = self.matrix or "," in self.threads
        for name, output in (("--record", self.record), ("--junit", self.junit)):
            if output is not None and several:
                yield f"{name} can't be used with --matrix or several --threads: it writes one replay"
        if self.record is not None and self.player == "agent":
            yield "--record writes the connections of the wire engine; torch's agent has its own"
        if self.stand_ins and self.player == "agent":
            yield "--stand-ins needs the wire engine: torch's agent can't make an RRef under a captured id"
        if (self.provide or self.checkpoints or self.restore_parameters) and self.player == "agent":
            yield "--provide, --checkpoint and --restore-parameters need the wire engine"
        if self.engine == "wire" and self.device == "cuda":
            yield "--device cuda needs --engine agent: our own peers have no GPU"
        if self.engine == "wire" and self.maps:
            yield "--map needs --engine agent: with the wire engine everything is on the CPU"

    def _against_mistakes(self) -> Iterator[str]:
        """What can't be used with `--against`."""
        if self.main is None and not self.paths:
            yield "--against needs --path or --main: the sources to compare with"
        others = {"--plan": self.plan, "--matrix": self.matrix, "--record": self.record is not None}
        others |= {"--junit": self.junit is not None}
        others |= {"several --threads": "," in self.threads, "--search-seed": self.search_seed is not None}
        for name, given in others.items():
            if given:
                yield f"--against can't be used with {name}"

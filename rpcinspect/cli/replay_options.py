"""Options of the commands that make captured calls again: `replay`, `join` and `reproduce`.

In: values from the command line. Out: classes of options, and what a plan and a replay take of them.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from rpcinspect.cli.ci_reports import AnnotationsOption, JunitOption, report_mistakes
from rpcinspect.cli.guard import UsageMistake
from rpcinspect.cli.options import (
    AtolOption,
    CaptureOptions,
    FormatOption,
    OutputOption,
    RtolOption,
    ToleranceOption,
    below,
    option,
)

if TYPE_CHECKING:
    from rpcinspect.replayer.options import ReplayOptions
    from rpcinspect.replayer.peers.running_group import StoreAddress
    from rpcinspect.replayer.planning.gate import ExecutionPolicy
    from rpcinspect.replayer.planning.model import Engine
    from rpcinspect.replayer.planning.plan import PlanOptions
    from rpcinspect.replayer.planning.sources import Sources
    from rpcinspect.replayer.workers.seeds import Seeds
    from rpcinspect.replayer.workers.workers import WorkerOptions

MAX_THREADS = 1024

LIVE = below("Who is live, and what is replayed")
MAY = below("What may run")
LACKS = below("What the capture lacks")
SENDING = below("How it is sent")
LOOKING = below("Looking into live workers")
COMPARING = below("Other code, other environments")

ImportOption = Annotated[
    list[str], option("--import MODULE", "Import this module in live workers first; repeatable.", **MAY)
]
SeedOption = Annotated[
    list[str], option("--seed [NAME=]N", "Seed all live workers, or one; repeatable.", **LACKS)
]
ThreadsOption = Annotated[int, option("--threads N", "Set the threads per live worker; sums may change.")]
YesOption = Annotated[bool, option("--yes", "Confirm that the running group may be changed.")]


class SelectedOptions(CaptureOptions, frozen=True, kw_only=True):
    """Which captured calls are made again, and what they may run."""

    roles: Annotated[
        list[str],
        option("--role NAME,…", "Play these workers: send their captured messages; run the others.", **LIVE),
    ] = []
    live_workers: Annotated[
        list[str], option("--live NAME,…", "Run these workers; play the others.", **LIVE)
    ] = []
    context: Annotated[
        str | None,
        option("--context ID", "Replay only this autograd context and what it depends on.", **LIVE),
    ] = None
    allow: Annotated[
        list[str],
        option(
            "--allow MODULE[:NAME]", "Allow importing and calling this module, name or aten::NAME.", **MAY
        ),
    ] = []
    paths: Annotated[
        list[Path], option("--path DIR", "Allow what the sources in DIR define, as found by parsing.", **MAY)
    ] = []
    main: Annotated[
        Path | None, option("--main FILE", "Take the names of __main__ from this script of the job.", **MAY)
    ] = None
    trust: Annotated[bool, option("--trust-capture", "Allow everything that the capture names.", **MAY)] = (
        False
    )
    timeout_s: Annotated[
        float | None,
        option("--timeout SECONDS", "Wait this long for an answer. Default: from captured times.", **SENDING),
    ] = None
    require_all: Annotated[bool, option("--require-all", "Exit with 1 if a request was skipped.")] = False

    @property
    def player(self) -> "Engine":
        """The engine that plays."""
        return "wire"

    def plan_options(self) -> "PlanOptions":
        """Returns which requests a plan takes."""
        from rpcinspect.cli.arguments import context_id, names
        from rpcinspect.replayer.planning.plan import PlanOptions

        return PlanOptions(
            roles=names(self.roles),
            live=names(self.live_workers),
            context=context_id(self.context),
            trust=self.trust,
            engine=self.player,
        )

    def user_files(self) -> "Sources":
        """Returns the user's files. Raises `OutputError` for those that can't be read."""
        from rpcinspect.replayer.planning.sources import Sources

        return Sources(self.main, tuple(self.paths))

    def gate(self, files: "Sources") -> "ExecutionPolicy":
        """Returns the policy for imports and calls."""
        from rpcinspect.replayer.planning.allowances import Allowance
        from rpcinspect.replayer.planning.gate import ExecutionPolicy

        allowed = {word: Allowance.parse(word) for word in self.allow}
        for word, found in allowed.items():
            if found is None:
                form = "not MODULE, MODULE:NAME, MODULE:CLASS.METHOD or aten::NAME"
                raise UsageMistake(f"--allow {word}: {form}")
        return ExecutionPolicy([found for found in allowed.values() if found is not None], files)

    def inputs(self) -> list[str]:
        return [*self.files, *(str(path) for path in (self.main, *self.paths) if path is not None)]

    def mistakes(self) -> Iterator[str]:
        yield from super().mistakes()
        if self.roles and self.live_workers:
            yield "--role and --live can't be used together: each says who the others are"


class PlayOptions(SelectedOptions, frozen=True, kw_only=True):
    """Options for sending captured calls to live workers, and for reporting the outcome."""

    EXITS: ClassVar[Mapping[int, str]] = {
        0: "identical, or within the tolerance given; with --plan always",
        1: "different, failed or nothing to replay; with --require-all: a request was skipped",
        2: "wrong options, no PyTorch, or the output can't be written",
        3: "not readable as a capture",
        4: "refused: it would run what you did not allow; nothing was replayed",
        130: "interrupted",
    }

    plan: Annotated[bool, option("--plan", "Show what would be sent or skipped; start nothing.")] = False
    speed: Annotated[
        float | None,
        option("--speed X", "Send at X times the captured pace. Default: as fast as possible.", **SENDING),
    ] = None
    repeat: Annotated[int, option("--repeat N", "Replay everything this many times.", **SENDING)] = 1
    tolerance: ToleranceOption = False
    rtol: RtolOption = None
    atol: AtolOption = None
    record: Annotated[Path | None, option("--record PCAP", "Save the replay's own traffic as a capture.")] = (
        None
    )
    show_all: Annotated[bool, option("-a --all", "Show every step; of a plan the agents' own calls too.")] = (
        False
    )
    format: FormatOption = "table"
    output: OutputOption = None
    junit: JunitOption = None
    annotations: AnnotationsOption = None

    def replay_options(self, files: "Sources") -> "ReplayOptions":
        """Returns how a plan is carried out."""
        from rpcinspect.cli.arguments import above_zero, rules
        from rpcinspect.replayer.options import ReplayOptions

        return ReplayOptions(
            workers=self.worker_options(files),
            rules=rules(self.rtol, self.atol, by_dtype=self.tolerance, strict=True),
            timeout_s=above_zero("--timeout", self.timeout_s),
            speed=above_zero("--speed", self.speed),
            repeat=self.repeat,
            record=self.record,
            engine=self.player,
        )

    def worker_options(self, files: "Sources") -> "WorkerOptions":
        """Returns how live workers are run: what was judged by the user's files is imported from them."""
        from rpcinspect.replayer.workers.workers import WorkerOptions

        folders = [path.parent if path.is_file() else path for path in self.paths]
        return WorkerOptions(
            path=tuple(dict.fromkeys(map(str, folders))),
            files=() if self.trust else tuple(files.files().items()),
            main=None if self.main is None else str(self.main),
        )

    def mistakes(self) -> Iterator[str]:
        yield from super().mistakes()
        if self.repeat < 1:
            yield f"--repeat {self.repeat}: a number from 1 up"
        yield from report_mistakes(self)
        if self.junit is not None and self.plan:
            yield "--junit is for a replay: --plan compares nothing"


def read_workers(imports: list[str], seeds: list[str], *threads: int) -> "Seeds":
    """Reads the options of live workers that are started; returns their seeds."""
    from rpcinspect.replayer.workers.seeds import read_seed, read_seeds

    for module in imports:
        if not all(part.isidentifier() for part in module.split(".")):
            raise UsageMistake(f"--import {module}: not the name of a module")
    for word in seeds:
        if read_seed(word) is None:
            raise UsageMistake(f"--seed {word}: not N or NAME=N; torch takes seeds of 64 bits")
    for count in threads:
        if not 1 <= count <= MAX_THREADS:
            raise UsageMistake(f"--threads {count}: a number from 1 to {MAX_THREADS}")
    return read_seeds(seeds)


def read_store(text: str) -> "StoreAddress":
    """Reads the address of a running group."""
    from rpcinspect.replayer.peers.running_group import StoreAddress

    store = StoreAddress.parse(text)
    if store is None:
        raise UsageMistake(f"{text}: not tcp://HOST:PORT, the store of the group")
    return store

"""`rpcinspect reproduce`: writes a script that makes captured calls again with PyTorch alone. Nothing is
started, nothing that a capture names is imported or called.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from rpcinspect import exit_codes
from rpcinspect.cli.options import option
from rpcinspect.cli.replay_options import (
    ImportOption,
    SeedOption,
    SelectedOptions,
    ThreadsOption,
    read_workers,
)

if TYPE_CHECKING:
    from rpcinspect.export.reproducer.model import Reproduction
    from rpcinspect.export.reproducer.script import Reproducer, Wanted
    from rpcinspect.replayer.planning.gate import ExecutionPolicy
    from rpcinspect.replayer.planning.plan import PlanOptions
    from rpcinspect.run.run import RunModel

TIMEOUT_S = 60.0
MAX_SHOWN = 10


class ReproduceCommand(SelectedOptions, frozen=True, kw_only=True):
    """Write a plain PyTorch script that repeats the captured calls."""

    EXAMPLES: ClassVar = (
        "reproduce run.pcap --path . -o repro",
        "reproduce run.pcap --path . -o repro --message 66 --pytest",
    )
    EXITS: ClassVar[Mapping[int, str]] = {
        0: "written",
        1: "no call can be made again; with --require-all: a request was skipped",
        2: "wrong options, or the folder can't be written",
        3: "not readable as a capture",
        4: "refused: the script would run what you did not allow; nothing was written",
        130: "interrupted",
    }

    output: Annotated[Path, option("-o --output DIR", "Write the script and its tensors to this folder.")]
    message: Annotated[
        int | None, option("--message N", "Write only this message and what it needs.", min=0)
    ] = None
    pytest: Annotated[bool, option("--pytest", "Write a test file beside the script.")] = False
    imports: ImportOption = []
    seeds: SeedOption = []
    threads: ThreadsOption = 1

    def outputs(self) -> Mapping[str, Path | None]:
        return {}  # a folder may be that of the sources

    def mistakes(self) -> Iterator[str]:
        yield from super().mistakes()
        if self.main is not None and not self.main.stem.isidentifier():
            yield f"{self.main}: a script can't import a module of that name; rename a copy of it"
        if self.message is not None and self.context is not None:
            yield "--message and --context can't be used together"

    def run(self) -> int:
        """Selects, writes; returns the exit code."""
        from rpcinspect.cli.collector import imports_are_over
        from rpcinspect.cli.replaying import opened

        imports_are_over()
        wanted, selected, gate = self._wanted(), self.plan_options(), self.gate(self.user_files())
        with opened(self) as run:
            return self._reproduce(run, wanted, selected, gate)

    def _reproduce(
        self, run: "RunModel", wanted: "Wanted", selected: "PlanOptions", gate: "ExecutionPolicy"
    ) -> int:
        from msgspec.structs import replace

        from rpcinspect.cli.output import say
        from rpcinspect.export.reproducer.reproduction import ReproductionOptions, reproduction
        from rpcinspect.export.reproducer.script import reproducer, unwritable
        from rpcinspect.fields.phrases import counted
        from rpcinspect.replayer.planning.model import missing_allowances

        options = ReproductionOptions(
            message=self.message,
            context=selected.context,
            roles=selected.roles,
            live=selected.live,
            trust=self.trust,
        )
        made = reproduction(run.session, run.messages, options, gate, unwritable(wanted))
        if made.refused:
            trusted = replace(options, trust=True)  # to tell at once also what depends on a refused message
            whole = reproduction(run.session, run.messages, trusted, gate, unwritable(wanted))
            return _refused(made, missing_allowances(whole.globals))
        if not made.calls:
            say("nothing to reproduce: no call of a worker's own program can be repeated")
            for skipped in made.skipped[:MAX_SHOWN]:
                say(f"#{skipped.call.index} is left out: {skipped.code}: {skipped.text}")
            return exit_codes.DIFFERENT
        if self.trust and any(not use.allowed for use in made.globals):
            say("--trust-capture: the script runs everything that this capture names")
        written = reproducer(made, wanted, run.bytes)
        _write(self.output, written, test=self.pytest)
        _tell(self.output, made, written)
        lost = [s for s in made.skipped if s.code != "control"]
        if self.require_all and lost:
            say(f"--require-all: {counted(len(lost), 'request')} skipped")
            return exit_codes.DIFFERENT
        return exit_codes.OK

    def _wanted(self) -> "Wanted":
        """Returns what the script is to say of its surroundings."""
        from rpcinspect.cli.arguments import above_zero
        from rpcinspect.export.reproducer.script import Wanted
        from rpcinspect.fields.phrases import path_label

        paths = [path.parent if path.is_file() else path for path in self.paths]
        paths += [self.main.parent] if self.main is not None else []
        folders = [os.path.relpath(path, self.output).replace(os.sep, "/") for path in paths]
        return Wanted(
            captures=tuple(path_label(os.path.basename(path)) for path in self.files),
            folders=tuple(dict.fromkeys(["", *(f for f in folders if f != ".")])),
            main=None if self.main is None else self.main.stem,
            modules=tuple(self.imports),
            threads=self.threads,
            seeds=read_workers(self.imports, self.seeds, self.threads),
            timeout_s=above_zero("--timeout", self.timeout_s) or TIMEOUT_S,
        )


def _refused(made: "Reproduction", missing: Sequence[str]) -> int:
    from rpcinspect.cli.output import say
    from rpcinspect.views.replay.plan_table import allow_line

    for use in made.refused:
        shown = ", ".join(f"#{index}" for index in use.messages[:MAX_SHOWN])
        say(f"refused: {use.name}: {use.reason} ({shown})")
    say(allow_line(missing))
    say("nothing was written: the script would import and call what you haven't allowed")
    return exit_codes.REFUSED


def _write(folder: Path, written: "Reproducer", *, test: bool) -> None:
    from io import BufferedWriter

    from rpcinspect.cli.interrupt import held_back
    from rpcinspect.export.reproducer.script import SCRIPT, TENSORS, TEST
    from rpcinspect.export.safetensors import write_safetensors
    from rpcinspect.files.output import OutputFolder
    from rpcinspect.files.place import writing

    output = OutputFolder(folder, private=True)
    try:
        with writing(folder):
            with BufferedWriter(output.new(TENSORS)) as file:
                write_safetensors(file, written.tensors.entries, written.tensors.metadata())
            for name, text in ((SCRIPT, written.script), *([(TEST, written.test)] if test else [])):
                with BufferedWriter(output.new(name)) as file:
                    file.write(text.encode("ascii"))
        with held_back():
            output.put(mark=SCRIPT)
    finally:
        output.drop()


def _tell(folder: Path, made: "Reproduction", written: "Reproducer") -> None:
    """On stderr, as everything for people."""
    from rpcinspect.cli.output import say
    from rpcinspect.export.reproducer.script import SCRIPT
    from rpcinspect.fields.phrases import counted

    compared = f"{counted(written.answers, 'answer')} and {counted(written.gradients, 'gradient')}"
    say(f"{folder / SCRIPT}: {counted(len(made.calls), 'call')}; it compares {compared}")
    if made.left_out:
        say(f"{counted(made.left_out, 'request')} left out, which it does not depend on")
    for index, why in written.skipped[:MAX_SHOWN]:
        say(f"#{index} is not in it: {why}")
    if len(written.skipped) > MAX_SHOWN:
        say(f"and {len(written.skipped) - MAX_SHOWN} more, see the top of the script")

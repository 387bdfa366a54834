"""`rpcinspect diff`: decodes two runs, compares them and says where they part."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from rpcinspect.cli.guard import UsageMistake
from rpcinspect.cli.options import (
    AtolOption,
    CaptureOptions,
    OutputOption,
    RtolOption,
    ToleranceOption,
    argument,
    option,
)

if TYPE_CHECKING:
    from rpcinspect.equality.rules import Rules


class DiffCommand(CaptureOptions, frozen=True, kw_only=True):
    """Compare two runs and show the first message that differs."""

    EXAMPLES: ClassVar = (
        "diff good.pcap bad.pcap",
        "diff run.pcap --context 0:3 --context 0:7",
        "diff good.pcap bad.pcap --tolerance --ignore device,latency",
        "diff good.pcap bad.pcap --format html -o diff.html",
    )
    EXITS: ClassVar[Mapping[int, str]] = {
        0: "the same",
        1: "different",
        2: "wrong options, or the output can't be written",
        3: "not readable as a capture, or neither run has a message of RPC",
        130: "interrupted",
    }

    files: Annotated[list[str], argument("A [B]", "Captures of two runs; A1,A2 for several of one run.")]
    contexts: Annotated[
        list[str], option("--context ID", "Compare only this autograd context; repeat it for B's.")
    ] = []
    tolerance: ToleranceOption = False
    rtol: RtolOption = None
    atol: AtolOption = None
    ignore: Annotated[
        list[str],
        option(
            "--ignore WHAT,…",
            "Do not count: device, device-map, latency, form, requires-grad, zero-sign, nan-payload, "
            "profile-events, error, missing, extra.",
        ),
    ] = []
    strict: Annotated[
        bool, option("--strict", "Also count form, order of independent calls, agents' calls.")
    ] = False
    renames: Annotated[
        list[str], option("--rename OLD=NEW", "Match OLD of A with NEW of B; repeatable.")
    ] = []
    shrink: Annotated[
        Path | None, option("--shrink PCAP", "Write the smallest part of B that shows the first difference.")
    ] = None
    show_all: Annotated[bool, option("-a --all", "List every difference.")] = False
    format: Annotated[
        Literal["table", "jsonl", "html"], option("--format", "Write a table, JSON lines, or a page.")
    ] = "table"
    output: OutputOption = None

    def run(self) -> int:
        """Compares; returns the exit code."""
        from rpcinspect.cli.comparing import compared

        return compared(self)

    def rules(self) -> "Rules":
        """Returns what counts as a difference."""
        from rpcinspect.cli.arguments import names, renames, rules
        from rpcinspect.equality.rules import IGNORABLE

        ignore = frozenset(names(self.ignore))
        if ignore - IGNORABLE.keys():
            (name, *_), known = sorted(ignore - IGNORABLE.keys()), ", ".join(sorted(IGNORABLE))
            raise UsageMistake(f"--ignore {name}: these can be ignored: {known}")
        return rules(
            self.rtol,
            self.atol,
            by_dtype=self.tolerance,
            ignore=ignore,
            strict=self.strict,
            renames=renames(self.renames),
        )

    def options(self) -> list[str]:
        """Returns the options for reading captures and for comparing, as words."""
        words = [f"--ignore={','.join(self.ignore)}"]
        words += [f"--context={context}" for context in self.contexts]
        words += [f"--rename={rename}" for rename in self.renames]
        words += ["--tolerance"] if self.tolerance else []
        words += [f"--rtol={self.rtol}"] if self.rtol is not None else []
        words += [f"--atol={self.atol}"] if self.atol is not None else []
        words += ["--strict"] if self.strict else []
        words += [f"--reader={self.reader}"] if self.reader != "auto" else []
        words += [f"--unpack-limit={self.unpack_limit}"] if self.unpack_limit is not None else []
        return words + [f"--tshark-option={option}" for option in self.tshark_options]

    def outputs(self) -> Mapping[str, Path | None]:
        return {"--output": self.output, "--shrink": self.shrink}

    def inputs(self) -> list[str]:
        return [path for file in self.files for path in captures_of(file)]

    def mistakes(self) -> Iterator[str]:
        yield from super().mistakes()
        if len(self.files) > 2:
            yield "two runs can be compared: give A and B; several captures of one run as A1,A2"
        if len(self.files) == 1 and len(self.contexts) != 2:
            yield "to compare two contexts of one capture, give --context twice; else give B"
        if len(self.contexts) > 2:
            yield "--context can be given twice: the first is a's, the second b's"
        if self.shrink is not None and self.shrink == self.output:
            yield f"{self.shrink}: --output and --shrink can't both be written there"


def captures_of(file: str) -> tuple[str, ...]:
    """Returns the captures of one run, separated by commas; an existing file may have commas in its name."""
    if "," not in file or os.path.exists(file):
        return (file,)
    return tuple(part for part in file.split(",") if part)

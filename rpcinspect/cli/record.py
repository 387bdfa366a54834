"""`rpcinspect record`: the options, and what is wrong with them; `recording` records."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from rpcinspect.cli.options import CommandClass, RedactOption, RedactSeedOption, argument, option

ENDINGS = {"wire": ".pcap", "agent": ".rpclog"}
COMPRESSED = (".gz", ".zst")


class RecordCommand(CommandClass, frozen=True, kw_only=True):
    """Run a command, unchanged, and record its RPC."""

    SETTINGS: ClassVar = {"allow_interspersed_args": False}
    EXAMPLES: ClassVar = (
        "record -o run.rpclog -- python train.py",
        "record -o run.pcap -- python train.py",
        "record --private-net -- torchrun --nproc-per-node 2 train.py",
        "record --browse -- python train.py",
    )
    EXITS: ClassVar = {
        0: "that of the command; 128 + n if signal n ended it",
        2: "the recording can't begin",
        126: "the command can't be run",
        127: "there is no such command",
    }

    command: Annotated[list[str], argument("-- COMMAND…", "The command to run, with its arguments.")] = []
    output: Annotated[
        Path | None, option("-o --output FILE", "Write to this file. Default: script's name and time.")
    ] = None
    via: Annotated[
        Literal["wire", "agent"] | None,
        option("--via", "Record messages on any transport (agent), or TCP packets (wire)."),
    ] = None
    tensors: Annotated[
        Literal["none", "small", "all"] | None,
        option("--tensors", "agent: record bytes of these tensors; small: up to 4,096 bytes."),
    ] = None
    when_full: Annotated[
        Literal["wait", "drop"] | None,
        option("--when-full", "agent: when a queue is full, wait up to 5 s or drop. Default: wait."),
    ] = None
    interface: Annotated[
        str | None, option("-i --interface NAME", "wire: where to capture; any: everywhere. Default: lo.")
    ] = None
    private_net: Annotated[
        bool, option("--private-net", "wire: run the command in its own network namespace, loopback only.")
    ] = False
    browse: Annotated[
        bool, option("--browse", "Browse meanwhile; the command's output goes into FILE.out.")
    ] = False
    redact: RedactOption = False
    redact_seed: RedactSeedOption = None

    def run(self) -> int:
        """Runs and records; returns the exit code, which is the command's."""
        from rpcinspect.cli.recording import recorded

        return recorded(self)

    @property
    def mechanism(self) -> str | None:
        """What was asked for, by name, by the name of the file, or by an option that only the wire has."""
        if self.via is not None:
            return self.via
        if self.output is not None:
            for via, ending in ENDINGS.items():
                if self.output.suffix == ending:
                    return via
        return "wire" if self.private_net or self.interface is not None else None

    def mistakes(self) -> Iterator[str]:
        """Yields what is wrong before anything was tried."""
        if sys.platform != "linux":
            yield "record: works on Linux only"
        if not self.command:
            yield "record: which command? rpcinspect record [OPTIONS] -- COMMAND …"
        output, via = self.output, self.via
        if output is not None:
            if str(output) == "-":
                yield "-o -: standard output is the command's; name a file"
            if output.suffix in COMPRESSED:
                yield f"-o {output}: recordings are not compressed; compress the file afterwards"
            for name, ending in ENDINGS.items():
                if output.suffix == ending and via not in (None, name):
                    yield f"-o {output}: --via {via} writes a {ENDINGS[str(via)]}"
            if via is None and output.suffix not in ENDINGS.values():
                stem = output.stem
                yield f"-o {output}: call it {stem}.rpclog for messages, {stem}.pcap for packets"
        if self.browse:
            from rpcinspect.cli.requirements import missing_for_browse

            if self.redact:
                yield "--browse shows what is recorded as it is: leave out --redact, or browse the result"
            yield from missing_for_browse(False)
        if self.redact_seed is not None and not self.redact:
            yield "--redact-seed is for --redact"
        if self.mechanism == "wire":
            for option, value in (("tensors", self.tensors), ("when-full", self.when_full)):
                if value is not None:
                    yield f"--{option} is for --via agent"
        if self.mechanism == "agent":
            if self.interface is not None:
                yield "--interface is for --via wire"
            if self.private_net:
                yield "--private-net is for --via wire"

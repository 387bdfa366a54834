"""The options of `rpcinspect record`, made into a `commands.record.Request`."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from rpcinspect import exit_codes
from rpcinspect.cli.guard import guarded
from rpcinspect.cli.options import RedactSeedOption, given


def record(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- COMMAND…", show_default=False, help="What to run, with its arguments."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write there; default: the script's name and the time."
        ),
    ] = None,
    via: Annotated[
        Literal["wire", "agent"] | None,
        typer.Option(
            "--via",
            help="agent: a log of the messages, on any transport; wire: a pcap of packets, for which torch "
            "is made to use plain TCP. Default: agent, if it can be built.",
        ),
    ] = None,
    tensors: Annotated[
        Literal["none", "small", "all"] | None,
        typer.Option(
            "--tensors", help="agent: which tensors' bytes are recorded; default all; small: up to 4,096."
        ),
    ] = None,
    when_full: Annotated[
        Literal["wait", "drop"] | None,
        typer.Option(
            "--when-full",
            help="agent: what a process does while its queue is full: wait (default; 5 s at most) or drop.",
        ),
    ] = None,
    interface: Annotated[
        str | None,
        typer.Option(
            "--interface", "-i", metavar="NAME", help="wire: capture there; default lo; any: everywhere."
        ),
    ] = None,
    private_net: Annotated[
        bool,
        typer.Option(
            "--private-net",
            help="wire: run the command in a network of its own, with nothing but a loopback.",
        ),
    ] = False,
    redact: Annotated[
        bool,
        typer.Option(
            "--redact",
            help="At the end replace tensor values and strings, keep structure and sizes (docs/redaction.md)",
        ),
    ] = False,
    redact_seed: RedactSeedOption = None,
) -> None:
    """Run a command and record the RPC of all of its processes, without a change to their code."""
    options = given(locals())

    def execute() -> int:
        if sys.platform != "linux":
            from rpcinspect.commands.output import say

            say("record: works on Linux only")
            return exit_codes.USAGE
        from rpcinspect.commands.record import Request, run

        return run(Request(**options))

    raise typer.Exit(guarded(execute))

"""The options of `rpcinspect record`, made into a `commands.record.Request`."""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from rpcinspect import exit_codes
from rpcinspect.cli.guard import guarded


class Via(str, Enum):
    """How a command is recorded."""

    wire = "wire"
    agent = "agent"


def record(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- COMMAND…", show_default=False, help="What to run, with its arguments."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write there; default: the command's name and the time."
        ),
    ] = None,
    via: Annotated[
        Via | None,
        typer.Option(
            "--via",
            help="wire: a pcap of the packets, for which torch is made to use plain TCP; agent: a log of the "
            "messages, on any transport.",
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
) -> None:
    """Run a command and record the RPC of all of its processes, without a change to their code."""

    def execute() -> int:
        if sys.platform != "linux":
            from rpcinspect.commands.output import say

            say("record: works on Linux only")
            return exit_codes.USAGE
        from rpcinspect.commands.record import Request, run

        return run(
            Request(
                command=tuple(command or ()),
                output=output,
                via=None if via is None else via.value,
                interface=interface,
                private_net=private_net,
            )
        )

    raise typer.Exit(guarded(execute))

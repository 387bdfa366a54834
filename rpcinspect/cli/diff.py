"""The options of `rpcinspect diff`, made into a `commands.diff.Request`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from rpcinspect.cli.guard import guarded
from rpcinspect.cli.options import (
    AtolOption,
    OutputOption,
    ReaderOption,
    RtolOption,
    ToleranceOption,
    TsharkOption,
    UnpackLimitOption,
    given,
)


def diff(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="A [B]",
            show_default=False,
            help="Two runs, each a capture as for decode, or several of one run as A1,A2. With --context "
            "twice, one is enough.",
        ),
    ] = None,
    contexts: Annotated[
        list[str] | None,
        typer.Option(
            "--context",
            metavar="N",
            show_default=False,
            help="Only this autograd context: its id, or CREATOR:COUNTER. Twice: a's and b's.",
        ),
    ] = None,
    tolerance: ToleranceOption = False,
    rtol: RtolOption = None,
    atol: AtolOption = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(
            "--ignore",
            metavar="WHAT,…",
            show_default=False,
            help="No differences: device, device-map, latency, form, requires-grad, zero-sign, nan-payload, "
            "profile-events, error; missing, extra: calls that only A or only B has.",
        ),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Count the form of tensors, the order of independent calls and the agents' own calls too.",
        ),
    ] = False,
    renames: Annotated[
        list[str] | None,
        typer.Option(
            "--rename",
            metavar="OLD=NEW",
            show_default=False,
            help="Worker OLD of A is NEW of B; may be repeated.",
        ),
    ] = None,
    shrink: Annotated[
        Path | None,
        typer.Option(
            "--shrink",
            metavar="FILE",
            help="Write the smallest part of B that shows the first difference as a pcap there.",
        ),
    ] = None,
    show_all: Annotated[
        bool, typer.Option("--all", "-a", help="List every difference, before the summary.")
    ] = False,
    format: Annotated[
        Literal["table", "jsonl", "html"],
        typer.Option("--format", help="What to write; html is one page that needs nothing else."),
    ] = "table",
    output: OutputOption = None,
    reader: ReaderOption = "auto",
    tshark_options: TsharkOption = None,
    unpack_limit: UnpackLimitOption = None,
) -> None:
    """Compare two runs and name the first message at which they part. Exits with 1 if they are different."""
    options = given(locals())

    def command() -> int:
        from rpcinspect.commands.diff import Request, run

        return run(Request(**options))

    raise typer.Exit(guarded(command))

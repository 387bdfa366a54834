"""The options of `rpcinspect diff`, made into a `commands.diff.Request`."""

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from rpcinspect.cli.guard import guarded
from rpcinspect.cli.options import (
    AtolOption,
    OutputOption,
    Reader,
    ReaderOption,
    RtolOption,
    ToleranceOption,
    TsharkOption,
    UnpackLimitOption,
)


class DiffFormat(str, Enum):
    """What `diff` writes."""

    table = "table"
    jsonl = "jsonl"
    html = "html"


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
    context: Annotated[
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
    rename: Annotated[
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
    output_format: Annotated[
        DiffFormat, typer.Option("--format", help="What to write; html is one page that needs nothing else.")
    ] = DiffFormat.table,
    output: OutputOption = None,
    reader: ReaderOption = Reader.auto,
    tshark_option: TsharkOption = None,
    unpack_limit: UnpackLimitOption = None,
) -> None:
    """Compare two runs and name the first message at which they part. Exits with 1 if they are different."""

    def command() -> int:
        from rpcinspect.commands.diff import Request, run

        return run(
            Request(
                files=tuple(files or ()),
                contexts=tuple(context or ()),
                tolerance=tolerance,
                rtol=rtol,
                atol=atol,
                ignore=tuple(ignore or ()),
                strict=strict,
                renames=tuple(rename or ()),
                show_all=show_all,
                jsonl=output_format is DiffFormat.jsonl,
                html=output_format is DiffFormat.html,
                output=output,
                shrink=shrink,
                reader=reader.value,
                tshark_options=tuple(tshark_option or ()),
                unpack_limit=unpack_limit,
            )
        )

    raise typer.Exit(guarded(command))

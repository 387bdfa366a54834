"""The command line: options of every command, and the one place where errors become a line and an exit code.

Heavy modules are imported by the command that needs them: `rpcinspect --help` and `decode` must start at
once.
"""

from __future__ import annotations

import signal
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from rpcinspect import __version__, exit_codes
from rpcinspect.errors import CaptureError, RpcInspectError

app = typer.Typer(
    name="rpcinspect",
    help="Decode, replay and diff captured torch.distributed.rpc traffic.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Format(str, Enum):
    """What `decode` writes."""

    table = "table"
    jsonl = "jsonl"


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rpcinspect {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Decode, replay and diff captured torch.distributed.rpc traffic."""


@app.command()
def decode(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE",
            help="Captures (pcap, pcapng, also .gz and .zst; - is standard input). "
            "Several are read as one session.",
        ),
    ],
    output_format: Annotated[Format, typer.Option("--format", help="What to write.")] = Format.table,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write there instead of standard output.")
    ] = None,
    message: Annotated[
        int | None,
        typer.Option("--message", min=0, metavar="N", help="Show message N in full and nothing else."),
    ] = None,
    show_all: Annotated[
        bool, typer.Option("--all", "-a", help="Table: show the agents' own calls too.")
    ] = False,
    stream: Annotated[
        bool, typer.Option("--stream", help="Write each message as soon as it is complete.")
    ] = False,
    no_hash: Annotated[bool, typer.Option("--no-hash", help="jsonl: do not hash tensors.")] = False,
    tensors: Annotated[
        Path | None,
        typer.Option(
            "--tensors", metavar="DIR", help="Write every tensor there, as safetensors with an index."
        ),
    ] = None,
    roundtrip: Annotated[
        bool,
        typer.Option(
            "--roundtrip", help="Encode every message again; report how many come out byte for byte."
        ),
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with 1 if there is a finding of severity error.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 3 if there is any problem.")] = False,
) -> None:
    """Show every RPC message of captured traffic, its envelopes unwrapped."""
    from rpcinspect.commands.decode import Request, run

    request = Request(
        files=tuple(files),
        jsonl=output_format is Format.jsonl,
        output=output,
        message=message,
        show_all=show_all,
        stream=stream,
        hashes=not no_hash,
        tensors=tensors,
        roundtrip=roundtrip,
        check=check,
        strict=strict,
    )
    raise typer.Exit(run(request))


def main() -> None:
    """Runs the command line; never lets a traceback of an expected error out."""
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` ends us quietly, as it ends any other filter
    try:
        app()
    except CaptureError as error:
        print(f"rpcinspect: {error}", file=sys.stderr)
        sys.exit(exit_codes.UNREADABLE)
    except RpcInspectError as error:
        print(f"rpcinspect: {error}", file=sys.stderr)
        sys.exit(exit_codes.USAGE)
    except KeyboardInterrupt:
        sys.exit(exit_codes.INTERRUPTED)

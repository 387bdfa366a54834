"""The command line: options of every command, and the one place where errors become a line and an exit code.

Heavy modules are imported by the command that needs them: `rpcinspect --help` and `decode` must start at
once.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from rpcinspect import __version__, exit_codes
from rpcinspect.cli_options import Format, FormatOption, OutputOption
from rpcinspect.errors import CaptureError, OutputError, RpcInspectError

app = typer.Typer(
    name="rpcinspect",
    help="Decode, replay and diff captured torch.distributed.rpc traffic.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class DiffFormat(str, Enum):
    """What `diff` writes."""

    table = "table"
    jsonl = "jsonl"
    html = "html"


class Reader(str, Enum):
    """Who reads captures."""

    auto = "auto"
    native = "native"
    tshark = "tshark"


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
        list[str] | None,
        typer.Argument(
            metavar="FILE",
            show_default=False,
            help="Captures: pcap or pcapng, also as .gz or .zst, or what tshark reads; - is standard input. "
            "Several are read as one session.",
        ),
    ] = None,
    output_format: FormatOption = Format.table,
    output: OutputOption = None,
    message: Annotated[
        int | None,
        typer.Option(
            "--message", min=0, metavar="N", help="Show message N (as the table numbers them) in full."
        ),
    ] = None,
    show_all: Annotated[
        bool, typer.Option("--all", "-a", help="Show the agents' own calls too; with --message, every byte.")
    ] = False,
    stream: Annotated[
        bool,
        typer.Option(
            "--stream", help="Write each message as soon as it is complete, as standard input's are."
        ),
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
    reader: Annotated[
        Reader,
        typer.Option(
            "--reader",
            help="Who reads the captures: native (pcap, pcapng), tshark (all that Wireshark opens), or auto: "
            "tshark where native can't.",
        ),
    ] = Reader.auto,
    tshark_option: Annotated[
        list[str] | None,
        typer.Option(
            "--tshark-option",
            metavar="NAME:VALUE",
            show_default=False,
            help="A preference for tshark, such as the keys for decryption; may be repeated.",
        ),
    ] = None,
    live: Annotated[
        str | None,
        typer.Option(
            "--live",
            metavar="INTERFACE",
            help="Capture there and show messages as they come; Ctrl-C ends it.",
        ),
    ] = None,
    capture_filter: Annotated[
        str | None,
        typer.Option(
            "--capture-filter", metavar="FILTER", help="With --live: only these packets, such as 'tcp'."
        ),
    ] = None,
) -> None:
    """Show every RPC message of captured traffic, its envelopes unwrapped."""

    def command() -> int:
        from rpcinspect.commands.decode import Request, run

        return run(
            Request(
                files=tuple(files or ()),
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
                reader=reader.value,
                tshark_options=tuple(tshark_option or ()),
                interface=live,
                capture_filter=capture_filter,
            )
        )

    raise typer.Exit(_guarded(command))


@app.command()
def replay(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE",
            show_default=False,
            help="Captures, as for decode. Several are read as one session.",
        ),
    ] = None,
    plan: Annotated[
        bool,
        typer.Option(
            "--plan",
            help="Say what would be sent, by whom, in what order, what can't be and why. Starts nothing.",
        ),
    ] = False,
    role: Annotated[
        list[str] | None,
        typer.Option(
            "--role",
            metavar="NAME,…",
            show_default=False,
            help="Play these workers, in one session; all others are live.",
        ),
    ] = None,
    live: Annotated[
        list[str] | None,
        typer.Option(
            "--live",
            metavar="NAME,…",
            show_default=False,
            help="Keep these workers live, in one session; all others are played.",
        ),
    ] = None,
    context: Annotated[
        str | None,
        typer.Option(
            "--context",
            metavar="N",
            help="Only this autograd context and what it depends on: its id, or CREATOR:COUNTER.",
        ),
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow",
            metavar="MODULE[:NAME]",
            show_default=False,
            help="Let live workers import and call this: a module with its submodules, or one name of it.",
        ),
    ] = None,
    path: Annotated[
        list[Path] | None,
        typer.Option(
            "--path",
            metavar="DIR",
            show_default=False,
            help="Your sources: live workers may call what they define. They are parsed, not imported.",
        ),
    ] = None,
    main: Annotated[
        Path | None,
        typer.Option("--main", metavar="FILE", help="The job's script: what it defines is __main__'s."),
    ] = None,
    trust_capture: Annotated[
        bool,
        typer.Option("--trust-capture", help="Refuse nothing: the capture may run whatever it names."),
    ] = False,
    imports: Annotated[
        list[str] | None,
        typer.Option(
            "--import",
            metavar="MODULE",
            show_default=False,
            help="Import this in live workers before anything is sent; may be repeated.",
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", help="Seed the random numbers of live workers.")
    ] = None,
    threads: Annotated[
        int,
        typer.Option("--threads", metavar="N", help="Threads of each live worker; sums depend on it."),
    ] = 1,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            metavar="SECONDS",
            help="Wait so long for an answer; otherwise as the captured times suggest.",
        ),
    ] = None,
    speed: Annotated[
        float | None,
        typer.Option(
            "--speed",
            metavar="X",
            help="Send at X times the captured pace; otherwise as fast as causality allows.",
        ),
    ] = None,
    repeat: Annotated[
        int, typer.Option("--repeat", metavar="N", help="Replay everything so many times.")
    ] = 1,
    tolerance: Annotated[
        bool,
        typer.Option("--tolerance", help="Accept what torch.testing accepts; otherwise every bit counts."),
    ] = False,
    rtol: Annotated[
        float | None,
        typer.Option("--rtol", metavar="X", help="The same with this relative tolerance."),
    ] = None,
    atol: Annotated[
        float | None,
        typer.Option("--atol", metavar="X", help="The same with this absolute tolerance."),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option("--record", metavar="FILE", help="Write the replay's own connections as a pcap there."),
    ] = None,
    show_gradients: Annotated[
        bool, typer.Option("--show-gradients", help="Show what live workers hold at the end.")
    ] = False,
    require_all: Annotated[
        bool, typer.Option("--require-all", help="Exit with 1 if a request was skipped.")
    ] = False,
    show_all: Annotated[
        bool, typer.Option("--all", "-a", help="Show every step; with --plan the agents' own calls too.")
    ] = False,
    output_format: FormatOption = Format.table,
    output: OutputOption = None,
) -> None:
    """Send captured requests to live workers again, and say whether the same answers and gradients come."""

    def command() -> int:
        from rpcinspect.commands.replay import run
        from rpcinspect.commands.replay_request import Request

        return run(
            Request(
                files=tuple(files or ()),
                plan=plan,
                roles=tuple(role or ()),
                live=tuple(live or ()),
                context=context,
                allow=tuple(allow or ()),
                paths=tuple(path or ()),
                main=main,
                trust=trust_capture,
                imports=tuple(imports or ()),
                seed=seed,
                threads=threads,
                timeout_s=timeout,
                speed=speed,
                repeat=repeat,
                tolerance=tolerance,
                rtol=rtol,
                atol=atol,
                record=record,
                show_gradients=show_gradients,
                require_all=require_all,
                show_all=show_all,
                jsonl=output_format is Format.jsonl,
                output=output,
            )
        )

    raise typer.Exit(_guarded(command))


@app.command()
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
    rtol: Annotated[
        float | None,
        typer.Option("--rtol", metavar="R", help="Floats may differ by R times the smaller of the two."),
    ] = None,
    atol: Annotated[
        float | None, typer.Option("--atol", metavar="A", help="Floats may differ by A, beside --rtol.")
    ] = None,
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
) -> None:
    """Compare two runs and name the first message at which they part. Exits with 1 if they are different."""

    def command() -> int:
        from rpcinspect.commands.diff import Request, run

        return run(
            Request(
                files=tuple(files or ()),
                contexts=tuple(context or ()),
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
            )
        )

    raise typer.Exit(_guarded(command))


def main() -> None:
    """Runs the command line; what it writes suits any terminal, file or pipe."""
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` ends us quietly, as it ends any other filter
    _prepare_streams()
    app()


def _prepare_streams() -> None:
    """Standard streams that were closed become empty ones; characters that an encoding lacks are escaped."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115 - as long as the process
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _guarded(command: Callable[[], int]) -> int:
    """The command's exit code; expected errors become one line on stderr and a code."""
    from rpcinspect.commands.output import give_up_stdout, say

    try:
        return command()
    except OutputError as error:
        give_up_stdout()
        say(str(error))
        return exit_codes.USAGE
    except CaptureError as error:
        say(str(error))
        return exit_codes.UNREADABLE
    except RpcInspectError as error:
        say(str(error))
        return exit_codes.USAGE
    except KeyboardInterrupt:
        return exit_codes.INTERRUPTED

"""The options of `rpcinspect decode`, made into a `commands.decode.Request`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from rpcinspect.cli.guard import guarded
from rpcinspect.cli.options import (
    OutputOption,
    ReaderOption,
    RedactSeedOption,
    TsharkOption,
    UnpackLimitOption,
    given,
)

DecodeFormat = Literal["table", "jsonl", "json", "html", "dot", "mermaid", "perfetto", "parquet", "rpclog"]
"""What `decode` writes; mermaid is no more: `mistake` says what to use."""


def decode(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE",
            show_default=False,
            help="Captures: pcap, pcapng, rpclog, also as .gz or .zst, or what tshark reads; - is standard "
            "input. Several are read as one session.",
        ),
    ] = None,
    format: Annotated[
        DecodeFormat,
        typer.Option(
            "--format",
            metavar="FORM",
            help="What to write: table, jsonl, json, html for a page to look at, dot for --graph, perfetto "
            "for trace viewers, parquet for tables in the folder of -o, rpclog for a log of the messages.",
        ),
    ] = "table",
    output: OutputOption = None,
    filter: Annotated[
        str | None,
        typer.Option(
            "--filter",
            "-f",
            metavar="EXPR",
            help="Only the messages that match, such as 'body == PYTHON_CALL and latency > 50ms'.",
        ),
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option(
            "--write",
            "-w",
            metavar="PCAP",
            help="Save the messages, with their requests and answers, as a capture that decodes by itself.",
        ),
    ] = None,
    redact: Annotated[
        bool,
        typer.Option(
            "--redact",
            help="With -w or --format rpclog: replace tensor values and strings; keep structure and sizes.",
        ),
    ] = False,
    redact_seed: RedactSeedOption = None,
    fields: Annotated[bool, typer.Option("--fields", help="List what a filter can ask for.")] = False,
    message: Annotated[
        int | None,
        typer.Option(
            "--message", min=0, metavar="N", help="Show message N (as the table numbers them) in full."
        ),
    ] = None,
    show_all: Annotated[
        bool,
        typer.Option(
            "--all",
            "-a",
            help="Show housekeeping too: references, contexts, start-up; with --message, every byte.",
        ),
    ] = False,
    stream: Annotated[
        bool,
        typer.Option(
            "--stream", help="Write each message as soon as it is complete, as standard input's are."
        ),
    ] = False,
    no_hash: Annotated[bool, typer.Option("--no-hash", help="jsonl and json: do not hash tensors.")] = False,
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
    calls: Annotated[
        bool,
        typer.Option(
            "--calls",
            help="Show one row per call: who calls whom with what, the result or error, how long.",
        ),
    ] = False,
    graph: Annotated[
        str | None,
        typer.Option(
            "--graph",
            metavar="CONTEXT",
            help="Draw the autograd graph of a context: its id, or CREATOR:COUNTER.",
        ),
    ] = None,
    contexts: Annotated[
        bool, typer.Option("--contexts", help="List the autograd contexts and what came of their gradients.")
    ] = False,
    latency: Annotated[
        bool, typer.Option("--latency", help="Say where the time went, by function and by pair of workers.")
    ] = False,
    profile: Annotated[
        bool,
        typer.Option(
            "--profile",
            help="Show what the callers' profilers say of operators at the callees, as torch does.",
        ),
    ] = False,
    rrefs: Annotated[
        bool, typer.Option("--rrefs", help="List the remote references: who made, held and deleted them.")
    ] = False,
    device_maps: Annotated[
        bool,
        typer.Option(
            "--device-maps", help="Say which devices tensors went between, and which maps that needs."
        ),
    ] = False,
    closings: Annotated[
        bool,
        typer.Option("--closings", help="Say who disconnected first, and which requests were pending then."),
    ] = False,
    worker_logs: Annotated[
        list[str] | None,
        typer.Option(
            "--worker-log",
            metavar="[NAME=]FILE",
            show_default=False,
            help="A text log of torch's, of the worker NAME: what it says of RPC joins the messages and "
            "--closings; may be repeated.",
        ),
    ] = None,
    log_zone: Annotated[
        str | None,
        typer.Option(
            "--log-zone",
            metavar="ZONE",
            help="Time zone of the times in worker logs, such as UTC or -08:00; default: the one that fits.",
        ),
    ] = None,
    partition: Annotated[
        str | None,
        typer.Option(
            "--partition",
            metavar="NAME",
            help="parquet: what to call the session there; default: as its first file.",
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with 1 if there is a finding of severity error.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 3 if there is any problem.")] = False,
    reader: ReaderOption = "auto",
    tshark_options: TsharkOption = None,
    unpack_limit: UnpackLimitOption = None,
    interface: Annotated[
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
    options = given(locals())

    def command() -> int:
        from rpcinspect.commands.decode import run
        from rpcinspect.commands.decode_request import Request

        return run(Request(**options))

    raise typer.Exit(guarded(command))

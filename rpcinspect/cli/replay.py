"""The options of `rpcinspect replay`, made into a `commands.replay_request.Request`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from rpcinspect.cli.guard import guarded
from rpcinspect.cli.options import (
    AtolOption,
    FormatOption,
    OutputOption,
    ReaderOption,
    RtolOption,
    ToleranceOption,
    TsharkOption,
    UnpackLimitOption,
    given,
)


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
    roles: Annotated[
        list[str] | None,
        typer.Option(
            "--role",
            metavar="NAME,…",
            show_default=False,
            help="Send these workers' captured messages, in one session; run all others for real.",
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
            help="Let live workers import and call this: a module with its submodules, one name of it, a "
            "method (MODULE:CLASS.METHOD), or an operator (aten::NAME).",
        ),
    ] = None,
    paths: Annotated[
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
    trust: Annotated[
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
    seeds: Annotated[
        list[str] | None,
        typer.Option(
            "--seed",
            metavar="[NAME=]N",
            show_default=False,
            help="Seed the random numbers of all live workers, or of one; may be repeated.",
        ),
    ] = None,
    search_seed: Annotated[
        str | None,
        typer.Option(
            "--search-seed",
            metavar="[FROM:]TO",
            help="Try these seeds (from 0, where FROM is left out; TO is not tried) until what differs is as "
            "captured.",
        ),
    ] = None,
    stand_ins: Annotated[
        bool,
        typer.Option(
            "--stand-ins",
            help="Give live workers a value for RRefs older than the capture, from a captured answer.",
        ),
    ] = False,
    threads: Annotated[
        int,
        typer.Option("--threads", metavar="N", help="Threads of each live worker; sums depend on it."),
    ] = 1,
    memory: Annotated[
        str | None,
        typer.Option(
            "--memory",
            metavar="SIZE",
            help="What each live worker may take, such as 8GB, or none: no bound; otherwise as the captured "
            "sizes suggest.",
        ),
    ] = None,
    engine: Annotated[
        Literal["wire", "agent"] | None,
        typer.Option(
            show_default=False,
            help="Who plays: our own peers, which send captured bytes (wire), or torch's agent, which can do "
            "less, but on CUDA too (agent).",
        ),
    ] = None,
    device: Annotated[
        Literal["cpu", "cuda"],
        typer.Option(help="Where the tensors of the replay are; cuda needs torch's agent."),
    ] = "cpu",
    maps: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="CAPTURED=LIVE,…",
            show_default=False,
            help="Put tensors of a captured device on another one, such as cuda:0=cuda:1.",
        ),
    ] = None,
    timeout_s: Annotated[
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
    tolerance: ToleranceOption = False,
    rtol: RtolOption = None,
    atol: AtolOption = None,
    record: Annotated[
        Path | None,
        typer.Option("--record", metavar="FILE", help="Write the replay's own connections as a pcap there."),
    ] = None,
    show_gradients: Annotated[
        bool, typer.Option("--show-gradients", help="Show what live workers hold at the end.")
    ] = False,
    connect: Annotated[
        str | None,
        typer.Option(
            "--connect",
            metavar="tcp://HOST:PORT",
            help="Join the running dynamic group of this store, instead of starting live workers.",
        ),
    ] = None,
    yes_join: Annotated[
        bool,
        typer.Option("--yes-join", help="Yes, that group may be joined: it runs what the capture sends."),
    ] = False,
    renames: Annotated[
        list[str] | None,
        typer.Option(
            "--rename",
            metavar="CAPTURED=MEMBER",
            show_default=False,
            help="With --connect: a worker of the capture is called otherwise in the group.",
        ),
    ] = None,
    leave: Annotated[
        list[str] | None,
        typer.Option(
            "--leave",
            metavar="NAME,…",
            show_default=False,
            help="Repair the group of --connect: take workers out of it that died as members.",
        ),
    ] = None,
    require_all: Annotated[
        bool, typer.Option("--require-all", help="Exit with 1 if a request was skipped.")
    ] = False,
    show_all: Annotated[
        bool, typer.Option("--all", "-a", help="Show every step; with --plan the agents' own calls too.")
    ] = False,
    quiet_workers: Annotated[
        bool,
        typer.Option("--quiet-workers", help="Do not show what live workers print, on standard error."),
    ] = False,
    export: Annotated[
        Path | None,
        typer.Option(
            "--export",
            metavar="DIR",
            help="Replay nothing, but write a script there that makes the calls again with PyTorch alone.",
        ),
    ] = None,
    message: Annotated[
        int | None,
        typer.Option(
            "--message", metavar="N", min=0, help="With --export: this message and what it depends on."
        ),
    ] = None,
    pytest: Annotated[
        bool, typer.Option("--pytest", help="With --export: a test file beside the script.")
    ] = False,
    format: FormatOption = "table",
    output: OutputOption = None,
    reader: ReaderOption = "auto",
    tshark_options: TsharkOption = None,
    unpack_limit: UnpackLimitOption = None,
) -> None:
    """Send captured requests to live workers again, and say whether the same answers and gradients come."""
    options = given(locals())

    def command() -> int:
        from rpcinspect.commands.replay import run
        from rpcinspect.commands.replay_request import Request

        return run(Request(**options))

    raise typer.Exit(guarded(command))

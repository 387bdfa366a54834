"""Options that several commands have, each written down once, and what becomes of their values."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer


def given(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a command's `Request`, whose fields have the names of the options: the options
    that were given, several values of one as a tuple."""
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in options.items()
        if value is not None
    }


FormatOption = Annotated[Literal["table", "jsonl"], typer.Option("--format", help="What to write.")]


def _output(path: Path | None) -> Path | None:
    """`-` is standard output, as it is standard input among the files."""
    return None if path == Path("-") else path


OutputOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", callback=_output, help="Write there instead of standard output."),
]
ReaderOption = Annotated[
    Literal["auto", "native", "tshark"],
    typer.Option(
        "--reader",
        help="Who reads the captures: native (pcap, pcapng), tshark (all that Wireshark opens), or auto: "
        "tshark where native can't.",
    ),
]
TsharkOption = Annotated[
    list[str] | None,
    typer.Option(
        "--tshark-option",
        metavar="NAME:VALUE",
        show_default=False,
        help="A preference for tshark, such as the keys for decryption; may be repeated.",
    ),
]
UnpackLimitOption = Annotated[
    str | None,
    typer.Option(
        "--unpack-limit",
        metavar="SIZE",
        show_default=False,
        help="Read so much of what a compressed capture holds, such as 500GB, or none: all. Default: 100GB, "
        "and above 1GB at most 200 times the file.",
    ),
]
RedactSeedOption = Annotated[
    str | None,
    typer.Option(
        "--redact-seed",
        metavar="SECRET",
        help="Redact captures alike that are to be compared; keep it to yourself. Default: random.",
    ),
]
ToleranceOption = Annotated[
    bool,
    typer.Option("--tolerance", help="Accept what torch.testing accepts; otherwise every bit counts."),
]
RtolOption = Annotated[
    float | None,
    typer.Option("--rtol", metavar="X", help="The same with this relative tolerance."),
]
AtolOption = Annotated[
    float | None,
    typer.Option("--atol", metavar="X", help="The same with this absolute tolerance."),
]

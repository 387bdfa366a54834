"""Options that several commands have, each written down once, and what their values may be."""

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer


class Format(str, Enum):
    """What commands write."""

    table = "table"
    jsonl = "jsonl"


class Reader(str, Enum):
    """Who reads captures."""

    auto = "auto"
    native = "native"
    tshark = "tshark"


FormatOption = Annotated[Format, typer.Option("--format", help="What to write.")]


def _output(path: Path | None) -> Path | None:
    """`-` is standard output, as it is standard input among the files."""
    return None if path == Path("-") else path


OutputOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", callback=_output, help="Write there instead of standard output."),
]
ReaderOption = Annotated[
    Reader,
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

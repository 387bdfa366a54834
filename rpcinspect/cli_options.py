"""Options and arguments that several commands have, each written down once, and what their values may be."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer


class Format(str, Enum):
    """What commands write."""

    table = "table"
    jsonl = "jsonl"


FormatOption = Annotated[Format, typer.Option("--format", help="What to write.")]
OutputOption = Annotated[
    Path | None, typer.Option("--output", "-o", help="Write there instead of standard output.")
]

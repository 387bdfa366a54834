"""Tables for the tests: written as the command writes them, read by pyarrow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from rpcinspect.errors import OutputError
from tests.cli.runner import rpcinspect

Row = dict[str, Any]


def write_lake(
    folder: Path,
    paths: Sequence[Path],
    *,
    name: str | None = None,
    text: str | None = None,
    hashes: bool = True,
) -> str:
    """Writes a session into a lake; gives what the user is told."""
    options: list[object] = ["--partition", name] if name is not None else []
    options += ["-f", text] if text is not None else []
    options += [] if hashes else ["--no-hash"]
    ran = rpcinspect("export", "parquet", *paths, "-o", folder, *options)
    if ran.code != 0:
        raise OutputError(ran.err)
    return ran.out.rstrip("\n")


def part(folder: Path, table: str) -> Path:
    """The one file of a table of a lake with one partition."""
    (path,) = (folder / table).glob("capture=*/part-0.parquet")
    return path


def rows(folder: Path, table: str) -> list[Row]:
    """The rows of that."""
    found: list[Row] = pq.ParquetFile(part(folder, table)).read().to_pylist()
    return found


def files(folder: Path) -> list[str]:
    """All that lies in a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))

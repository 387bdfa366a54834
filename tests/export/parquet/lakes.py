"""Tables for the tests: written as the command writes them, read by pyarrow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from rpcinspect.commands.decode_request import Request
from rpcinspect.commands.lake import fill, open_lake
from rpcinspect.commands.passes import read
from rpcinspect.filter.grammar import parse
from rpcinspect.filter.selection import Filter

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
    request = Request(
        files=tuple(map(str, paths)), format="parquet", output=folder, partition=name, no_hash=not hashes
    )
    chosen = None if text is None else Filter(parse(text), text)
    with open_lake(request) as lake:
        session, shown = read(request, chosen)
        with request.decoding() as decoding:
            return fill(lake, request, session, shown, decoding)


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

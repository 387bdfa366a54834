"""Tables in pages of docs/, between two marker lines: `<!-- name: begin -->` and `<!-- name: end -->`."""

from __future__ import annotations

from pathlib import Path


def put(path: Path, name: str, text: str) -> None:
    """Replaces what stands between the marker lines of a page."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, first, rest = path.read_text(encoding="utf-8").partition(begin)
    _, second, after = rest.partition(end)
    if not first or not second:
        raise SystemExit(f"{path} lacks the lines {begin} and {end}")
    path.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}", encoding="utf-8")

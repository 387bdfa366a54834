"""What a test could leave behind: processes, folders."""

from __future__ import annotations

import os
from pathlib import Path


def descendants(pid: int) -> set[int]:
    """All processes below `pid`, dead ones that nobody has waited for included; empty without /proc."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(entry.name)] = int(fields[1])
    found: set[int] = set()
    more = {pid}
    while more:
        more = {child for child, parent in parents.items() if parent in more}
        found |= more
    return found


def temporary_folders(folder: str, pid: int) -> set[str]:
    """Scratch folders of the live workers that the process `pid` started."""
    return {name for name in os.listdir(folder) if name.startswith(f"rpcinspect-{pid}-")}

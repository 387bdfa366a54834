"""The list of `make faults`: reads it, finds the places of the faults in the package, and puts one in.

In: bench/faults.txt, whose form bench/faults.py tells. Out: faults, places, the text of a broken module.
"""

from __future__ import annotations

import hashlib
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

LIST = Path(__file__).resolve().parent / "faults.txt"


@dataclass(frozen=True)
class Fault:
    """One fault: lines of a module and what replaces them, without their indentation."""

    name: str
    module: str
    old: str
    new: str
    tests: tuple[str, ...]
    """Tests or files of tests that start processes, and hold it."""

    @property
    def key(self) -> str:
        """Other for each change of the fault."""
        return hashlib.sha256(repr((self.name, self.old, self.new, self.tests)).encode()).hexdigest()[:12]


def faults(text: str) -> list[Fault]:
    """The faults of a list; an error of its form ends the program."""
    result: list[Fault] = []
    for entry in text.split("\n# ")[1:]:
        name, module, *lines = entry.rstrip("\n").split("\n")
        patch = [line for line in lines if line[:2] in ("- ", "+ ", "  ", "-", "+")]
        others = [line for line in lines if line not in patch and line.strip()]
        tests = tuple(word for line in others if line.startswith("tests: ") for word in line.split()[1:])
        if any(not line.startswith("tests: ") for line in others):
            sys.exit(f"{LIST.name}: {name}: {others[0]!r} is neither a line of a patch nor tests")
        old = textwrap.dedent("\n".join(line[2:] for line in patch if line[0] != "+"))
        new = textwrap.dedent("\n".join(line[2:] for line in patch if line[0] != "-"))
        result.append(Fault(name, module, old, new, tests))
    return result


def places(source: str, old: str) -> list[tuple[int, int]]:
    """The number of each line where a text begins, at any indentation, and that indentation."""
    wanted = old.split("\n")
    lines = source.split("\n") if wanted[0] in source else []
    result = []
    for number, line in enumerate(lines):
        if not line.endswith(wanted[0]) or (margin := line[: len(line) - len(wanted[0])]).strip():
            continue
        here = [margin + text if text else "" for text in wanted]
        if lines[number : number + len(wanted)] == here:
            result.append((number, len(margin)))
    return result


def found(fault: Fault, package: Path) -> tuple[Path, int, int] | None:
    """The module, line and indentation where the text of a fault is; None: it is gone, or there twice."""
    path = package / fault.module
    if path.exists() and len(here := places(path.read_text(encoding="utf-8"), fault.old)) == 1:
        return path, *here[0]
    files = sorted(package.rglob("*.py"))
    others = [(one, *at) for one in files for at in places(one.read_text(encoding="utf-8"), fault.old)]
    return others[0] if len(others) == 1 else None


def broken(source: str, fault: Fault, line: int, indent: int) -> tuple[str, int]:
    """A module with the fault, and the first line, from 1 on, that it changes."""
    lines = source.split("\n")
    old, new = fault.old.split("\n"), fault.new.split("\n")
    same = next((number for number, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]), 0)
    lines[line : line + len(old)] = textwrap.indent(fault.new, " " * indent).split("\n") if fault.new else []
    return "\n".join(lines), line + min(same, len(old) - 1) + 1

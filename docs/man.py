"""The man pages, of the same help that `-h` prints: one for the program, one for each command.

In: the commands. Out: `rpcinspect.1`, `rpcinspect-decode.1` and so on, in a folder
(`python docs/man.py FOLDER`). hatch_build.py puts them into a wheel.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer.main

from rpcinspect import __version__
from rpcinspect.cli import app

HEADINGS = {"Exit codes": "EXIT STATUS"}
"""Titles of the help that man pages have another word for; the others are the same in capitals."""
ESCAPED = {"\\": r"\[rs]", "-": r"\-", "'": r"\[aq]", "`": r"\[ga]", "^": r"\[ha]", "~": r"\[ti]"}
"""Signs that roff would take for its own, or draw as other ones that can't be pasted."""


class Page:
    """A page that a command's `format_help` writes: it has the methods of click's formatter of helps."""

    current_indent = 0

    def __init__(self, name: str, brief: str) -> None:
        self.lines = [
            f'.TH "{roff(name)}" 1 "" "{roff(f"rpcinspect {__version__}")}"',
            ".SH NAME",
            f"{roff(name)} \\- {roff(brief)}",
        ]

    def write_usage(self, program: str, arguments: str) -> None:
        self.lines += [".SH SYNOPSIS", f"{bold(program)} {roff(arguments)}", ".SH DESCRIPTION"]

    def write_text(self, text: str) -> None:
        for paragraph in text.split("\n\n"):
            self.write_paragraph()
            self.lines.append(roff(" ".join(paragraph.split())))

    def write_dl(self, rows: Iterable[tuple[str, str]]) -> None:
        for name, what in rows:
            words = (italic(word) if word.isupper() else bold(word) for word in name.split())
            self.lines += [".TP", " ".join(words), roff(" ".join(what.split()))]

    def write(self, text: str) -> None:
        """Takes whole lines, such as examples: they are never filled."""
        for line in filter(None, map(str.strip, text.splitlines())):
            self.lines += [".EX", roff(line), ".EE"]

    def write_paragraph(self) -> None:
        if not self.lines[-1].startswith((".PP", ".SH")):
            self.lines.append(".PP")

    @contextmanager
    def section(self, title: str) -> Iterator[None]:
        self.lines.append(f".SH {roff(HEADINGS.get(title, title.upper()))}")
        yield
        self.write_paragraph()  # what comes without a section is not of this one's last item

    @contextmanager
    def indentation(self) -> Iterator[None]:
        yield


def roff(text: str) -> str:
    """Returns one line that shows this text, whatever stands in it."""
    shown = "".join(ESCAPED.get(c) or (c if c.isascii() else f"\\[u{ord(c):04X}]") for c in text)
    return rf"\&{shown}" if shown.startswith(".") else shown


def bold(text: str) -> str:
    """Returns what is typed as it is."""
    return f"\\fB{roff(text)}\\fP"


def italic(text: str) -> str:
    """Returns what stands for something else."""
    return f"\\fI{roff(text)}\\fP"


def commands() -> Iterator[tuple[Any, Any]]:
    """Yields the program and each command below it, as (click's context, command)."""

    def named(name: str, command: Any, above: Any = None) -> tuple[Any, Any]:
        return command.context_class(command, above, name, **command.context_settings), command

    waiting = [named("rpcinspect", typer.main.get_command(app))]
    for context, command in waiting:
        yield context, command
        for name in getattr(command, "list_commands", lambda _: ())(context):
            waiting.append(named(name, command.get_command(context, name), context))


def page_name(context: Any) -> str:
    """Returns what is asked for, as in `man rpcinspect-export-html`."""
    return str(context.command_path).replace(" ", "-")


def write_pages(folder: Path) -> list[Path]:
    """Writes all pages; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = list(commands())
    written = []
    for context, command in pages:
        page = Page(page_name(context), " ".join(command.help.split()).partition(". ")[0].rstrip("."))
        command.format_help(context, page)
        others = [context.parent, *(other for other, _ in pages if other.parent is context)]
        near = sorted(page_name(other) for other in others if other is not None)
        page.lines += [".SH SEE ALSO", ", ".join(f"{bold(name)}(1)" for name in near)]
        written.append(folder / f"{page_name(context)}.1")
        written[-1].write_text("\n".join(page.lines) + "\n", encoding="ascii")
    return written


if __name__ == "__main__":
    for written in write_pages(Path(sys.argv[1])):
        print(written)

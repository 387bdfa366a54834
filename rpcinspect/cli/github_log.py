"""What we print into a log of GitHub Actions, whose runner takes lines of it as commands.

It looks for `::name …::text` at the beginning of each line, whatever spaces stand before, and for `##[name]`
anywhere in a line, on standard output and on standard error. Lines of ours may begin with what was captured,
such as a traceback; so there both are written with an escape, and only annotations are commands.

In: text for people. Out: the same, of which no line is a command.
"""

from __future__ import annotations

import io
import os
import re
from typing import ClassVar, TextIO

COMMAND = re.compile(r"^(\s*):(?=:)|##\[", re.MULTILINE)


class GithubLog:
    """Whether a runner reads what we print."""

    asked: ClassVar[bool] = False
    """By an option, where no environment says so: in a container that a step has started."""


def is_github_log() -> bool:
    """Returns whether a runner of GitHub Actions reads what we print."""
    return GithubLog.asked or os.environ.get("GITHUB_ACTIONS") == "true"


def inert(text: str) -> str:
    """Returns whole lines of text in which no command begins."""
    if "::" not in text and "##[" not in text:
        return text
    return COMMAND.sub(lambda found: r"##\x5b" if found[1] is None else rf"{found[1]}\x3a", text)


class InertText(io.TextIOBase):
    """Text as it is written, line by line, to somewhere else."""

    def __init__(self, file: TextIO) -> None:
        self.file = file

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Returns that of the file, which says what characters there are."""
        return self.file.encoding

    def write(self, text: str, /) -> int:
        self.file.write(inert(text))
        return len(text)

    def flush(self) -> None:
        self.file.flush()

    def isatty(self) -> bool:
        return self.file.isatty()

    def fileno(self) -> int:
        return self.file.fileno()

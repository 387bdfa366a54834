"""Where views print: rich's console on a terminal, and without styles in a file or a pipe.

In: lines, and texts of several styles. Out: what was printed. rich is loaded for terminals only: that is a
tenth of the start.
"""

from __future__ import annotations

import os
import sys
from typing import IO, TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from rich.text import Text

ASKED = ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
"""Variables by which users tell rich what is a terminal."""


class TextConsole(Protocol):
    """What views need of rich's console."""

    @property
    def is_terminal(self) -> bool:
        """Whether styles are shown, and lines end at an edge."""

    @property
    def width(self) -> int:
        """Where that is."""

    @property
    def file(self) -> IO[str]:
        """Where the text goes."""

    def print(self, *objects: Any, soft_wrap: bool | None = None) -> None:
        """Prints texts, each in lines of its own; with `soft_wrap` they go beyond the edge."""


class StyledText:
    """A text of several styles, which is made into rich's once a terminal shows it."""

    def __init__(self, text: str = "", style: str = "") -> None:
        """`style`: of all of it, the pieces may have others."""
        self.style = style
        self._pieces = [(text, "")]

    def append(self, text: str, style: str = "") -> None:
        """Adds a piece."""
        self._pieces.append((text, style))

    @property
    def plain(self) -> str:
        """The text alone."""
        return "".join([text for text, _ in self._pieces])

    def __rich__(self) -> Text:
        from rich.text import Text

        found = Text(style=self.style)
        for text, style in self._pieces:
            found.append(text, style or None)
        return found


class PlainConsole:
    """Prints to what is no terminal."""

    is_terminal = False
    width = 80

    def __init__(self, file: IO[str] | None) -> None:
        """None: standard output, whatever that is by then."""
        self._file = file

    @property
    def file(self) -> IO[str]:
        if self._file is not None:
            return self._file
        found: IO[str] = getattr(sys.stdout, "rich_proxied_file", sys.stdout)  # behind a bar of progress
        return found

    def print(self, *objects: Any, soft_wrap: bool | None = None) -> None:
        file = self.file
        for one in objects:
            file.write(f"{one if isinstance(one, str) else one.plain}\n")
        file.flush()


def console_for(file: IO[str] | None) -> TextConsole:
    """Returns what prints to a file, or to standard output."""
    plain = PlainConsole(file)
    if not any(name in os.environ for name in ASKED) and not plain.file.isatty():
        return plain
    from rich.console import Console

    return Console(file=file, highlight=False, markup=False, emoji=False, soft_wrap=True)

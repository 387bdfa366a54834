"""What a view prints, kept as lines that are read page by page.

In: a view that prints to a console. Out: inert lines, each short enough for a page, in a temporary file. An
answer may be as long as its capture: memory holds where each line starts.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import IO, cast

from rich.console import Console

from rpcinspect.agents.frame import LINE_BEGIN, visible
from rpcinspect.files.temporary import Temporary
from rpcinspect.views.spool import Spool

MAX_LINE = 2_000
"""Characters of a line; the rest of a longer one stands in lines below it."""
GOES_ON = "… "
"""Begins such a line."""


class Abandoned(BaseException):
    """Nobody waits for the answer any longer. No handler of errors in the code that works it out may take
    this for one."""


class PrintedLines(io.TextIOBase):
    """The lines of an answer."""

    def __init__(self, show: Callable[[Console], None], abandoned: Callable[[], bool]) -> None:
        """Has `show` print all of it; raises `Abandoned` where `abandoned` says so meanwhile."""
        self._file = Temporary()
        self._lines = Spool(self._file)
        self._rest: list[str] = []
        """Of the line that is not over yet."""
        self._abandoned = abandoned
        try:
            show(
                Console(
                    file=cast("IO[str]", self),
                    force_terminal=False,
                    highlight=False,
                    markup=False,
                    emoji=False,
                    soft_wrap=True,
                )
            )
            if any(self._rest):
                self.write("\n")
        except BaseException:
            self.close()
            raise

    @property
    def count(self) -> int:
        """How many lines there are."""
        return len(self._lines)

    def write(self, text: str, /) -> int:
        """Takes what is printed."""
        if self._abandoned():
            raise Abandoned
        first, *others = text.split("\n")
        self._rest.append(first)
        if others:
            whole = ["".join(self._rest), *others[:-1]]
            self._rest = others[-1:]
            found = [piece for line in whole for piece in pieces(visible(line))]
            self._lines.extend([line.encode("utf-8", "backslashreplace") for line in found])
        return len(text)

    def page(self, first: int, room: int) -> list[str]:
        """Returns the lines from number `first` on, counted from 0, that a frame has room for: at least one,
        where there is one."""
        found: list[str] = []
        for at in range(first, self.count):
            line = self._lines.read([at])[0].decode()
            room -= len(LINE_BEGIN) + len(line) + 1
            if found and room < 0:
                break
            found.append(line)
        return found

    def close(self) -> None:
        """Gives the room back."""
        self._file.close()
        super().close()


def pieces(line: str) -> Iterator[str]:
    """Yields a line in pieces that are no longer than one may be."""
    yield line[:MAX_LINE]
    step = MAX_LINE - len(GOES_ON)
    for at in range(MAX_LINE, len(line), step):
        yield f"{GOES_ON}{line[at : at + step]}"

"""What a command writes while it is recorded, as lines: a file that grows.

In: a path. Out: lines on demand, inert: of one that was written over, as by a progress bar, what stands there
last; without colours, other control characters escaped.
"""

from __future__ import annotations

import os
import re
from array import array
from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Static

from rpcinspect.browse.lines import MAX_LINE, LineSource, LinesView, ListLine
from rpcinspect.browse.screens import AskScreen
from rpcinspect.fields.phrases import printable

CHUNK = 1 << 20
TICK_S = 0.2
COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class OutputLines(LineSource):
    """The lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115  (for as long as the app runs)
        self._starts = array("q", [0])
        self._size = 0

    def __len__(self) -> int:
        return len(self._starts) - (self._starts[-1] == self._size)

    def update(self) -> bool:
        """Takes notice of what was written; returns whether something was."""
        before = self._size
        while data := os.pread(self._file.fileno(), CHUNK, self._size):
            self._starts.extend(self._size + found.end() for found in re.finditer(b"\n", data))
            self._size += len(data)
        return self._size > before

    def line(self, at: int, width: int) -> ListLine:
        return ListLine(_inert(self._read(at)))

    def _read(self, at: int) -> bytes:
        start = self._starts[at]
        end = self._starts[at + 1] if at + 1 < len(self._starts) else self._size
        if end - start > 4 * MAX_LINE:  # of a progress bar the last state
            start = max(start, end - 4 * MAX_LINE)
        return os.pread(self._file.fileno(), end - start, start)

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def _inert(line: bytes) -> str:
    text = line.decode(errors="backslashreplace").rstrip("\r\n").rpartition("\r")[2]
    return printable(COLOURS.sub("", text).expandtabs())[:MAX_LINE]


class OutputScreen(AskScreen[None]):
    """Shows what the command has written; follows its end until one scrolls up."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,o", "dismiss", "close")]
    DEFAULT_CSS = """
    OutputScreen > Vertical { width: 100%; height: 90%; border: round $primary; background: $surface; }
    OutputScreen Static { height: 1; text-style: bold; }
    OutputScreen LinesView { height: 1fr; }
    """

    def __init__(self, lines: OutputLines) -> None:
        super().__init__()
        self._lines = lines

    def compose(self) -> ComposeResult:
        """Makes a title and a list."""
        with Vertical():
            title = f"output of the command, which is kept in {printable(str(self._lines.path))}"
            yield Static(Text(title, no_wrap=True, overflow="ellipsis"))
            yield LinesView(self._lines)

    def on_mount(self) -> None:
        """Begins at the end."""
        view = self.query_one(LinesView)
        view.can_follow = view.following = True
        view.focus()
        self._tick()
        view.grown()
        self.set_interval(TICK_S, self._tick)

    def _tick(self) -> None:
        if self._lines.update():
            self.query_one(LinesView).grown()

"""What live workers write and what their debuggers ask, on one terminal: a line of a worker never lands in
the middle of a prompt.

In: lines of workers, and text of debuggers, from several threads. Out: all of it on standard error, since
standard output has the report; control characters are escaped.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

from rpcinspect.cli.output import say_block, show_line, write_error
from rpcinspect.fields.phrases import printable

CLEAR = "\r\x1b[K"
"""Of a terminal: the line from its beginning."""


class WorkerTerminal:
    """Standard input and standard error."""

    def __init__(self) -> None:
        self.make_room: Callable[[], None] = lambda: None
        self._lock = threading.Lock()
        self._begun = ""
        """What stands in the last line, which is not at its end: a prompt."""
        try:
            self.input: int | None = sys.stdin.fileno()
        except (AttributeError, OSError, ValueError):  # there is none, or a stand-in
            self.input = None

    def write(self, text: str) -> None:
        """Shows what a debugger says."""
        lines = text.split("\n")
        with self._lock:
            self.make_room()
            write_error("\n".join(printable(line.expandtabs()) for line in lines))
            self._begun = lines[-1] if len(lines) > 1 else self._begun + text

    def typed(self, line: str) -> None:
        """Notes the line behind the prompt; a terminal has shown it when it was typed."""
        with self._lock:
            if not sys.stdin.isatty():
                write_error(f"{printable(line)}\n")
            self._begun = ""

    def show(self, name: str, line: str) -> None:
        """Shows a line that a worker has written."""
        self._between(lambda: show_line(name, line))

    def say(self, line: str) -> None:
        """Shows a line of ours; more lines below the first are indented."""
        self._between(lambda: say_block(line))

    def _between(self, show: Callable[[], None]) -> None:
        """Shows a line above the prompt that is there."""
        with self._lock:
            if self._begun:
                write_error(CLEAR if sys.stderr.isatty() else "\n")
            show()
            if self._begun:
                write_error(printable(self._begun))

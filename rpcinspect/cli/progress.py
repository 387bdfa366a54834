"""A bar on standard error for what takes long: only on a terminal, and not before a second has passed.

In: how much is done. Out: nothing that stays; the bar goes when the work ends. It has no thread of its own:
it is drawn when there is news.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rpcinspect.cli.output import say
from rpcinspect.files.closing import Closing

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

BEFORE_S = 1.0
"""How long the work goes on before the bar appears."""
BETWEEN_S = 0.1
LINE_S = 10.0
"""How long something is waited for before a line says so."""
BAR = 40
"""Its width, where there is room."""
BESIDE = 30
"""What stands beside it: counts and the time."""


class ProgressBar(Closing):
    """A progress bar: call it with the amount done and the total; use it in a `with` statement."""

    def __init__(
        self,
        what: str,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        in_bytes: bool = False,
        quiet: bool = False,
        line: Callable[[str], None] = say,
    ) -> None:
        """`quiet`: never seen, as where the terminal shows something else meanwhile; `line`: prints a line
        where there is no terminal."""
        self._what = what
        self._line = line
        self._waits = ""
        """What the last line said that is waited for."""
        self._next_s = 0.0
        """How long that must have been waited for before another line says so."""
        self._console = None if quiet else _drawable(console)
        self._clock = clock
        self._in_bytes = in_bytes
        self._begin: float | None = None
        self._drawn = 0.0
        self._bar: Progress | None = None

    def __call__(self, done: int, of: int | None) -> None:
        """Shows progress; `of`: the total, None if unknown. At the total the bar disappears, and a later call
        begins another one."""
        if self._console is None:
            return
        if of is not None and done >= of:
            self.close()
            return
        now = self._clock()
        if self._begin is None:
            self._begin = now
        if now - self._begin < BEFORE_S or (self._bar is not None and now - self._drawn < BETWEEN_S):
            return
        bar = self._bar if self._bar is not None else self._start(self._console, of)
        bar.update(bar.task_ids[0], completed=done, total=of, description=self._what)
        bar.refresh()
        self._drawn = now

    def waits(self, what: str, seconds: float) -> None:
        """Shows for what the work waits, and for how long it has; without a terminal as a line, when that
        has lasted for some seconds, then twice as many, and so on."""
        text = f"waiting for {what}"
        if self._console is None:
            due = LINE_S if text != self._waits else self._next_s
            if seconds >= due:
                self._waits, self._next_s = text, 2 * max(seconds, due)
                self._line(f"{text}: {seconds:.0f} s")
            return
        bar = self._bar if self._bar is not None else self._start(self._console, None)
        bar.update(bar.task_ids[0], description=f"{text}: {seconds:.0f} s")
        bar.refresh()

    def _start(self, console: Console, of: int | None) -> Progress:
        from rich.progress import (  # not loaded for work that takes less than a second
            BarColumn,
            DownloadColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
        )

        room = console.width - len(self._what) - BESIDE
        # known before it is drawn: Ctrl-C may come at any time
        self._bar = bar = Progress(
            TextColumn("{task.description}"),
            *([BarColumn(min(BAR, room))] if room > 0 else []),
            DownloadColumn() if self._in_bytes else MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            auto_refresh=False,
            transient=True,
        )
        bar.start()
        console.show_cursor(True)  # a signal that ends us must not leave the terminal without one
        bar.add_task(self._what, total=of)
        return bar

    def close(self) -> None:
        """Takes the bar away."""
        bar, self._bar, self._begin = self._bar, None, None
        if bar is not None:
            bar.stop()


def _drawable(console: Console | None) -> Console | None:
    """The console, or that of standard error, if it is a terminal on which something can be drawn."""
    if console is None:
        if not sys.stderr.isatty():
            return None
        from rich.console import Console  # a tenth of the start

        console = Console(file=sys.stderr)
    return console if console.is_terminal and not console.is_dumb_terminal else None


def reading_bar() -> ProgressBar:
    """The bar of captures that are read."""
    return ProgressBar("reading", in_bytes=True)


def writing_bar(output: Path | None) -> ProgressBar:
    """The bar of a file that is written; what goes to the terminal is seen itself."""
    return ProgressBar("writing", in_bytes=True, quiet=output is None and sys.stdout.isatty())

"""A bar on standard error for what takes long: only on a terminal, and not before a second has passed.

In: how much is done. Out: nothing that stays; the bar goes when the work ends. It has no thread of its own:
it is drawn when there is news.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

BEFORE_S = 1.0
"""How long the work goes on before the bar appears."""
BETWEEN_S = 0.1


class ProgressBar:
    """Call it with what is done and what there is; use it in a `with` statement."""

    def __init__(
        self, what: str, console: Console | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._what = what
        self._console = console if console is not None else Console(file=sys.stderr)
        self._clock = clock
        self._begin: float | None = None
        self._drawn = 0.0
        self._bar: Progress | None = None

    def __call__(self, done: int, of: int) -> None:
        """More is done."""
        if not self._console.is_terminal:
            return
        now = self._clock()
        if self._begin is None:
            self._begin = now
        if now - self._begin < BEFORE_S or (self._bar is not None and now - self._drawn < BETWEEN_S):
            return
        if self._bar is None:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                console=self._console,
                auto_refresh=False,
                transient=True,
            )
            self._bar.start()
            self._bar.add_task(self._what, total=of)
        self._bar.update(self._bar.task_ids[0], completed=done, total=of)
        self._bar.refresh()
        self._drawn = now

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

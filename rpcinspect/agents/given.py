"""The captures that an agent may ask about: those of the command line, and no other file.

In: paths. Out: runs, each read when it is first asked about, and read again once its files have changed: an
agent changes a program, records it again, and asks again.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence

from msgspec.structs import replace
from rich.console import Console

from rpcinspect.agents.printed import Abandoned, PrintedLines
from rpcinspect.errors import CaptureError, RpcInspectError
from rpcinspect.files.closing import Closing
from rpcinspect.library.run import Run
from rpcinspect.pipeline import Decoding, Options
from rpcinspect.run.run import RunModel

MAX_ANSWERS = 8
"""Answers that are kept for their next pages."""


class ToolMistake(RpcInspectError):
    """Says in one line what is wrong with a question that an agent can put otherwise: it names a capture, a
    message, a context or a page that is not there. Whoever asked gets the line as the tool's error."""


class GivenCapture(Closing):
    """One capture, or several that are one run."""

    def __init__(self, number: int, paths: Sequence[str], options: Options) -> None:
        self.number = number
        self.paths = tuple(paths)
        self._options = options
        self._state: tuple[tuple[int, ...], ...] = ()
        self._run: Run | None = None
        self._unread: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """How the command line calls it."""
        return ",".join(self.paths)

    def is_called(self, name: str) -> bool:
        """Returns whether an agent may mean this one: by its path, or the last part of that."""
        return name in (self.name, ",".join(map(os.path.basename, self.paths)))

    def state(self) -> tuple[tuple[int, ...], ...]:
        """Returns size and time of change of each file: a changed one is read again. Raises `CaptureError`
        where one is not there."""
        found = []
        for path in self.paths:
            try:
                its = os.stat(path)
            except OSError as error:
                raise CaptureError(f"{path}: {error.strerror}") from error
            found.append((its.st_dev, its.st_ino, its.st_size, its.st_mtime_ns))
        return tuple(found)

    def run(self, abandoned: Callable[[], bool]) -> Run:
        """Returns the run, read where it was not yet, or is another by now. Raises `CaptureError` for what is
        no capture."""
        state = self.state()
        if self._run is None or state != self._state:
            self.close()
            self._run, self._state = self._read(abandoned), state
        return self._run

    @property
    def notices(self) -> tuple[str, ...]:
        """Returns what an agent should know beside the run: captures of which there is more than was read."""
        return () if self._run is None else (*self._run.model.notices, *self._unread)

    def _read(self, abandoned: Callable[[], bool]) -> Run:
        def look(done: int, of: int | None) -> None:
            if abandoned():
                raise Abandoned

        decoding = Decoding(self.paths, replace(self._options, progress=look))
        try:
            run = Run(RunModel.of(decoding, list(decoding.records())), decoding)
            types = decoding.unread_link_types
            self._unread = (f"no packet could be read: {', '.join(types)}",) if types else ()
        except BaseException:
            decoding.close()
            raise
        return run

    def close(self) -> None:
        """Closes the captures that were read."""
        if self._run is not None:
            self._run.close()
            self._run = None


class GivenCaptures(Closing):
    """All captures, and the answers that were given last."""

    def __init__(self, files: Sequence[Sequence[str]], options: Options) -> None:
        """`files`: the paths of each capture."""
        self.captures = [GivenCapture(number, paths, options) for number, paths in enumerate(files, 1)]
        self._answers: OrderedDict[Hashable, PrintedLines] = OrderedDict()

    def named(self, name: int | str) -> GivenCapture:
        """Returns the capture that an agent means. Raises `ToolMistake` where there is none."""
        found = [one for one in self.captures if name in (one.number, str(one.number))]
        if isinstance(name, str):
            found = found or [one for one in self.captures if one.is_called(name)]
        if len(found) == 1:
            return found[0]
        why = f"{len(found)} captures are called so: give a number" if found else "there is no such capture"
        raise ToolMistake(f"capture {name}: {why}; the tool captures lists them")

    def answer(
        self, key: Hashable, show: Callable[[Console], None], abandoned: Callable[[], bool]
    ) -> PrintedLines:
        """Returns what `show` prints; what it printed for the same key is kept for a while."""
        if key in self._answers:
            self._answers.move_to_end(key)
            return self._answers[key]
        found = self._answers[key] = PrintedLines(show, abandoned)
        while len(self._answers) > MAX_ANSWERS:
            self._answers.popitem(last=False)[1].close()
        return found

    def close(self) -> None:
        """Closes the files, and forgets the answers."""
        for lines in self._answers.values():
            lines.close()
        self._answers.clear()
        for one in self.captures:
            one.close()

"""A terminal of its own for a real `rpcinspect browse`: keys go in, what it draws comes out, and nothing is
left when it ends.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.places import ROOT

PATIENCE_S = 60.0
ESCAPES = re.compile(r"\x1b\][^\x07\x1b]*(\x07|\x1b\\)|\x1b[\[(][0-9;?<>=$]*[ -/]*[@-~]|\x1b[=>78M]")
OTHER_SCREEN, OWN_SCREEN, SHOWN_CURSOR = "\x1b[?1049h", "\x1b[?1049l", "\x1b[?25h"


class Terminal:
    """A program on a terminal; use it in a `with` statement."""

    def __init__(
        self,
        *arguments: object,
        columns: int = 100,
        rows: int = 30,
        environment: Mapping[str, str] | None = None,
        stdin: int | None = None,
        ignored: Sequence[signal.Signals] = (),
        through: Sequence[str] = (),
    ) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self.ours, theirs = pty.openpty()
        self.resize(columns, rows)
        self.before = termios.tcgetattr(self.ours)
        inherited = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
        inherited |= {
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "TMPDIR": self._folder.name,
            "LC_ALL": "C.UTF-8",
        }
        self.process = subprocess.Popen(
            [*through, sys.executable, "-m", "rpcinspect", *map(str, arguments)],
            stdin=theirs if stdin is None else stdin,
            stdout=theirs,
            stderr=theirs,
            cwd=ROOT,
            env={**inherited, **(environment or {})},
            start_new_session=True,
            preexec_fn=lambda: _begin(ignored),
        )
        os.close(theirs)
        self.raw = ""
        """All that was written."""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.ours >= 0:
            os.close(self.ours)
        self._folder.cleanup()

    def resize(self, columns: int, rows: int) -> None:
        """Makes the terminal so large."""
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        if hasattr(self, "process"):
            self.process.send_signal(signal.SIGWINCH)

    def press(self, *keys: str) -> None:
        """Types."""
        for key in keys:
            os.write(self.ours, key.encode())

    def take(self, seconds: float = 0.05) -> bool:
        """Takes what was drawn meanwhile; False once nothing has the terminal any more."""
        if not select.select([self.ours], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self.ours, 1 << 16)
        except OSError:
            return False
        self.raw += data.decode(errors="replace")
        return bool(data)

    @property
    def text(self) -> str:
        """What was drawn, one thing after the other, without escapes."""
        return ESCAPES.sub(" ", self.raw)

    def until(self, wanted: str | Callable[[], object], since: int = 0) -> None:
        """Waits until a text was drawn, after so much was, or something is the case."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            if wanted() if callable(wanted) else wanted in ESCAPES.sub(" ", self.raw[since:]):
                return
            if not self.take():
                break
        assert not isinstance(wanted, str), f"{wanted!r} is not in {self.text[-3000:]}"
        assert wanted(), self.text[-3000:]

    def ended(self) -> int:
        """Waits for the end; returns the exit code, once the terminal is as it was and nothing is left."""
        end = time.monotonic() + PATIENCE_S
        while self.process.poll() is None and time.monotonic() < end:
            self.take()
        code = self.process.wait(1.0)
        while self.take(0.0) and select.select([self.ours], [], [], 0.05)[0]:
            pass
        assert self.left_files() == []
        assert self.settings() == self.before
        if OTHER_SCREEN in self.raw:
            assert self.raw.rindex(OWN_SCREEN) > self.raw.rindex(OTHER_SCREEN)
            assert SHOWN_CURSOR in self.raw[self.raw.rindex(OWN_SCREEN) :]
        assert "Traceback" not in self.text, self.text[-3000:]
        return code

    def settings(self) -> list[Any]:
        """Returns the modes of the terminal."""
        return termios.tcgetattr(self.ours)

    def left_files(self) -> list[str]:
        """Returns temporary files with a name."""
        return os.listdir(self._folder.name)

    def hang_up(self) -> None:
        """Closes the terminal, as a lost connection does."""
        os.close(self.ours)
        self.ours = -1

    def children(self) -> set[int]:
        """Returns the processes that the program has."""
        folder = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return set(map(int, folder.read_text().split()))


def _begin(ignored: Sequence[signal.Signals]) -> None:
    """In the new process: takes the terminal."""
    fcntl.ioctl(1, termios.TIOCSCTTY, 0)
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)

"""`rpcinspect record --browse`: the command runs and is recorded in a process of its own; browse shows what
comes.

In: the options of `record`. Out: the exit code of the command. That process has a terminal of its own, so
that the command is as it would be in a terminal and never writes over the screen: what it writes goes into a
file beside the recording. Ctrl-C is passed on as a terminal does it. Once the screen is left while the
command still runs, its output goes to our terminal, as without --browse.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import pty
import select
import signal
import sys
import termios
import threading
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from rpcinspect.browse.marks import Marks
from rpcinspect.capture import Followed
from rpcinspect.cli.ending import end_at_once
from rpcinspect.cli.guard import guarded
from rpcinspect.cli.output import say
from rpcinspect.cli.record import RecordCommand
from rpcinspect.cli.recording import recorded_as_asked
from rpcinspect.errors import RpcInspectError
from rpcinspect.exit_codes import INTERRUPTED
from rpcinspect.files.output import open_growing
from rpcinspect.pipeline import Options
from rpcinspect.recorder.record import summary

OUTPUT = ".out"
"""What the name of a recording gets for the output of its command."""
CTRL_C = b"\x03"
CHUNK = 1 << 16
PAUSE_S = 0.1
FAILED = 126
SIGNALLED = 128
PARENT_DEATH = 1
"""Of Linux: which signal comes when the parent is gone, however it ended."""
LOCAL = 3
"""Of the modes of a terminal: those among which is the echo."""


class BrowsedJob:
    """A command that is being recorded."""

    def __init__(self, command: RecordCommand) -> None:
        """Starts it."""
        told, tell = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # the process needs no other thread
            self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            os.close(told)
            _run(command, tell)
        os.close(tell)
        _furnish(self._terminal)
        self._told = os.fdopen(told, "rb")
        self._held = b""
        """What was written before it was known where it goes."""
        self._file: int | None = None
        self._passed_on = False
        self._lock = threading.Lock()
        self._status: int | None = None
        self._reader = threading.Thread(target=self._read, name="rpcinspect output", daemon=True)
        self._reader.start()

    def recording(self) -> Path | None:
        """Waits until the command begins; returns the file that is being written, None where it can't begin:
        what was said about it is on standard error then."""
        told = self._next()
        if told is None:
            self._reader.join()
            sys.stderr.write(self._held.decode(errors="backslashreplace").replace("\r\n", "\n"))
            return None
        file = Path(told)
        with self._lock:
            self._file = open_growing(output_of(file))
            _write(self._file, self._held)
        return file

    def _next(self) -> Any:
        line = self._told.readline()
        return json.loads(line) if line else None

    @property
    def is_over(self) -> bool:
        """Whether the recording is complete."""
        if self._status is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                pid, status = self.pid, FAILED << 8
            if pid:
                self._status = status
        return self._status is not None

    def interrupt(self) -> str:
        """Sends the command what Ctrl-C sends; returns what was done, empty once it is over."""
        if self.is_over:
            return ""
        os.write(self._terminal, CTRL_C)
        return "Ctrl-C was sent to the command; once it is over, Ctrl-C ends the program"

    def send(self, number: int) -> None:
        """Passes a signal on."""
        if not self.is_over:
            os.kill(self.pid, number)

    def pass_output_on(self) -> None:
        """From now on our terminal shows what the command writes."""
        self._passed_on = True

    def result(self) -> tuple[int, Sequence[str]]:
        """Waits for the end; returns the exit code, and what there is to say about the recording."""
        while not select.select([self._told], [], [], PAUSE_S)[0]:
            pass  # a signal that comes just before a wait begins is seen once that ends: so each is short
        lines = self._next() or []
        self._reader.join()
        if not self.is_over:
            self._status = os.waitpid(self.pid, 0)[1]
        code = os.waitstatus_to_exitcode(self._status or 0)
        self._told.close()
        return (code if code >= 0 else 128 - code), lines

    def _read(self) -> None:
        """Takes what the command writes, until nothing has its terminal any more."""
        while True:
            try:
                data = os.read(self._terminal, CHUNK)
            except OSError:
                data = b""
            if not data:
                break
            with self._lock:
                if self._file is None:
                    self._held += data
                else:
                    _write(self._file, data)
            if self._passed_on:
                _write(1, data)


def browse_job(command: RecordCommand) -> int:
    """Records, and shows what comes; returns the exit code of the command."""
    job = BrowsedJob(command)
    file = job.recording()
    if file is None:
        return job.result()[0]
    from rpcinspect.cli.browsing import browse_sources  # the process above needs none of it

    options = Options(by_completion=True)
    source = Followed(str(file), lambda: job.is_over)
    marks = Marks.beside([str(file)])
    signal.signal(signal.SIGINT, lambda number, frame: job.interrupt())  # also once the screen is left
    try:
        code = browse_sources(
            [source], options, marks, follows=True, ends=job.interrupt, output=output_of(file)
        )
    except RpcInspectError as error:  # what can't be shown is recorded all the same
        _tell(str(error))
        code = 0
    if code > SIGNALLED and code != INTERRUPTED:
        job.send(code - SIGNALLED)
    elif not job.is_over:
        _tell("the command goes on: Ctrl-C reaches it, and the recording is complete once it has ended")
    job.pass_output_on()
    code, lines = job.result()
    for line in lines:
        _tell(line)
    _tell(f"the output of the command is in {output_of(file)}")
    return end_at_once(code)


def output_of(recording: Path) -> Path:
    """Returns where the output of a recorded command is."""
    return recording.with_name(f"{recording.name}{OUTPUT}")


def _run(command: RecordCommand, tell: int) -> NoReturn:
    """Records in the new process; never returns."""
    code = FAILED

    def say_so(what: object) -> None:
        os.write(tell, json.dumps(what).encode() + b"\n")

    def record() -> int:
        outcome = recorded_as_asked(command, lambda file: say_so(os.fspath(file)))
        lines = list(summary(outcome))
        for line in lines:
            say(line)
        say_so(lines)
        return outcome.exit_code

    try:
        nowhere = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nowhere, 0)  # nobody types into it
        os.close(nowhere)
        os.set_inheritable(tell, False)
        # Passed on to the command. Not SIGHUP: the terminal's own hang-up, which is not, may come first and
        # then stands for both.
        ctypes.CDLL(None).prctl(PARENT_DEATH, signal.SIGTERM)
        code = guarded(record)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _furnish(terminal: int) -> None:
    """Makes a terminal as large as ours; it does not show what is typed, which is Ctrl-C only."""
    with suppress(OSError, termios.error):
        size = fcntl.ioctl(1, termios.TIOCGWINSZ, bytes(8))
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, size)
        modes = termios.tcgetattr(terminal)
        modes[LOCAL] &= ~termios.ECHO
        termios.tcsetattr(terminal, termios.TCSANOW, modes)


def _tell(line: str) -> None:
    """Says a line, unless our terminal is gone."""
    with suppress(OSError):
        say(line)


def _write(descriptor: int, data: bytes) -> None:
    with suppress(OSError):  # a full disk, or a terminal that is gone, does not end the command
        while data:
            data = data[os.write(descriptor, data) :]

"""Runs a command as if it had been started without us: its streams, its signals, its exit code.

In: the command line, its environment, what to do in its process before it begins. Out: its exit code as a
shell gives it, 128 + n for a signal. Knows nothing of recordings.

The process of the command is forked at once and waits: it can open what only it may open (in a namespace of
its own), hand that to us, and begins when told to. Signals are blocked and waited for meanwhile, so that none
is missed and the sender is known: those of the terminal reach the command by themselves, others are passed
on. What the command leaves behind is adopted meanwhile, and waited for once it has ended (`reaper`).
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from rpcinspect.capture.sniffer import fork
from rpcinspect.errors import CommandError, RecordError
from rpcinspect.files.closing import Closing
from rpcinspect.recorder.processes import Process, Reaper

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
WAITED_FOR = (*PASSED_ON, signal.SIGCHLD)
SI_KERNEL = 0x80
"""The sender of a signal: the terminal, which has sent it to the command too."""
LOOK_SECONDS = 1.0
"""Whether the command has ended is looked at so often: another thread may have got the signal."""
NOT_FOUND, NOT_RUNNABLE = 127, 126
MAX_DESCRIPTORS = 8
MAX_REPORT = 1 << 14


def find_program(name: str) -> str:
    """The path of a program, as a shell finds it; `CommandError` with the shell's exit code."""
    found = shutil.which(name)
    if found is not None:
        return found
    if os.sep in name and os.path.exists(name):
        what = "is a folder" if os.path.isdir(name) else "can't be executed"
        raise CommandError(f"{name}: {what}", NOT_RUNNABLE)
    raise CommandError(f"{name}: no such command", NOT_FOUND)


class CommandProcess(Closing):
    """A command's process; use it in a `with` statement, which ends a process that has not begun."""

    def __init__(
        self, arguments: Sequence[str], environment: Mapping[str, str], stage: Callable[[], Sequence[int]]
    ) -> None:
        """Forks. `RecordError` if `stage`, which runs in the new process, raises it."""
        self._program = find_program(arguments[0])
        self._ours, theirs = socket.socketpair()
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, WAITED_FOR)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # whoever ignores it has passed that on, and wait fails
        self._begun = False
        self._reaper: Reaper | None = None
        self.pid = fork()
        if self.pid == 0:
            self._ours.close()
            _become(theirs, self._program, list(arguments), dict(environment), stage, self._mask)
        theirs.close()
        self.descriptors: list[int] = []
        """What the stage gave us."""
        try:
            self.descriptors = self._staged()
        except BaseException:
            self.close()
            raise

    def _staged(self) -> list[int]:
        data, descriptors, _, _ = socket.recv_fds(self._ours, MAX_REPORT, MAX_DESCRIPTORS)
        if not data:
            raise RecordError("the process of the command ended before it began")
        error = json.loads(data)["error"]
        if error is not None:
            raise RecordError(error)
        return descriptors

    def begin(self) -> None:
        """The command begins; `CommandError` if the system can't run it."""
        self._begun = True
        self._reaper = Reaper()
        self._ours.sendall(b"!")
        failed = self._ours.recv(MAX_REPORT)  # nothing comes once the program has replaced ours
        if failed:
            os.waitpid(self.pid, 0)
            number = int(failed)
            code = NOT_FOUND if number == errno.ENOENT else NOT_RUNNABLE
            raise CommandError(f"{self._program}: can't be run: {os.strerror(number)}", code)

    def wait(self) -> int:
        """The exit code; passes on signals meanwhile."""
        while True:
            got = signal.sigtimedwait(WAITED_FOR, LOOK_SECONDS)
            if got is not None and got.si_signo != signal.SIGCHLD and got.si_code != SI_KERNEL:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pid, got.si_signo)
            assert self._reaper is not None
            self._reaper.look()
            status = self._reaper.wait_for(self.pid)
            if status is not None:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code

    @property
    def statuses(self) -> Mapping[Process, tuple[int, int]]:
        """(wait status, time_ns) of processes that have ended: the command's own, and those that it left."""
        return self._reaper.statuses if self._reaper is not None else {}

    def close(self) -> None:
        """Lets go of the process; one that has not begun ends."""
        self._ours.close()
        if self._reaper is not None:
            self._reaper.close()
        if not self._begun:
            os.waitpid(self.pid, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)


def _become(
    control: socket.socket,
    program: str,
    arguments: list[str],
    environment: dict[str, str],
    stage: Callable[[], Sequence[int]],
    mask: set[int | signal.Signals],
) -> NoReturn:
    """Runs the stage in the new process, then the command. Never returns, whatever happens."""
    try:
        error, descriptors = None, list[int]()
        try:
            descriptors = list(stage())
        except RecordError as refused:
            error = str(refused)
        report = json.dumps({"error": error}).encode()
        socket.send_fds(control, [report], descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        if error is None and control.recv(1):  # else our parent gave up, or is gone
            for number in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)  # Python ignores both
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            try:
                os.execve(program, arguments, environment)
            except OSError as failed:
                control.sendall(str(failed.errno).encode())
    finally:
        os._exit(NOT_RUNNABLE)

"""Programs that need torch, started as forks of one process that has imported it (`forking.py`).

Importing torch takes each Python some three seconds of a processor, and hundreds of tests start one or two.
In: what `subprocess.Popen` takes. Out: a `Popen` whose process is such a fork, with the same arguments,
environment and files. What a new Python alone would do stays with `subprocess`: `suits` says which that is.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

FORKING = Path(__file__).with_name("forking.py")
HAS_TORCH = importlib.util.find_spec("torch") is not None
THREADS = "OMP_NUM_THREADS"
"""torch reads it when it is imported."""
READ_BY_PYTHON = ("PYTHONWARNINGS", "PYTHONIOENCODING", "PYTHONUTF8", "PYTHONHASHSEED")


class Forks:
    """The process; it ends with this one."""

    def __init__(self) -> None:
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="forks-"))
            self.address = str(Path(folder) / "socket")
            self._parent, theirs = socket.socketpair()
            stack.callback(self._parent.close)
            with theirs, socket.socket(socket.AF_UNIX) as listener:
                listener.bind(self.address)
                listener.listen(64)
                numbers = (listener.fileno(), theirs.fileno())
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-B", str(FORKING), *map(str, numbers)],
                    pass_fds=numbers,
                    stdin=subprocess.DEVNULL,
                    env=os.environ | {THREADS: "1", "CUDA_VISIBLE_DEVICES": ""},
                    start_new_session=True,
                )
            if not self._parent.recv(1):
                raise RuntimeError("there is no torch to fork programs from")
            self._ends = stack.pop_all()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def close(self) -> None:
        """Ends it and what was started."""
        self._ends.close()
        self._process.wait()


@cache
def forks() -> Forks:
    """The one of this process, started when it is first asked for."""
    found = Forks()
    atexit.register(found.close)
    return found


def suits(arguments: Sequence[str], env: Mapping[str, str] | None) -> bool:
    """Whether a fork would do what a new Python does: none that is another program, uses GPUs or more
    threads, or has settings that only Python's start reads."""
    env = os.environ if env is None else env
    return (
        HAS_TORCH
        and arguments[0] == sys.executable
        and env.get(THREADS, "1") == "1"
        and not env.get("CUDA_VISIBLE_DEVICES")
        and not any(env.get(name) for name in READ_BY_PYTHON)
    )


def popen(arguments: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
    """Starts a program that imports torch: as a fork, where that is the same."""
    kind = ForkedPopen if suits(arguments, options.get("env")) else subprocess.Popen
    return kind(arguments, **options)


def run(
    arguments: Sequence[str], *, timeout: float, check: bool = False, text: str = "", **options: Any
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run`, with what the program reads and writes as text."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with popen(arguments, encoding="utf-8", **(pipes | options)) as process:
        try:
            out, err = process.communicate(text, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(arguments, process.returncode, out, err)
    if check:
        assert done.returncode == 0, done.stderr
    return done


class ForkedPopen(subprocess.Popen[Any]):
    """A `Popen` whose process another one forks and buries."""

    _connection: socket.socket

    def _execute_child(self, args: Any, *given: Any) -> None:  # type: ignore[override]
        """Instead of a fork of our own. The order of what is given is Python's since 3.9."""
        pass_fds, cwd, env = given[3:6]
        files = {0: given[9], 1: given[12], 2: given[14]}
        places = {place: place if number == -1 else number for place, number in files.items()}
        places |= {number: number for number in pass_fds}
        asked = {
            "arguments": [os.fspath(one) for one in args][1:],
            "env": dict(os.environ if env is None else env),
            "cwd": os.fspath(cwd or os.getcwd()),
            "places": list(places),
        }
        address = forks().address
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(address)
        text = json.dumps(asked).encode()
        socket.send_fds(self._connection, [len(text).to_bytes(4, "big")], list(places.values()))
        self._connection.sendall(text)
        self.pid = self._told()
        self._child_created = True
        self._close_pipe_fds(*given[9:15])

    def _told(self) -> int:
        """The next number that is told of it; blocks."""
        text = b""
        while not text.endswith(b"\n"):
            part = self._connection.recv(1)
            if not part:
                raise RuntimeError("the process that forks programs has ended")
            text += part
        return int(text)

    def _try_wait(self, flags: int) -> tuple[int, int]:
        """As `os.waitpid`."""
        if flags & os.WNOHANG and not select.select([self._connection], [], [], 0)[0]:
            return 0, 0
        with self._connection:
            return self.pid, self._told()

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        """As `poll`."""
        if self.returncode is None:
            pid, status = self._try_wait(os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

"""Programs that need torch, and commands of rpcinspect, as forks of a process that has imported them
(`forking.py`).

Importing torch takes each Python some three seconds of a processor, the commands half of one, and hundreds of
tests start one or two. In: what `subprocess.Popen` takes. Out: a `Popen` whose process is such a fork, with
the same arguments, environment and files. What a new Python alone would do stays with `subprocess`: `suits`
says which that is.
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
from pathlib import Path
from typing import Any, ClassVar

from msgspec import Struct

from rpcinspect.replayer.workers.parent_process import ParentProcess
from tests.places import ROOT

FORKING = Path(__file__).with_name("forking.py")
HAS_TORCH = importlib.util.find_spec("torch") is not None
THREADS = "OMP_NUM_THREADS"
"""torch reads it when it is imported."""
READ_BY_PYTHON = ("PYTHONWARNINGS", "PYTHONIOENCODING", "PYTHONUTF8", "PYTHONHASHSEED")
LOCALE = ("LC_ALL", "LC_CTYPE", "LANG")
"""Python reads it when it starts."""
IMPORTED = {
    "torch": ("", "torch.distributed.optim", "torch.distributed.rpc"),
    "commands": (str(ROOT),),
}
"""What the processes that fork have, as arguments of `forking.py`."""
WITH_WORKERS = ("replay", "join")
"""Commands that start live workers."""


class Others(Struct, frozen=True):
    """A process that forks and was started by another one."""

    address: str


class Forks:
    """A process that forks; it ends with this one."""

    def __init__(self, kind: str) -> None:
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
                    [sys.executable, "-I", "-B", str(FORKING), *map(str, numbers), *IMPORTED[kind]],
                    pass_fds=numbers,
                    stdin=subprocess.DEVNULL,
                    env=os.environ | {THREADS: "1", "CUDA_VISIBLE_DEVICES": ""},
                    start_new_session=True,
                )
            if not self._parent.recv(1):
                raise RuntimeError(f"there is no {kind} to fork programs from")
            self._ends = stack.pop_all()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def close(self) -> None:
        """Ends it and what was started."""
        self._ends.close()
        self._process.wait()


started: dict[str, Forks] = {}
"""Those of this process, by what they have imported."""
others: dict[str, Others] = {}
"""Those that this process, itself a fork, was told of."""


def forks(kind: str = "torch") -> Forks:
    """The one of this process, started when it is first asked for."""
    if kind not in started:
        started[kind] = Forks(kind)
        atexit.register(started[kind].close)
    return started[kind]


def workers_are_forks(torch: str) -> None:
    """Makes the parents of live workers, in this process, forks of the process that listens at `torch`."""
    others["torch"] = Others(torch)
    ParentProcess.start_process = staticmethod(popen)


def suits(arguments: Sequence[str], env: Mapping[str, str] | None) -> bool:
    """Whether a fork would do what a new Python does: none that is another program, or has settings that only
    Python's start reads."""
    env = os.environ if env is None else env
    return (
        arguments[0] == sys.executable
        and not any(env.get(name) for name in READ_BY_PYTHON)
        and all(env.get(name) == os.environ.get(name) for name in LOCALE)
    )


def suits_torch(env: Mapping[str, str] | None) -> bool:
    """Whether torch would be the same: there, without GPUs, with one thread."""
    env = os.environ if env is None else env
    return HAS_TORCH and env.get(THREADS, "1") == "1" and not env.get("CUDA_VISIBLE_DEVICES")


def popen(arguments: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
    """Starts a program that imports torch: as a fork, where that is the same."""
    env = options.get("env")
    kind = TorchPopen if suits(arguments, env) and suits_torch(env) else subprocess.Popen
    return kind(arguments, **options)


def command(*arguments: object, **options: Any) -> subprocess.Popen[Any]:
    """Starts `rpcinspect ARGUMENTS`: as a fork, where that is the same. Its live workers are forks, too."""
    if arguments[0] in WITH_WORKERS and suits_torch(options.get("env")):
        forks()
    return python("-m", "rpcinspect", *arguments, **options)


def python(*arguments: object, before: Sequence[str] = (), **options: Any) -> subprocess.Popen[Any]:
    """Starts `python ARGUMENTS`, which runs commands of rpcinspect: as a fork, where that is the same.
    `before` is a program with arguments that starts it."""
    line = [*before, sys.executable, *map(str, arguments)]
    kind = CommandPopen if suits(line, options.get("env")) else subprocess.Popen
    return kind(line, **options)


def ran(
    *arguments: object, timeout: float = 60, given: Any = None, **options: Any
) -> subprocess.CompletedProcess[Any]:
    """As `subprocess.run` of `rpcinspect ARGUMENTS`; both outputs are captured, `given` is its input."""
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with command(*arguments, **(pipes | options)) as process:
        try:
            out, err = process.communicate(given, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(list(arguments), process.returncode, out, err)


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

    KIND: ClassVar[str]
    _connection: socket.socket

    def _execute_child(self, args: Any, *given: Any) -> None:  # type: ignore[override]
        """Instead of a fork of our own. The order of what is given is Python's since 3.9."""
        pass_fds, cwd, env = given[3:6]
        sys.audit("subprocess.Popen", args[0], args, cwd, env)
        files = {0: given[9], 1: given[12], 2: given[14]}
        places = {place: place if number == -1 else number for place, number in files.items()}
        places |= {number: number for number in pass_fds}
        asked = {
            "arguments": [os.fspath(one) for one in args][1:],
            "env": dict(os.environ if env is None else env),
            "cwd": os.fspath(cwd or os.getcwd()),
            "places": list(places),
            "torch": started["torch"].address if "torch" in started else None,
        }
        address = (others.get(self.KIND) or forks(self.KIND)).address
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


class TorchPopen(ForkedPopen):
    """Of a process that has imported torch."""

    KIND = "torch"


class CommandPopen(ForkedPopen):
    """Of a process that has imported the commands of rpcinspect."""

    KIND = "commands"

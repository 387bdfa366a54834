"""Live workers: processes of torch that stand in for captured ones. This module starts, watches and ends
them.

In: what the user wants imported, and the names and ids of captured workers. Out: `LiveGroup`s: a store and
the workers that formed a dynamic group around it, on the loopback only. This process imports neither torch
nor anything of the user's; `worker_main` does, in processes of their own with an environment, a directory
and a process group of their own. Everything that was started ends when the `Workers` are closed, however
that comes about.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO

from rpcinspect.errors import ReplayError
from rpcinspect.replay.worker_protocol import ControlSocket, Object

WORKER_MAIN = Path(__file__).with_name("worker_main.py")
OLDEST_TORCH = (2, 2)
"""Earlier stores speak another protocol."""
TAIL_BYTES = 1 << 14
"""Of a worker's output that is kept for the report."""
QUIT_S = 10.0
PASSED_ON = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "USER", "LOGNAME")
"""Of our environment; nothing else reaches a worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """What the user says about live workers."""

    path: tuple[str, ...] = ()
    """Folders that modules are searched in first."""
    imports: tuple[str, ...] = ()
    """Modules that are imported before any message is sent."""
    main: str | None = None
    """The user's script, whose functions captured pickles call `__main__.f` or `__mp_main__.f`."""
    seed: int | None = None
    """Of every worker's random numbers."""
    threads: int = 1
    """As for `torch.set_num_threads`."""
    rpc_timeout_s: float = 60.0
    """Of the live workers' own calls."""
    import_timeout_s: float = 180.0
    start_timeout_s: float = 60.0
    """For a store or a worker to be ready."""
    interpreter: str = sys.executable


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradient:
    """What a leaf of a live worker has accumulated in a context."""

    dtype: str
    shape: tuple[int, ...]
    layout: str
    """Sparse ones are shown dense."""
    parameter: bool
    """The leaf is an nn.Parameter."""
    data: bytes | None
    """In C order; None: there were too many bytes to show."""


class Child:
    """A process that the nursery forked."""

    def __init__(self, workers: Workers, pid: int, control: ControlSocket, output: IO[bytes]) -> None:
        self._workers = workers
        self.pid = pid
        self.control = control
        self._output = output
        self._tail = ""

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative: the number of the signal that ended it."""
        return self._workers.exit_code(self.pid, 0.0)

    def wait(self, timeout_s: float) -> int | None:
        """Its exit code, for which it waits; None: it still runs."""
        return self._workers.exit_code(self.pid, timeout_s)

    def tail(self) -> str:
        """The end of what the process has written, standard output and errors."""
        return self._tail if self._output.closed else _tail(self._output)

    def end(self) -> None:
        """Kills it, and waits until that has happened."""
        self._workers.end(self.pid)
        self.control.close()
        self._tail = self.tail()
        self._output.close()


class LiveWorker:
    """A worker of torch under a captured name and id."""

    def __init__(self, name: str, worker_id: int, child: Child) -> None:
        self.name = name
        self.worker_id = worker_id
        self.child = child

    def gradients(self, context_id: int, timeout_s: float = 30.0) -> tuple[Gradient, ...]:
        """`get_gradients(context_id)`; `ReplayError` if the worker has no such context, or doesn't answer."""
        self.child.control.send({"do": "gradients", "context_id": context_id})
        answer = self.child.control.receive(timeout_s)
        if answer is None:
            raise ReplayError(f"{self.name} has ended")
        what, blob = answer
        if "error" in what:
            raise ReplayError(f"{self.name}: {what['error']}")
        try:
            return _gradients(what["gradients"], blob)
        except (KeyError, TypeError, ValueError) as error:
            raise ReplayError(f"{self.name} says something else than gradients") from error

    def leave(self, timeout_s: float = 30.0) -> bool:
        """A graceful shutdown of its agent; whether that went well within the time."""
        try:
            self.child.control.send({"do": "leave"})
            answer = self.child.control.receive(timeout_s)
        except ReplayError:
            return False
        return answer is not None and answer[0].get("left") is True


class LiveGroup:
    """A store and the workers around it. Use it in a `with` statement: leaving it ends all of them."""

    def __init__(self, workers: Workers) -> None:
        self._all = workers
        self._store, ready = workers.fork(
            {"role": "store", "timeout_s": workers.options.rpc_timeout_s}, "the store"
        )
        self.port: int = int(ready["port"])
        """Of the store, on 127.0.0.1."""
        self.workers: dict[str, LiveWorker] = {}

    def start(
        self, name: str, worker_id: int, device_maps: Mapping[str, Mapping[str, str]] | None = None
    ) -> LiveWorker:
        """Starts a worker and waits until it is a member. `device_maps`: callee → own device → its device,
        of CPUs only where there is no GPU. Raises `ReplayError` with the end of what the worker wrote.
        """
        options = self._all.options
        command = {
            "role": "worker",
            "name": name,
            "id": worker_id,
            "port": self.port,
            "device_maps": {key: dict(value) for key, value in (device_maps or {}).items()},
            "seed": options.seed,
            "threads": options.threads,
            "rpc_timeout_s": options.rpc_timeout_s,
        }
        child, _ = self._all.fork(command, name)
        worker = self.workers[name] = LiveWorker(name, worker_id, child)
        return worker

    def close(self) -> None:
        """Ends the workers, then the store; calling it again is fine."""
        for worker in self.workers.values():
            worker.child.end()
        self._store.end()

    def __enter__(self) -> LiveGroup:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Workers:
    """The process that all live workers are forked from. Use it in a `with` statement."""

    def __init__(self, options: WorkerOptions | None = None) -> None:
        """Starts it and waits until everything is imported. Raises `ReplayError` with the reason."""
        self.options = options or WorkerOptions()
        self._ended: dict[int, int] = {}
        self._running: set[int] = set()
        self._scratch: str | None = None
        self._closed = False
        self._output = _new_output()
        self._control, theirs = ControlSocket.pair()
        try:
            self._process = self._spawn(theirs)
        except BaseException:
            self._control.close()
            self._output.close()
            raise
        finally:
            theirs.close()
        try:
            ready = self._until("ready", self.options.import_timeout_s, "the workers' parent process")
            self.torch_version = str(ready.get("torch"))
            self.threads = int(ready.get("threads", 1))
            """Of the parent process when it was ready; more than one: forking it may go wrong."""
            if _version(self.torch_version) < OLDEST_TORCH:
                raise ReplayError(f"live workers need torch 2.2 or later, there is {self.torch_version}")
        except BaseException:
            self.close()
            raise

    def group(self) -> LiveGroup:
        """A fresh store with nobody around it."""
        return LiveGroup(self)

    def fork(self, command: Object, who: str) -> tuple[Child, Object]:
        """A new process in the role that `command` says, once it is ready, and what it said then."""
        output = _new_output()
        ours, theirs = ControlSocket.pair()
        try:
            files = (theirs.sock.fileno(), output.fileno())
            self._control.send({"do": "fork", **command}, files=files)
            pid = int(self._until("forked", self.options.start_timeout_s, who)["forked"])
        except BaseException:
            ours.close()
            output.close()
            raise
        finally:
            theirs.close()
        self._running.add(pid)
        child = Child(self, pid, ours, output)
        try:
            answer = ours.receive(self.options.start_timeout_s)
            if answer is None:
                raise ReplayError(f"{who} ended while it started{_quoted(child.tail())}")
            if "failed" in answer[0]:
                raise ReplayError(f"{who} could not start: {answer[0]['failed']}{_quoted(child.tail())}")
            return child, answer[0]
        except BaseException:
            child.end()
            raise

    def exit_code(self, pid: int, timeout_s: float) -> int | None:
        """Of a process that was forked, for whose end it waits; None: it still runs."""
        deadline = time.monotonic() + timeout_s
        with contextlib.suppress(ReplayError):  # nothing more was said in that time
            while not self._closed and pid not in self._ended:
                if self._heard(max(deadline - time.monotonic(), 0.0)) is None:
                    break
        return self._ended.get(pid)

    def end(self, pid: int) -> None:
        """Kills a forked process and waits for its end."""
        if self._closed or pid not in self._running or pid in self._ended:
            return
        with contextlib.suppress(ReplayError):  # the parent is gone, and has taken its children along
            self._control.send({"do": "end", "pid": pid})
            deadline = time.monotonic() + QUIT_S
            while pid not in self._ended and time.monotonic() < deadline:
                if not self._heard(deadline - time.monotonic()):
                    break

    def close(self) -> None:
        """Ends every process that was started and removes their directories; calling it again is fine."""
        if self._closed:
            return
        self._closed = True
        try:
            with contextlib.suppress(ReplayError, subprocess.TimeoutExpired):
                self._control.send({"do": "quit"})
                self._control.close()
                self._process.wait(QUIT_S)
        finally:
            self._control.close()
            if self._process.poll() is None:
                # Linux kills the workers with their parent; elsewhere they are told by their ids.
                self._process.kill()
                self._process.wait()
                for pid in self._running - set(self._ended):
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.killpg(pid, signal.SIGKILL)
            if self._scratch is not None:
                shutil.rmtree(self._scratch, ignore_errors=True)
            self._output.close()

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _spawn(self, theirs: ControlSocket) -> subprocess.Popen[bytes]:
        options = self.options
        main_folder = [str(Path(options.main).resolve().parent)] if options.main else []
        what = {
            "path": [str(Path(folder).resolve()) for folder in options.path] + main_folder,
            "sys_path": [folder for folder in sys.path if folder],
            "imports": list(options.imports),
            "main": str(Path(options.main).resolve()) if options.main else None,
        }
        number = theirs.sock.fileno()
        # -I: neither the folder of the script nor this shell's PYTHONPATH decides what is imported.
        return subprocess.Popen(
            [options.interpreter, "-I", "-B", str(WORKER_MAIN), str(number), json.dumps(what)],
            pass_fds=(number,),
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            env=worker_environment(options.threads),
            cwd="/",
            start_new_session=True,  # Ctrl-C is ours to act on
        )

    def _until(self, key: str, timeout_s: float, who: str) -> Object:
        """What the parent process says next with this key."""
        deadline = time.monotonic() + timeout_s
        while True:
            heard = self._heard(max(deadline - time.monotonic(), 0.0))
            if heard is None:
                raise ReplayError(f"the workers' parent process ended{_quoted(_tail(self._output))}")
            if "failed" in heard:
                raise ReplayError(f"import: {heard['failed']}")
            if key in heard:
                return heard
            if time.monotonic() >= deadline:
                raise ReplayError(f"{who} was not ready within {timeout_s:g} s")

    def _heard(self, timeout_s: float) -> Object | None:
        """The next thing that the parent process says; None: it has ended. Raises `ReplayError` if it takes
        too long."""
        heard = self._control.receive(timeout_s)
        if heard is None:
            return None
        what = heard[0]
        if "scratch" in what:
            self._scratch = str(what["scratch"])
        if "ended" in what:
            self._ended[int(what["ended"])] = int(what["status"])
        return what


def worker_environment(threads: int) -> dict[str, str]:
    """The whole environment of live workers."""
    kept = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    return kept | {
        "TP_SOCKET_IFNAME": loopback,
        "GLOO_SOCKET_IFNAME": loopback,
        "OMP_NUM_THREADS": str(threads),
        "OPENBLAS_NUM_THREADS": "1",  # it starts its threads when it is imported, before the fork
        "CUDA_VISIBLE_DEVICES": "",
    }


def _gradients(rows: Sequence[Object], blob: bytes) -> tuple[Gradient, ...]:
    found, start = [], 0
    for row in rows:
        length = row["bytes"]
        data = None if length is None else blob[start : start + length]
        start += length or 0
        found.append(
            Gradient(
                dtype=str(row["dtype"]),
                shape=tuple(int(size) for size in row["shape"]),
                layout=str(row["layout"]),
                parameter=bool(row["parameter"]),
                data=data,
            )
        )
    return tuple(found)


def _new_output() -> IO[bytes]:
    """A file without a name: nobody need remove it."""
    return tempfile.TemporaryFile()


def _tail(output: IO[bytes]) -> str:
    if output.closed:
        return ""
    number = output.fileno()
    size = os.fstat(number).st_size
    return os.pread(number, TAIL_BYTES, max(size - TAIL_BYTES, 0)).decode("utf-8", "replace")


def _quoted(text: str) -> str:
    """The last lines of an output, for the end of a sentence."""
    lines = [line for line in text.splitlines() if line.strip()][-5:]
    return ":\n" + "\n".join(lines) if lines else ""


def _version(text: str) -> tuple[int, ...]:
    numbers = [part for part in text.split("+")[0].split(".") if part.isdigit()]
    return tuple(int(number) for number in numbers[:2])

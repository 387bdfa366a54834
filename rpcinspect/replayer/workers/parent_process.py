"""The process that all live workers are forked from: it imports torch, then what it is told, then it forks.

In: which Python it is, and what its environment says. Out: a process that imports torch at once, whatever
this one does meanwhile; what it reports. `load` names what else is imported: until then it has looked into no
folder but the interpreter's own and knows nothing of a capture, so it may be begun before one is judged.
`worker_main` is what runs there. It ends when it is closed, and when this process dies.
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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from rpcinspect.errors import ReplayError
from rpcinspect.files.closing import Closing
from rpcinspect.replayer.workers.interpreters import Interpreter, own_path
from rpcinspect.replayer.workers.process_exit import Exit, quoted
from rpcinspect.replayer.workers.worker_protocol import ControlSocket, Object, SilenceError

WORKER_MAIN = Path(__file__).with_name("worker_main.py")
QUIT_S = 10.0
END_S = 2.0
"""Until it is known how a process has ended whose socket is closed."""
LOOK_S = 1.0
"""How often it is told what is waited for."""
Waiting: TypeAlias = Callable[[str, float], None]
"""Called now and then while something is waited for, with what that is, and for how many seconds."""
USERS = ("PYTORCH_", "CUBLAS_", "CUDA_")
"""How variables of our environment begin that decide how torch computes, and where."""
PASSED_ON = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "USER", "LOGNAME")
"""Of our environment, beside `USERS`; nothing else reaches a worker."""


class ParentProcess(Closing):
    """The parent process of live workers. Use it in a `with` statement: leaving it ends the process and all
    that it has forked."""

    start_process: Callable[..., subprocess.Popen[bytes]] = subprocess.Popen
    """Starts a program."""

    def __init__(self, *, threads: int, cuda: bool = False, interpreter: Interpreter | None = None) -> None:
        """Starts it; nothing is waited for. `threads`, `cuda`, `interpreter`: as in `WorkerOptions`."""
        self._output: int | None
        self.tail: Callable[[], str] = str
        """Returns the end of what it has written; whoever reads that sets it."""
        self.ended: dict[int, Exit] = {}
        """Id of a forked process → how it ended, in the order in which they did."""
        self._importing = ""
        """The module that is being imported."""
        self._told = self._loaded = self._closed = False
        self._forked: set[int] = set()
        self._scratch = tempfile.mkdtemp(prefix=f"rpcinspect-{os.getpid()}-")
        self._output, writer = os.pipe()
        self._control, theirs = ControlSocket.pair()
        number = theirs.sock.fileno()
        what = {
            "scratch": self._scratch,
            "anew": False,
            "sys_path": own_path() if interpreter is None else list(interpreter.path),
        }
        program = sys.executable if interpreter is None else interpreter.program
        try:
            # -I: neither the folder of the script nor this shell's PYTHONPATH decides what is imported.
            self._process = type(self).start_process(
                [program, "-I", "-B", str(WORKER_MAIN), str(number), json.dumps(what)],
                pass_fds=(number,),
                stdin=subprocess.DEVNULL,
                stdout=writer,
                stderr=writer,
                env=worker_environment(threads, cuda=cuda),
                cwd="/",
                start_new_session=True,  # Ctrl-C is ours to act on
            )
        except BaseException:
            self._give_back()
            raise
        finally:
            theirs.close()
            os.close(writer)

    def take_output(self) -> int:
        """Returns our end of the pipe that it writes to, as standard output and errors: the caller's to read
        and to close."""
        taken, self._output = self._output, None
        assert taken is not None
        return taken

    def load(self, what: Object, timeout_s: float, waiting: Waiting) -> Object:
        """Has it import what live workers need beside torch, see `worker_imports.load`; returns its report
        once that is done. Raises `ReplayError` with the reason of a failure."""
        self._told = True
        with contextlib.suppress(ReplayError):  # it has ended, and `until` says how
            self._control.send({"do": "load", **what})
        ready = self.until("ready", timeout_s, "the workers' parent process", waiting)
        self._loaded = True
        return ready

    def send(self, command: Object, files: Sequence[int] = ()) -> None:
        """Gives it a command. Raises `ReplayError` once it has ended."""
        self._control.send(command, files=files)

    def until(self, key: str, timeout_s: float, who: str, waiting: Waiting) -> Object:
        """Waits for its next report that has this key. Raises `ReplayError` if none comes."""
        began = time.monotonic()
        while True:
            waited_s = time.monotonic() - began
            try:
                heard = self.heard(max(min(LOOK_S, timeout_s - waited_s), 0.0))
            except SilenceError:
                if waited_s < timeout_s:
                    what = f"the import of {self._importing}" if self._importing else who
                    waiting(what, time.monotonic() - began)
                    continue
                waits = f" (it imports {self._importing})" if self._importing else ""
                if self._importing:
                    self._process.send_signal(signal.SIGABRT)  # it writes first where it hangs
                    self.wait()
                told = f"{who} was not ready within {timeout_s:g} s{waits}"
                raise ReplayError(f"{told}{quoted(self.tail())}") from None
            if heard is None:
                raise ReplayError(f"{self._how_it_ended()}{quoted(self.tail())}")
            if "failed" in heard:
                raise ReplayError(f"{failed_import(heard)}{quoted(self.tail())}")
            if key in heard:
                return heard

    def heard(self, timeout_s: float) -> Object | None:
        """Returns its next report; None: it has ended. Raises `ReplayError` if it takes too long."""
        heard = self._control.receive(timeout_s)
        if heard is None:
            return None
        what = heard[0]
        if "importing" in what:
            self._importing = str(what["importing"])
        if "forked" in what:
            self._forked.add(int(what["forked"]))
        if "ended" in what:
            self.ended[int(what["ended"])] = Exit(int(what["status"]), int(what["peak"]))
        return what

    def wait(self) -> Exit:
        """How it has ended, and with it, for all that anybody knows, what it had forked."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        return Exit(None, parent_code=self._process.poll())

    def _how_it_ended(self) -> str:
        """Says how it has ended; a module that it imports may end it."""
        how = self.wait().parent_text
        if self._importing and not self._loaded:
            return f"importing {self._importing} ended the process: it {how}"
        return f"the workers' parent process {how}"

    def close(self) -> None:
        """Ends it, with all that it has forked, and removes its folder; calling it again is fine."""
        if self._closed:
            return
        self._closed = True
        try:
            with contextlib.suppress(ReplayError, subprocess.TimeoutExpired):
                if self._loaded:
                    self._control.send({"do": "quit"})
                elif self._told:  # it imports, and listens to nothing else
                    self._process.terminate()
                else:  # nothing can descend from it
                    self._process.kill()
                while self._control.receive(QUIT_S) is not None:
                    pass  # its socket closes when it ends; `Popen.wait` looks for that now and then
                self._process.wait(END_S)
        finally:
            if self._process.poll() is None:
                # Linux kills the workers with their parent; elsewhere they are told by their ids.
                self._process.kill()
                self._process.wait()
                for pid in self._forked - set(self.ended):
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.killpg(pid, signal.SIGKILL)
            self._give_back()

    def _give_back(self) -> None:
        self._control.close()
        if self._output is not None:
            os.close(self._output)
        shutil.rmtree(self._scratch, ignore_errors=True)


def failed_import(heard: Object) -> str:
    """Says which module can't be imported, and why."""
    head = f"importing {heard['importing']}" if heard.get("importing") else "import"
    if "exit" not in heard:
        return f"{head}: {heard['failed']}"
    return f'{head} exited with {heard["exit"]}: guard its script code with if __name__ == "__main__"'


def worker_environment(threads: int, *, cuda: bool = False) -> dict[str, str]:
    """The whole environment of live workers: a list of its own, so that what a replay comes to does not
    depend on the shell that it is started from, but for what the user sets for torch."""
    begins = (*USERS, "NVIDIA_") if cuda else USERS
    kept = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    kept |= {name: value for name, value in os.environ.items() if name.startswith(begins)}
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    return kept | {
        "TP_SOCKET_IFNAME": loopback,
        "GLOO_SOCKET_IFNAME": loopback,
        "OMP_NUM_THREADS": str(threads),
        "OPENBLAS_NUM_THREADS": "1",  # it starts its threads when it is imported, before the fork
        **({} if cuda else {"CUDA_VISIBLE_DEVICES": ""}),
    }

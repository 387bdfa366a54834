"""The processes of live workers, which are forked from one parent.

In: what the user wants imported, and the roles of new processes. Out: a `WorkerProcess` for each, with a
socket to talk to it (`live_group.py` does). This process imports neither torch nor anything of the user's;
the parent does (`parent_process.py`), in processes with an environment, a directory and a process group of
their own. Everything that was started ends when the `Workers` are closed, however that comes about, and when
this process dies.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from msgspec import Struct

from rpcinspect.errors import ReplayError
from rpcinspect.files.closing import Closing
from rpcinspect.replayer.workers.interpreters import Interpreter, need_recent
from rpcinspect.replayer.workers.outputs import Outputs, ProcessOutput, Show
from rpcinspect.replayer.workers.parent_process import (
    END_S,
    LOOK_S,
    QUIT_S,
    ParentProcess,
    Waiting,
    failed_import,
)
from rpcinspect.replayer.workers.process_exit import Exit, quoted
from rpcinspect.replayer.workers.worker_protocol import ControlSocket, Object, SilenceError

IMPORTING = "import"
"""What is shown of the process that imports, is shown under this name."""
TRACEBACK_S = 2.0
"""For a process to write where its threads are."""


class WorkerOptions(Struct, frozen=True, kw_only=True):
    """Options of live workers."""

    path: tuple[str, ...] = ()
    """Folders that modules are searched in first."""
    imports: tuple[str, ...] = ()
    """Modules that are imported before any message is sent."""
    files: tuple[tuple[str, str], ...] = ()
    """Modules with the source files that were read when their names were judged: none may come from
    elsewhere."""
    names: tuple[str, ...] = ()
    """`module.function`, as messages name them: their modules are imported too, where that is possible."""
    main: str | None = None
    """The user's script, whose functions captured pickles call `__main__.f` or `__mp_main__.f`."""
    threads: int = 1
    """As for `torch.set_num_threads`."""
    rpc_timeout_s: float = 60.0
    """Of the live workers' own calls."""
    cuda: bool = False
    """Whether they may use GPUs. Then each process imports everything for itself: what has initialised CUDA
    can't be forked."""
    debug: bool = False
    """Whether they may get a debugger."""
    import_timeout_s: float = 180.0
    start_timeout_s: float = 60.0
    """For a store or a worker to be ready."""
    interpreter: Interpreter | None = None
    """The Python that they run in; None: ours."""


@dataclass(eq=False)
class WorkerProcess:
    """A process that the fork server has forked."""

    workers: Workers
    pid: int
    control: ControlSocket
    output: ProcessOutput
    """Standard output and errors."""
    who: str
    """In words."""
    worker: str | None
    """The captured worker that it stands for, if any."""
    memory_bytes: int | None = None
    """The bound that it has."""

    def wait(self, timeout_s: float = 0.0) -> Exit | None:
        """Waits for the end of the process and returns it; None: the process still runs."""
        return self.workers.wait(self.pid, timeout_s)

    def end(self) -> None:
        """Kills the process, and waits until that has happened; calling it twice is fine."""
        self.workers.end(self.pid)
        self.release()

    def release(self) -> None:
        """Closes what this process has of it; the end of its output is kept."""
        self.control.close()
        self.output.release()


class Workers(Closing):
    """The parent process, and what is forked from it. Use it in a `with` statement."""

    def __init__(
        self,
        options: WorkerOptions | None = None,
        show: Show | None = None,
        waiting: Waiting = lambda what, seconds: None,
        parent: ParentProcess | None = None,
    ) -> None:
        """Waits until the parent process has imported everything; it ends with the `Workers`. `show` gets the
        lines that processes write. `parent`: one that was begun already, for such options. Raises
        `ReplayError` with the reason of a failure."""
        self.options = options = options or WorkerOptions()
        self._waiting = waiting
        self._parent_exit: Exit | None = None
        """Of each child that nobody is left to tell of."""
        self._children: dict[int, WorkerProcess] = {}
        self._closed = False
        self._parent = parent or ParentProcess(
            threads=options.threads, cuda=options.cuda, interpreter=options.interpreter
        )
        self._outputs = Outputs(show)
        self._output = self._outputs.new(IMPORTING, self._parent.take_output())
        self._parent.tail = self._output.tail
        try:
            ready = self._parent.load(self._to_load(), self.options.import_timeout_s, waiting)
            self._gpus = self._look() if self.options.cuda else None
            ready = self._gpus or ready
            self.torch_version = str(ready.get("torch"))
            self.missing: dict[str, str] = ready.get("missing", {})
            """Names in messages that live workers can't find, and why."""
            need_recent(self.torch_version)
        except BaseException:
            self.close()
            raise

    def gpus(self) -> Object:
        """What torch says of GPUs, in a process of its own."""
        return self._gpus or self._look()

    def _look(self) -> Object:
        child, found = self.fork({"role": "devices"}, "the process that looks for GPUs")
        child.end()
        return found

    def fork(self, command: Object, who: str) -> tuple[WorkerProcess, Object]:
        """Returns a new process in the role that `command` names, once it is ready, and its report."""
        if self._closed:
            raise ReplayError(f"{who} can't be started again: all have ended")
        output = self._outputs.new(str(command.get("name", command["role"])))
        ours, theirs = ControlSocket.pair()
        try:
            files = (theirs.sock.fileno(), output.writer)
            self._parent.send({"do": "fork", **command}, files)
            told = self._parent.until("forked", self.options.start_timeout_s, who, self._waiting)
            pid = int(told["forked"])
        except BaseException:
            ours.close()
            output.release()
            raise
        finally:
            theirs.close()
            output.hand_over()
        child = self._children[pid] = WorkerProcess(self, pid, ours, output, who, command.get("name"))
        try:
            ready = self._begun(child)
        except BaseException:
            child.end()
            raise
        if ready.get("memory") is not None:
            child.memory_bytes = command["memory"]
        return child, ready

    def _begun(self, child: WorkerProcess) -> Object:
        """Waits until a process is ready and returns its report; `ReplayError` says why it is not."""
        options, began = self.options, time.monotonic()
        seconds = options.start_timeout_s + (options.import_timeout_s if options.cuda else 0.0)
        imports, what = "", f"{child.who} to begin"
        while True:
            waited_s = time.monotonic() - began
            try:
                answer = child.control.receive(max(min(LOOK_S, seconds - waited_s), 0.0))
            except SilenceError:
                if waited_s < seconds:
                    self._waiting(what, time.monotonic() - began)
                    continue
                with contextlib.suppress(ReplayError):
                    self._parent.send({"do": "kill", "pids": [child.pid], "signal": signal.SIGABRT})
                    child.wait(TRACEBACK_S)
                text = f"{child.who} was not ready within {seconds:g} s{imports}{quoted(child.output.tail())}"
                raise ReplayError(text) from None
            if answer is None:
                found = child.wait(END_S) or Exit(None)
                raise ReplayError(
                    f"{child.who} {found.text} while it started{imports}{quoted(child.output.tail())}"
                )
            report = answer[0]
            if "importing" in report and "failed" not in report:
                what = f"{child.who} to import {report['importing']}"
                imports = f" (it imports {report['importing']})"
            elif "failed" in report:
                why = failed_import(report) if "importing" in report else report["failed"]
                raise ReplayError(f"{child.who} could not start: {why}{quoted(child.output.tail())}")
            else:
                return report

    def ends(self, timeout_s: float = 0.0) -> Mapping[int, Exit]:
        """How processes that were forked have ended, by their ids, in the order in which they did; waits for
        the next one to do so."""
        try:
            while not self._closed and self._parent_exit is None:
                if self._parent.heard(timeout_s) is None:
                    self._parent_exit = self._parent.wait()
                timeout_s = 0.0
        except SilenceError:  # there is no more news
            pass
        except ReplayError:  # what it says is no news
            self._parent_exit = self._parent.wait()
        orphaned = self._parent_exit
        ended = self._parent.ended
        if orphaned is None:
            return ended
        return ended | {pid: orphaned for pid in self._children if pid not in ended}

    def wait(self, pid: int, timeout_s: float) -> Exit | None:
        """Waits for the end of a forked process and returns how it has ended; None: it still runs."""
        deadline = time.monotonic() + timeout_s
        found = self.ends().get(pid)
        while found is None and not self._closed and (left := deadline - time.monotonic()) > 0:
            found = self.ends(left).get(pid)
        return found

    def end(self, *pids: int) -> None:
        """Kills forked processes, all at once, and waits for their ends."""
        running = [pid for pid in pids if pid in self._children and pid not in self._parent.ended]
        if self._closed or not running:
            return
        with contextlib.suppress(ReplayError):  # the parent is gone, and has taken its children along
            self._parent.send({"do": "kill", "pids": running, "signal": signal.SIGKILL})
            deadline = time.monotonic() + QUIT_S
            for pid in running:
                self.wait(pid, deadline - time.monotonic())

    def close(self) -> None:
        """Ends every process that was started and removes their directories; calling it again is fine."""
        if self._closed:
            return
        self._closed = True
        try:
            self._parent.close()
        finally:
            self._output.release()
            for child in self._children.values():
                child.release()
            self._outputs.close()

    def _to_load(self) -> Object:
        options = self.options
        main_folder = [str(Path(options.main).resolve().parent)] if options.main else []
        return {
            "path": [str(Path(folder).resolve()) for folder in options.path] + main_folder,
            "imports": list(options.imports),
            "files": dict(options.files),
            "names": list(options.names),
            "main": str(Path(options.main).resolve()) if options.main else None,
            "debug": options.debug,
            "late": options.cuda,
        }

"""The processes of live workers: one parent that imports torch, and what is forked from it.

In: what the user wants imported, and the roles of new processes. Out: a `WorkerProcess` for each, with a
socket to talk to it (`live_group.py` does). This process imports neither torch nor anything of the user's;
`worker_main` does, in processes of their own with an environment, a directory and a process group of their
own. Everything that was started ends when the `Workers` are closed, however that comes about, and when this
process dies.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from rpcinspect.errors import ReplayError
from rpcinspect.files.closing import Closing
from rpcinspect.replayer.workers.environment import worker_environment
from rpcinspect.replayer.workers.interpreters import Interpreter, need_recent, own_path
from rpcinspect.replayer.workers.outputs import Outputs, ProcessOutput, Show
from rpcinspect.replayer.workers.process_exit import Exit, quoted
from rpcinspect.replayer.workers.worker_protocol import ControlSocket, Object, SilenceError

WORKER_MAIN = Path(__file__).with_name("worker_main.py")
IMPORTING = "import"
"""What is shown of the process that imports, is shown under this name."""
QUIT_S = 10.0
END_S = 2.0
"""Until it is known how a process has ended whose socket is closed."""
TRACEBACK_S = 2.0
"""For a process to write where its threads are."""
LOOK_S = 1.0
"""How often it is told what is waited for."""
Waiting: TypeAlias = Callable[[str, float], None]
"""Called now and then while something is waited for, with what that is, and for how many seconds."""


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


class WorkerProcess:
    """A process that the fork server has forked."""

    def __init__(
        self,
        workers: Workers,
        pid: int,
        control: ControlSocket,
        output: ProcessOutput,
        who: str,
        worker: str | None,
    ) -> None:
        """`who` in words; `worker`: the captured one that it stands for, if any."""
        self._workers = workers
        self.pid = pid
        self.control = control
        self.who = who
        self.worker = worker
        self.memory_bytes: int | None = None
        """The bound that it has."""
        self._output = output

    def wait(self, timeout_s: float = 0.0) -> Exit | None:
        """Waits for the end of the process and returns it; None: the process still runs."""
        return self._workers.wait(self.pid, timeout_s)

    def tail(self) -> str:
        """The end of what the process has written, standard output and errors."""
        return self._output.tail()

    def mute(self) -> None:
        """Stops printing what the process writes."""
        self._output.mute()

    def end(self) -> None:
        """Kills the process, and waits until that has happened; calling it twice is fine."""
        self._workers.end(self.pid)
        self.release()

    def release(self) -> None:
        """Closes what this process has of it; `tail` still works."""
        self.control.close()
        self._output.release()


class Workers(Closing):
    """The process that all live workers are forked from. Use it in a `with` statement."""

    start_process: Callable[..., subprocess.Popen[bytes]] = subprocess.Popen
    """Starts a program."""

    def __init__(
        self,
        options: WorkerOptions | None = None,
        show: Show | None = None,
        waiting: Waiting = lambda what, seconds: None,
    ) -> None:
        """Starts the fork server and waits until everything is imported. `show` gets the lines that processes
        write. Raises `ReplayError` with the reason of a failure."""
        self.options = options or WorkerOptions()
        self._waiting = waiting
        self._ended: dict[int, Exit] = {}
        """Process id → how it ended, in the order in which they did."""
        self._parent_exit: Exit | None = None
        """Of each child that nobody is left to tell of."""
        self._children: dict[int, WorkerProcess] = {}
        self._ready = False
        self._scratch: str | None = None
        self._closed = False
        self._importing = ""
        """The module that is being imported."""
        self._outputs = Outputs(show)
        self._output = self._outputs.new(IMPORTING)
        self._control, theirs = ControlSocket.pair()
        try:
            self._process = self._spawn(theirs)
        except BaseException:
            self._control.close()
            self._output.release()
            self._outputs.close()
            raise
        finally:
            theirs.close()
            self._output.hand_over()
        try:
            ready = self._until("ready", self.options.import_timeout_s, "the workers' parent process")
            self._ready = True
            self._gpus = self._look() if self.options.cuda else None
            ready = self._gpus or ready
            self.torch_version = str(ready.get("torch"))
            self.threads = int(ready.get("threads", 1))
            """Of the process that has imported everything; more than one: forking it may go wrong."""
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
            self._control.send({"do": "fork", **command}, files=files)
            pid = int(self._until("forked", self.options.start_timeout_s, who)["forked"])
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
                    self._control.send({"do": "abort", "pid": child.pid})
                    child.wait(TRACEBACK_S)
                text = f"{child.who} was not ready within {seconds:g} s{imports}{quoted(child.tail())}"
                raise ReplayError(text) from None
            if answer is None:
                found = child.wait(END_S) or Exit(None)
                raise ReplayError(f"{child.who} {found.text} while it started{imports}{quoted(child.tail())}")
            report = answer[0]
            if "importing" in report and "failed" not in report:
                what = f"{child.who} to import {report['importing']}"
                imports = f" (it imports {report['importing']})"
            elif "failed" in report:
                why = _failed_import(report) if "importing" in report else report["failed"]
                raise ReplayError(f"{child.who} could not start: {why}{quoted(child.tail())}")
            else:
                return report

    def ends(self, timeout_s: float = 0.0) -> Mapping[int, Exit]:
        """How processes that were forked have ended, by their ids, in the order in which they did; waits for
        the next one to do so."""
        try:
            while not self._closed and self._parent_exit is None:
                if self._heard(timeout_s) is None:
                    self._parent_exit = self._exit_of_parent()
                timeout_s = 0.0
        except SilenceError:  # there is no more news
            pass
        except ReplayError:  # what it says is no news
            self._parent_exit = self._exit_of_parent()
        orphaned = self._parent_exit
        if orphaned is None:
            return self._ended
        return self._ended | {pid: orphaned for pid in self._children if pid not in self._ended}

    def wait(self, pid: int, timeout_s: float) -> Exit | None:
        """Waits for the end of a forked process and returns how it has ended; None: it still runs."""
        deadline = time.monotonic() + timeout_s
        found = self.ends().get(pid)
        while found is None and not self._closed and (left := deadline - time.monotonic()) > 0:
            found = self.ends(left).get(pid)
        return found

    def _exit_of_parent(self) -> Exit:
        """How the parent process has ended, and its children with it."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        return Exit(None, parent_code=self._process.poll())

    def end(self, pid: int) -> None:
        """Kills a forked process and waits for its end."""
        if self._closed or pid not in self._children or pid in self._ended:
            return
        with contextlib.suppress(ReplayError):  # the parent is gone, and has taken its children along
            self._control.send({"do": "end", "pid": pid})
            self.wait(pid, QUIT_S)

    def close(self) -> None:
        """Ends every process that was started and removes their directories; calling it again is fine."""
        if self._closed:
            return
        self._closed = True
        try:
            with contextlib.suppress(ReplayError, subprocess.TimeoutExpired):
                if self._ready:
                    self._control.send({"do": "quit"})
                else:  # it imports, and listens to nothing else
                    self._process.terminate()
                self._control.close()
                self._process.wait(QUIT_S)
        finally:
            self._control.close()
            if self._process.poll() is None:
                # Linux kills the workers with their parent; elsewhere they are told by their ids.
                self._process.kill()
                self._process.wait()
                for pid in set(self._children) - set(self._ended):
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.killpg(pid, signal.SIGKILL)
            if self._scratch is not None:
                shutil.rmtree(self._scratch, ignore_errors=True)
            self._output.release()
            for child in self._children.values():
                child.release()
            self._outputs.close()

    def _spawn(self, theirs: ControlSocket) -> subprocess.Popen[bytes]:
        options = self.options
        main_folder = [str(Path(options.main).resolve().parent)] if options.main else []
        what = {
            "path": [str(Path(folder).resolve()) for folder in options.path] + main_folder,
            "sys_path": own_path() if options.interpreter is None else list(options.interpreter.path),
            "imports": list(options.imports),
            "files": dict(options.files),
            "names": list(options.names),
            "main": str(Path(options.main).resolve()) if options.main else None,
            "debug": options.debug,
            "late": options.cuda,
        }
        number = theirs.sock.fileno()
        program = sys.executable if options.interpreter is None else options.interpreter.program
        # -I: neither the folder of the script nor this shell's PYTHONPATH decides what is imported.
        return type(self).start_process(
            [program, "-I", "-B", str(WORKER_MAIN), str(number), json.dumps(what)],
            pass_fds=(number,),
            stdin=subprocess.DEVNULL,
            stdout=self._output.writer,
            stderr=self._output.writer,
            env=worker_environment(options.threads, cuda=options.cuda),
            cwd="/",
            start_new_session=True,  # Ctrl-C is ours to act on
        )

    def _until(self, key: str, timeout_s: float, who: str) -> Object:
        """Waits for the next report of the parent process that has this key."""
        began = time.monotonic()
        while True:
            waited_s = time.monotonic() - began
            try:
                heard = self._heard(max(min(LOOK_S, timeout_s - waited_s), 0.0))
            except SilenceError:
                if waited_s < timeout_s:
                    what = f"the import of {self._importing}" if self._importing else who
                    self._waiting(what, time.monotonic() - began)
                    continue
                waits = f" (it imports {self._importing})" if self._importing else ""
                if self._importing:
                    self._process.send_signal(signal.SIGABRT)  # it writes first where it hangs
                    self._exit_of_parent()
                told = f"{who} was not ready within {timeout_s:g} s{waits}"
                raise ReplayError(f"{told}{quoted(self._output.tail())}") from None
            if heard is None:
                raise ReplayError(f"{self._end_of_parent()}{quoted(self._output.tail())}")
            if "failed" in heard:
                raise ReplayError(f"{_failed_import(heard)}{quoted(self._output.tail())}")
            if key in heard:
                return heard

    def _end_of_parent(self) -> str:
        """Says how the parent process has ended; a module that it imports may end it."""
        how = self._exit_of_parent().parent_text
        if self._importing and not self._ready:
            return f"importing {self._importing} ended the process: it {how}"
        return f"the workers' parent process {how}"

    def _heard(self, timeout_s: float) -> Object | None:
        """Returns the next report of the parent process; None: it has ended. Raises `ReplayError` if it takes
        too long."""
        heard = self._control.receive(timeout_s)
        if heard is None:
            return None
        what = heard[0]
        if "scratch" in what:
            self._scratch = str(what["scratch"])
        if "importing" in what:
            self._importing = str(what["importing"])
        if "ended" in what:
            self._ended[int(what["ended"])] = Exit(int(what["status"]), int(what["peak"]))
        return what


def _failed_import(heard: Object) -> str:
    """Says which module can't be imported, and why."""
    head = f"importing {heard['importing']}" if heard.get("importing") else "import"
    if "exit" not in heard:
        return f"{head}: {heard['failed']}"
    return f'{head} exited with {heard["exit"]}: guard its script code with if __name__ == "__main__"'

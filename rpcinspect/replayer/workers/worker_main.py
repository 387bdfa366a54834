"""The processes in which live workers run: the only ones that import torch, and the user's modules.

Started as a script, by `parent_process.py`, with an end of a socket pair and a JSON object that says where
modules are. That process, the *fork server*, imports torch at once: nothing else can be its matter before a
capture is judged. It is told then what else to import, and from then on only forks: a process that hosts a
group's store, and one for each live worker. It has no agent, no store and no thread of its own, since what
has started threads can't be forked safely. A forked worker talks to our process over a socket pair of its
own. What has initialised CUDA can't be forked either, and a module of the user's may do so when it is
imported: where workers may use GPUs (`late`), the fork server imports torch alone, and each process that it
forks imports the rest for itself.

Nobody is left behind: a worker is killed by the kernel when the fork server dies; the fork server kills all
workers by their ids, and whatever else descends from it, when its socket closes, and removes the scratch
directories.

`worker_imports` is what all of them import, `worker_roles` what they become. Mirrors what
torch.multiprocessing's spawn does to `__main__`.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib.util
import json
import os
import selectors
import shutil
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NoReturn

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
PACKAGE = Path(__file__).resolve().parents[2]
MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1 << 10
OURS = frozenset({"bdb", "pdb", "resource"})
"""Python's modules that are needed again later, by our debugger and by `os.wait4`: nobody gets the user's."""


# --- the fork server ----------------------------------------------------------------------------------------


class ForkServer:
    """Forks processes and reaps them; carries out one command of our process at a time."""

    def __init__(self, control: Any, scratch: str) -> None:
        self.control = control
        self.scratch = scratch
        self.options: dict[str, Any] = {}
        """What is imported beside torch."""
        self.children: dict[int, str] = {}
        """Process id → scratch directory."""
        self._wake, wake = socket.socketpair()
        for end in (self._wake, wake):
            end.setblocking(False)
        self._wake_write = wake

    def serve(self) -> None:
        """Carries out commands until our process ends this, or is gone."""
        signal.signal(signal.SIGCHLD, lambda *_: None)  # only now: what was imported may have set its own
        signal.set_wakeup_fd(self._wake_write.fileno(), warn_on_full_buffer=False)
        with selectors.DefaultSelector() as selector:
            selector.register(self.control.sock, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select(1.0):
                    if key.fileobj is self._wake:
                        with contextlib.suppress(BlockingIOError):
                            self._wake.recv(1 << 12)
                    elif not self.dispatch():
                        return
                self.reap()

    def dispatch(self) -> bool:
        """Carries out the commands that have come; False: no more will come."""
        while True:
            message = self.control.receive()
            if message is None or message[0]["do"] == "quit":
                return False
            command = message[0]
            if command["do"] == "fork":
                self.fork(command)
            elif command["do"] == "kill":
                for pid in command["pids"]:
                    self.kill(pid, command["signal"])
            if not self.control.said_more:
                return True

    def fork(self, command: dict[str, Any]) -> None:
        """A child for a store or a worker; two files came with the command: its socket and its output."""
        files, self.control.files = self.control.files[:2], self.control.files[2:]
        from rpcinspect.replayer.workers.worker_imports import flush

        scratch = tempfile.mkdtemp(prefix=f"{command['role']}-", dir=self.scratch)
        flush()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become(command, files, scratch, parent)
        with contextlib.suppress(OSError):  # it may have done so itself, and ended
            os.setpgid(pid, pid)
        for number in files:
            os.close(number)
        self.children[pid] = scratch
        self.control.send({"forked": pid})

    def _become(self, command: dict[str, Any], files: list[int], scratch: str, parent: int) -> NoReturn:
        """Turns the child into a store or a worker: drops all of the fork server, does its work, ends."""
        from rpcinspect.replayer.workers.worker_imports import flush, load_and_tell, print_error

        code = 1
        try:
            set_parent_death_signal(signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)
            with contextlib.suppress(OSError):
                os.setpgid(0, 0)
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            self._wake.close()
            self._wake_write.close()
            self.control.sock.close()
            control_file, output = files
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.close(output)
            os.chdir(scratch)
            os.environ.update(HOME=scratch, TMPDIR=scratch)
            tempfile.tempdir = None
            faulthandler.enable(file=2)
            control = type(self.control)(socket.socket(fileno=control_file))
            late = self.options["late"] and command["role"] != "store"
            if late:
                command["missing"] = load_and_tell(self.options, control)
            if not late or command["missing"] is not None:
                from rpcinspect.replayer.workers.worker_roles import ROLES

                ROLES[command["role"]](control, command)
                code = 0
        except BaseException as error:  # it is told, and nothing of the fork server goes on in the child
            print_error(error)
        finally:
            flush()
            os._exit(code)  # no destructor of an agent may wait for others

    def kill(self, pid: int, number: int = signal.SIGKILL) -> None:
        """Kills a child that was not waited for: only such a child's id is certainly its own. SIGABRT makes
        it write first where its threads are."""
        if pid not in self.children:
            return
        if number == signal.SIGKILL:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, number)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    def reap(self) -> None:
        """Waits for children that have ended; reports their exit and peak memory to our process."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            scratch = self.children.pop(pid, None)
            if scratch is not None:
                shutil.rmtree(scratch, ignore_errors=True)
                ended = {"ended": pid, "status": os.waitstatus_to_exitcode(status)}
                ended["peak"] = usage.ru_maxrss * MAXRSS_UNIT
                with contextlib.suppress(Exception):  # our process is gone: then nobody wants to know
                    self.control.send(ended)

    def close(self) -> None:
        """Kills everything that descends from this process, and removes the scratch directories. What it is
        begun for may come again meanwhile, and is ignored."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        end = time.monotonic() + 5.0
        while time.monotonic() < end:
            for pid in list(self.children):
                self.kill(pid)
            for pid in own_children():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.reap()
            if not self.children and not own_children():
                break
            time.sleep(0.005)
        shutil.rmtree(self.scratch, ignore_errors=True)

    def give_up(self) -> NoReturn:
        """Ends this process and all that it has forked; a signal may call it at any moment."""
        self.close()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)  # that is what ends it
        os._exit(1)


def own_children() -> list[int]:
    """Returns the processes whose parent this one is, orphans of a worker included; empty where that is
    unknown."""
    try:
        # Bytes, since a signal may come while Python loads a codec.
        found = Path(f"/proc/self/task/{os.getpid()}/children").read_bytes().split()
    except OSError:
        return []
    return [int(pid) for pid in found]


def set_parent_death_signal(number: int) -> None:
    """The kernel sends this when the thread that started this process ends; 0: it doesn't."""
    from rpcinspect.replayer.workers.bounds import prctl

    prctl(PR_SET_PDEATHSIG, number)


# --- the start ----------------------------------------------------------------------------------------------


def find_own_package() -> None:
    """Lets `rpcinspect` be imported from where this file lies, and nothing else from there: the folder may be
    that of another Python's packages. They need Python's own library, and torch."""
    if "rpcinspect" not in sys.modules:
        file, places = PACKAGE / "__init__.py", [str(PACKAGE)]
        spec = importlib.util.spec_from_file_location("rpcinspect", file, submodule_search_locations=places)
        assert spec is not None
        assert spec.loader is not None
        package = sys.modules["rpcinspect"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(package)


def begin(control: Any, scratch: str) -> ForkServer:
    """Makes this process one that nobody has to look after: it may not do what workers may not, and ends with
    our process."""
    from rpcinspect.replayer.workers.bounds import forbid_cores, forbid_privileges, prctl

    set_parent_death_signal(signal.SIGTERM)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    forbid_cores()
    forbid_privileges()
    os.environ.update(HOME=scratch, TMPDIR=scratch)  # torch and the user's modules may write when imported
    tempfile.tempdir = None
    server = ForkServer(control, scratch)
    # No exception, which would have to pass through whatever is being imported.
    signal.signal(signal.SIGTERM, lambda *_: server.give_up())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    return server


def prepare(server: ForkServer, given: dict[str, Any], before: set[str]) -> bool:
    """Imports torch; then, when told what, the rest. False: nothing more is to be done. `before`: the modules
    that Python needs to get here, of which the user can have none of his own."""
    from rpcinspect.replayer.workers.worker_imports import (
        about,
        import_torch,
        load_and_tell,
        shadowed,
        told_if_fails,
    )

    control = server.control
    told = Path(server.scratch, "load.json")
    if given["anew"]:
        options = json.loads(told.read_bytes())
        for name in shadowed(options["path"], set(sys.modules) - before - OURS):
            del sys.modules[name]  # we have Python's own, whoever imports it from now on gets the user's
        sys.path[:0] = options["path"]
    if told_if_fails(control, import_torch) is None:
        return False
    if not given["anew"]:
        message = control.receive()
        if message is None:
            return False
        options = message[0]
        if shadowed(options["path"], set(sys.modules) - before - OURS):
            told.write_text(json.dumps(options), encoding="utf-8")
            begin_anew({**given, "anew": True})
        sys.path[:0] = options["path"]
    server.options = options
    ready: dict[str, Any] = {"ready": True}
    if not options["late"]:
        missing = load_and_tell(options, control)
        if missing is None:
            return False
        ready |= about(missing)
    set_parent_death_signal(0)  # from here on the end of the socket says that our process is gone
    control.send(ready)
    return True


def begin_anew(given: dict[str, Any]) -> NoReturn:
    """Starts this program again, in this process: torch has imported something for which the user has a
    module of the same name, which is to be found first."""
    from rpcinspect.replayer.workers.worker_imports import flush

    flush()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    os.execv(sys.executable, [sys.executable, "-I", "-B", __file__, sys.argv[1], json.dumps(given)])


def main() -> None:
    """Runs `worker_main.py FILE_NUMBER OPTIONS`."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    given = json.loads(sys.argv[2])
    for stream in (sys.stdout, sys.stderr):  # whoever is killed has said what he had printed
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    faulthandler.enable(file=2)
    sys.path[:] = given["sys_path"]
    find_own_package()
    before = set(sys.modules)
    from rpcinspect.replayer.workers.worker_imports import flush, print_error
    from rpcinspect.replayer.workers.worker_protocol import ControlSocket

    server = begin(ControlSocket(socket.socket(fileno=int(sys.argv[1]))), given["scratch"])
    code = 0
    try:
        if prepare(server, given, before):
            server.serve()
    except BaseException as error:  # the user's modules may have changed anything that is called here
        print_error(error)
        code = 1
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it ends everything already
        server.close()
        flush()
        os._exit(code)  # what torch would tear down now belongs to nobody any more


if __name__ == "__main__":
    main()

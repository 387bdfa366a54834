"""The processes in which live workers run; the only module that imports torch, the user's modules and their
code.

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

`worker_imports` is what all of them import. Mirrors what
torch.multiprocessing's spawn does to `__main__`, and `init_rpc` of
torch/distributed/rpc/__init__.py.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib.util
import json
import os
import pdb
import random
import selectors
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
RENDEZVOUS_SCHEME = "rpcinspect"
PACKAGE = Path(__file__).resolve().parents[2]
LIBUV_LISTENS = (2, 13)
"""The first release that is known to serve a store by libuv on an open port; 2.6 can't."""
FOREVER_S = 1e6
"""A wait that ends when the other end of the socket closes."""
MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1 << 10


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
            message = self.control.receive(FOREVER_S)
            if message is None or message[0]["do"] == "quit":
                return False
            command = message[0]
            if command["do"] == "fork":
                self.fork(command)
            elif command["do"] == "end":
                for pid in command["pids"]:
                    self.kill(pid)
            elif command["do"] == "abort":
                self.kill(command["pid"], signal.SIGABRT)
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


# --- the store ----------------------------------------------------------------------------------------------


def serve_store(control: Any, command: dict[str, Any]) -> None:
    """A TCPStore on a port of the loopback, until the socket closes."""
    import datetime

    import torch.distributed as dist

    from rpcinspect.replayer.workers.bounds import LATER_THREADS, bound_memory

    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        port = listener.getsockname()[1]
        store = dist.TCPStore(
            "127.0.0.1",
            port,
            None,
            True,
            datetime.timedelta(seconds=command["timeout_s"]),
            wait_for_workers=False,
            master_listen_fd=listener.detach(),
            # Earlier stores of that kind take no port that is open already, and know no other loopback.
            **({"use_libuv": False} if release() < LIBUV_LISTENS else {}),
        )
        control.send({"ready": True, "port": port, "memory": bound_memory(command["memory"], LATER_THREADS)})
        while control.receive(FOREVER_S) is not None:
            pass
        del store


def release() -> tuple[int, ...]:
    """Returns the first two numbers of torch's release."""
    import torch

    return tuple(int(part) for part in str(torch.__version__).split(".")[:2])


# --- a live worker ------------------------------------------------------------------------------------------


def work(control: Any, command: dict[str, Any]) -> None:
    """Joins the group under the name and the id of a captured worker, then shows gradients when asked."""
    import torch
    import torch.distributed.rpc as rpc

    from rpcinspect.replayer.workers.bounds import LATER_THREADS

    if command["seed"] is not None:
        torch.manual_seed(command["seed"])
        random.seed(command["seed"])
        if (numpy := sys.modules.get("numpy")) is not None:
            numpy.random.seed(command["seed"] % (1 << 32))
    debugger, files = None, list[socket.socket]()
    if command["debug"] is None:  # it only tries seeds
        sys.breakpointhook = pdb.set_trace = lambda *_, **__: None
    else:
        from rpcinspect.replayer.workers.live_debugger import begin

        debugger, files = begin(control, command)
    join_group(control, command, LATER_THREADS, files)
    while (message := control.receive(FOREVER_S)) is not None:
        if message[0]["do"] == "message" and debugger is not None:
            control.send(debugger.announced(*message))
        elif message[0]["do"] == "gradients":
            from rpcinspect.replayer.workers.live_gradients import show_gradients

            answer, blob = show_gradients(message[0]["context_id"])
            control.send(answer, blob)
        elif message[0]["do"] == "context":
            control.send({"there": has_context(message[0]["context_id"])})
        elif message[0]["do"] == "leave":
            rpc.shutdown()
            control.send({"left": True})


def join_group(
    control: Any, command: dict[str, Any], threads: int, files: Sequence[socket.socket] = ()
) -> None:
    """Joins the group, and reports to our process that it is ready, or why not. Limits its memory from then
    on, with room for so many threads. `files` go along with the report."""
    import torch

    from rpcinspect.replayer.workers.bounds import bound_memory
    from rpcinspect.replayer.workers.worker_imports import print_error

    torch.set_num_threads(command["threads"])
    try:
        init_rpc(command)
    except Exception as error:  # of torch's own, and of the user's modules that changed it
        print_error(error)
        control.send({"failed": f"init_rpc: {type(error).__name__}: {error}"})
        os._exit(1)
    ready = {"ready": True, "memory": bound_memory(command["memory"], threads)}
    control.send(ready, files=[file.fileno() for file in files])
    for file in files:
        file.close()


def init_rpc(command: dict[str, Any]) -> None:
    """Calls `init_rpc` as the user would, but dynamic, over TCP only, and without torch's rule that rank 0
    hosts the store."""
    import datetime

    import torch
    import torch.distributed as dist
    import torch.distributed.rpc as rpc

    timeout = datetime.timedelta(seconds=command["rpc_timeout_s"])

    def rendezvous(url: str, **_: Any) -> Any:
        store = dist.TCPStore("127.0.0.1", command["port"], None, False, timeout, wait_for_workers=False)
        yield store, command["id"], -1

    dist.register_rendezvous_handler(RENDEZVOUS_SCHEME, rendezvous)
    if any(command["all_maps"].values()):
        tell_device_maps(command["all_maps"])
    maps = {
        name: {torch.device(own): torch.device(other) for own, other in device_map.items()}
        for name, device_map in command["device_maps"].items()
    }
    rpc.init_rpc(
        command["name"],
        rank=command["id"],
        world_size=None,
        rpc_backend_options=rpc.TensorPipeRpcBackendOptions(
            init_method=f"{RENDEZVOUS_SCHEME}://127.0.0.1:{command['port']}",
            rpc_timeout=command["rpc_timeout_s"],
            device_maps=maps,
            _transports=["uv"],
            _channels=["basic", "cuda_basic"] if command["cuda"] and torch.version.cuda else ["basic"],
            **({"num_worker_threads": threads} if (threads := command.get("worker_threads")) else {}),
        ),
    )


def tell_device_maps(all_maps: dict[str, dict[str, dict[str, str]]]) -> None:
    """Sends each member its own devices and reverse maps, for a worker that joins. torch's own function sends
    all members those of the worker that joins; answers with tensors on a GPU would find no map then."""
    import torch
    from torch.distributed.rpc import api, backend_registry
    from torch.distributed.rpc._utils import _update_group_membership

    def device_maps_of(name: str) -> tuple[list[Any], dict[str, dict[Any, Any]]]:
        reverse = {
            caller: {torch.device(there): torch.device(own) for own, there in by_callee[name].items()}
            for caller, by_callee in all_maps.items()
            if name in by_callee
        }
        used = {torch.device(own) for one in all_maps.get(name, {}).values() for own in one}
        used |= {own for one in reverse.values() for own in one}
        return sorted((one for one in used if one.type != "cpu"), key=lambda one: one.index), reverse

    def tell(agent: Any) -> None:
        me = agent.get_worker_info()
        for info in agent.get_worker_infos():
            devices, reverse = device_maps_of(info.name)
            api.rpc_sync(info.name, _update_group_membership, args=(me, devices, reverse, True))

    backend_registry._set_devices_and_reverse_device_map = tell


def about(missing: dict[str, str]) -> dict[str, Any]:
    """What our process is told of a process that has imported everything."""
    import torch

    threads = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 1
    return {"torch": str(torch.__version__), "threads": threads, "missing": missing}


def tell_devices(control: Any, command: dict[str, Any]) -> None:
    """Reports the GPUs that torch finds; runs in a process of its own, since a process that has used CUDA
    can't fork."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    names = [torch.cuda.get_device_name(number) for number in range(count)]
    found = about(command.get("missing") or {})
    control.send({"ready": True, **found, "cuda": torch.version.cuda, "gpus": names})


def play(control: Any, command: dict[str, Any]) -> None:
    """torch's own agent in the place of a captured worker."""
    from rpcinspect.replayer.agent.main import play

    play(control, command, join_group)


def has_context(context_id: int) -> bool:
    """Whether this worker takes part in an autograd context that was not cleaned up."""
    from torch._C import _distributed_autograd

    try:
        _distributed_autograd._retrieve_context(context_id)
    except RuntimeError:
        return False
    return True


ROLES = {"store": serve_store, "worker": work, "agent": play, "devices": tell_devices}


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
    that Python and we needed to get here."""
    from rpcinspect.replayer.workers.worker_imports import (
        import_torch,
        load_and_tell,
        shadowed,
        told_if_fails,
    )

    control = server.control
    if told_if_fails(control, import_torch) is None:
        return False
    if (options := given.get("load")) is None:
        message = control.receive(FOREVER_S)
        if message is None:
            return False
        options = message[0]
        if shadowed(options["path"], set(sys.modules) - before):
            begin_anew({**given, "sys_path": [*options["path"], *given["sys_path"]], "load": options})
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

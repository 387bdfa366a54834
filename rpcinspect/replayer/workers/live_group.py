"""Live workers: processes of torch that stand in for captured ones, and the group that they form.

In: the `Workers` that they are forked from, names and ids of captured workers. Out: a store on the loopback
and the workers around it, a dynamic group; peers may join it. What the processes say is checked: they run
user code.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from msgspec import Struct, convert
from msgspec.structs import replace

from rpcinspect.errors import ReplayError
from rpcinspect.files.closing import Closing
from rpcinspect.replayer.planning.devices import DeviceMaps
from rpcinspect.replayer.workers.process_exit import EarlyExit, Exit, count_oom_kills
from rpcinspect.replayer.workers.seeds import Seeds
from rpcinspect.replayer.workers.worker_protocol import Object, SilenceError
from rpcinspect.replayer.workers.workers import WorkerProcess, Workers


class LeafGradient(Struct, frozen=True, kw_only=True):
    """The gradient that a leaf of a live worker has accumulated in a context."""

    dtype: str
    shape: tuple[int, ...]
    layout: str
    """Sparse ones are shown dense."""
    parameter: bool
    """The leaf is an nn.Parameter."""
    name: str | None = None
    """Of a parameter of a module that lives in the worker: `Stage2.fc.weight`."""
    data: bytes | None
    """In C order; None: there were too many bytes to show."""


class LiveWorker(Struct, frozen=True):
    """A worker of torch under a captured name."""

    name: str
    child: WorkerProcess

    def gradients(self, context_id: int) -> tuple[LeafGradient, ...]:
        """`get_gradients(context_id)`; `ReplayError` if the worker has no such context, or doesn't answer."""
        what, blob = self._ask("gradients", context_id=context_id)
        if "error" in what:
            raise ReplayError(f"{self.name}: {what['error']}")
        try:
            return _gradients(what["gradients"], blob)
        except (KeyError, TypeError, ValueError) as error:
            raise ReplayError(f"{self.name} sent something other than gradients") from error

    def has_context(self, context_id: int) -> bool:
        """Returns whether the worker takes part in an autograd context that was not cleaned up. Raises
        `ReplayError` without an answer."""
        return self._ask("context", context_id=context_id)[0].get("there") is not False

    def announce(self, what: Object, blob: bytes) -> None:
        """Tells the worker of a message that it is about to get; see `announced`."""
        self.child.control.send({"do": "message", **what}, blob)

    def announced(self, timeout_s: float) -> bool:
        """Returns whether the worker has done with what was announced; waits so long for it. Raises
        `ReplayError` once the worker has ended."""
        try:
            if self.child.control.receive(timeout_s) is None:
                raise ReplayError(f"{self.name} has ended")
        except SilenceError:
            return False
        return True

    def leave(self, timeout_s: float = 30.0) -> bool:
        """Shuts the agent down gracefully; returns whether that succeeded within the time."""
        try:
            return self._ask("leave", timeout_s)[0].get("left") is True
        except ReplayError:
            return False

    def _ask(self, what: str, timeout_s: float = 30.0, **more: int) -> tuple[Object, bytes]:
        self.child.control.send({"do": what, **more})
        answer = self.child.control.receive(timeout_s)
        if answer is None:
            raise ReplayError(f"{self.name} has ended")
        return answer


class LiveGroup(Closing):
    """A store and the workers around it. Use it in a `with` statement: leaving it ends all of them."""

    def __init__(self, workers: Workers, memory: int | None = None) -> None:
        """Starts the store; nobody is around it yet. `memory`: bytes that each process may take after it has
        joined; None: as much as there is."""
        self._all = workers
        self._memory = memory
        self._oom_kills = count_oom_kills()
        self._processes: list[WorkerProcess] = []
        store = {"role": "store", "timeout_s": workers.options.rpc_timeout_s}
        _, ready = self._fork(store, "the store of the live group")
        self.port: int = int(ready["port"])
        """Of the store, on 127.0.0.1."""
        self.workers: dict[str, LiveWorker] = {}
        self.maps: DeviceMaps = {}
        """Caller → callee → own device → its device, of everybody; to be set before anybody is started."""
        self.seeds = Seeds()
        """Of random numbers; to be set before anybody is started."""
        self.debug: Callable[[int], Object] | None = None
        """What a worker's debugger has to know, by the worker's place in the group; None: it has none. To be
        set before anybody is started."""

    def start(self, name: str, worker_id: int) -> LiveWorker:
        """Starts a worker and waits until it is a member. Raises `ReplayError` with the end of what the
        worker wrote."""
        command = self._command("worker", name, worker_id)
        child, _ = self._fork(command, f"the live worker {name}")
        worker = self.workers[name] = LiveWorker(name, child)
        return worker

    def start_agent(self, name: str, worker_id: int, contexts: int) -> WorkerProcess:
        """Starts a process in which torch's agent plays a worker, see `agent/main.py`, in so many autograd
        contexts. As `start`."""
        command = self._command("agent", name, worker_id) | {"contexts": contexts}
        return self._fork(command, f"the process that plays {name}")[0]

    def ended(self, timeout_s: float = 0.0, known: int = 0) -> tuple[EarlyExit, ...]:
        """The processes that have ended before they were to, in order; waits for one more than so many."""
        processes = {one.pid: one for one in self._processes}
        deadline = time.monotonic() + timeout_s
        ends = self._all.ends()
        while len(processes.keys() & ends.keys()) <= known and (left := deadline - time.monotonic()) > 0:
            ends = self._all.ends(left)
        return tuple(self._told(processes[pid], end) for pid, end in ends.items() if pid in processes)

    def _told(self, one: WorkerProcess, end: Exit) -> EarlyExit:
        return EarlyExit(
            who=one.who,
            worker=one.worker,
            exit=end,
            memory_bytes=one.memory_bytes,
            oom_kills=count_oom_kills() - self._oom_kills,
            output=one.output.tail(),
        )

    def _fork(self, command: Object, who: str) -> tuple[WorkerProcess, Object]:
        """A process of the group, once it is ready."""
        child, ready = self._all.fork({**command, "memory": self._memory}, who)
        self._processes.append(child)
        return child, ready

    def _command(self, role: str, name: str, worker_id: int) -> Object:
        options = self._all.options
        return {
            "role": role,
            "name": name,
            "id": worker_id,
            "port": self.port,
            "device_maps": {key: dict(value) for key, value in self.maps.get(name, {}).items()},
            "all_maps": self.maps,
            "cuda": options.cuda,
            "seed": self.seeds.of(name),
            "threads": options.threads,
            "rpc_timeout_s": options.rpc_timeout_s,
            "debug": self.debug(len(self.workers)) if self.debug is not None else None,
        }

    def mute(self) -> None:
        """Shows nothing that is written from now on, such as that others have ended."""
        for one in self._processes:
            one.output.mute()

    def close(self) -> None:
        """Ends the workers and the store; calling it again is fine."""
        self.mute()
        self._all.end(*(one.pid for one in self._processes))
        for one in self._processes:
            one.release()


def _gradients(rows: Sequence[Object], blob: bytes) -> tuple[LeafGradient, ...]:
    found, start = [], 0
    for row in rows:
        end = start + (row["bytes"] or 0)
        data = None if row["bytes"] is None else blob[start:end]
        found.append(replace(convert({**row, "data": None}, LeafGradient), data=data))
        start = end
    return tuple(found)

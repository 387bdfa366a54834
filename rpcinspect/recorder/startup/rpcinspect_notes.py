"""What a process tells the launcher: one small file for each time that it started RPC.

In: a folder. Out: `<pid>-<n>.json` in it, JSON: `pid`, `started`, `name`, `id`, `job`, `torch`, `recorded`,
`why` (where not), and once the process ends by itself `ended`, with what was counted, and `status` and
`error` where it knows these. A note is replaced as a whole, so that a reader never sees half of one. One
without `ended` is of a process that still runs or was killed. And once a handle on the process, by which the
launcher learns how it ended.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from typing import Any, Callable  # noqa: UP035 - runs in Python 3.8

SOCKET = "processes"
"""In the folder of notes, where the launcher takes handles."""


MAX_NAME = 200


class Notes:
    """The notes of this process and of those that it forks."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._pid = 0
        self._started: int | None = None
        self._left: list[tuple[str, dict[str, Any]]] = []
        """(path, content) of this process's."""
        self._counters: Callable[[], dict[str, Any]] | None = None

    def follow(
        self,
        rpc: Any,
        reason: Callable[[Any], str | None],
        job: Callable[[], str | None] = lambda: None,
    ) -> None:
        """Leaves a note whenever RPC has started. `reason`: why the agent, its argument, is not recorded;
        `job`: what the log calls the group of workers.
        """
        api = rpc.api
        init = api._init_rpc_states  # of torch/distributed/rpc/api.py, the same from 1.13 to 2.14

        @functools.wraps(init)
        def _init_rpc_states(agent: Any) -> None:
            again = api._is_current_rpc_agent_set()  # it is called more than once for one agent
            init(agent)
            if not again:
                info, why = agent.get_worker_info(), reason(agent)
                told = {"name": info.name, "id": info.id, "job": job(), "recorded": why is None, "why": why}
                self._leave(told)

        api._init_rpc_states = _init_rpc_states

    def unrecorded(self, why: str) -> None:
        """Notes that this process would have used RPC, and can't be recorded."""
        self._leave({"name": None, "id": None, "recorded": False, "why": why})

    def at_end(self, counters: Callable[[], dict[str, Any]]) -> None:
        """What to add when the process ends."""
        self._counters = counters

    def _leave(self, content: dict[str, Any]) -> None:
        if self._pid != os.getpid():  # the first one, or a fork of a process that had some
            self._pid, self._left = os.getpid(), []
            # not atexit, which children of multiprocessing do not run; in a forked child it does nothing
            from multiprocessing.util import Finalize

            Finalize(None, self._end, exitpriority=-100)
            self._started = start_of_this_process()
            hand_over(os.path.join(self._folder, SOCKET), self._started)
        number = 0
        while os.path.exists(self._path(number)):
            number += 1
        torch = getattr(sys.modules.get("torch"), "__version__", None)
        pid = {"pid": os.getpid(), "started": self._started}
        note = {**pid, "torch": None if torch is None else str(torch), **content}
        self._left.append((self._path(number), note))
        write(*self._left[-1])

    def _path(self, number: int) -> str:
        return os.path.join(self._folder, f"{os.getpid()}-{number}.json")

    def _end(self) -> None:
        counted = {} if self._counters is None else self._counters()
        how = ending()
        for path, note in self._left:
            write(path, {**note, "ended": "clean", **how, **(counted if note is self._left[-1][1] else {})})


def start_of_this_process() -> int | None:
    """Returns when this process started, in the kernel's ticks."""
    try:
        with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def hand_over(path: str, started: int | None) -> None:
    """Gives the launcher a handle on this process. A launcher that is gone, or busy, is not waited for."""
    if started is None or not hasattr(os, "pidfd_open"):  # Python 3.8
        return
    import array
    import socket

    try:
        handle = os.pidfd_open(os.getpid())
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as launcher:
                launcher.setblocking(False)
                launcher.connect(path)
                handles = array.array("i", [handle])
                rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, handles)
                launcher.sendmsg([b"%d %d" % (os.getpid(), started)], [rights])
        finally:
            os.close(handle)
    except OSError:
        pass


def ending() -> dict[str, Any]:
    """`status` and `error` of the exception that this process is ending with, as far as it shows."""
    error = sys.exc_info()[1]  # of a child of multiprocessing, which is passing through its last lines
    if error is None:
        return {"error": name_of(sys.last_value)} if main_has_failed() else {}
    if not isinstance(error, SystemExit):
        return {"status": 1, "error": name_of(error)}
    code = error.code
    # torch.multiprocessing.spawn leaves by sys.exit(1) while it handles the error
    cause = error.__context__
    return {
        "status": 0 if code is None else code & 0xFF if isinstance(code, int) else None,
        "error": None if cause is None else name_of(cause),
    }


def main_has_failed() -> bool:
    """Whether the last exception that was printed has left the main module: then it ends the process."""
    trace = getattr(sys, "last_traceback", None)
    if trace is None or sys.flags.interactive or sys.flags.inspect:
        return False
    code, names = trace.tb_frame.f_code, trace.tb_frame.f_globals
    by_run_module = (names.get("__name__"), code.co_name) == ("runpy", "_run_module_as_main")
    is_main = names is getattr(sys.modules.get("__main__"), "__dict__", None)
    return by_run_module or (is_main and code.co_name == "<module>")


def name_of(error: Any) -> str:
    """The class, as Python writes it."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return name[:MAX_NAME]


def write(path: str, note: dict[str, Any]) -> None:
    """Replaces a note; where that can't be done the launcher is gone, and its folder with it."""
    hidden = path + ".new"
    try:
        with open(hidden, "w", encoding="utf-8") as file:
            json.dump(note, file)
        os.replace(hidden, path)
    except OSError:
        pass

"""What a process tells the launcher: one small file for each time that it started RPC.

In: a folder. Out: `<pid>-<n>.json` in it, JSON: `pid`, `name`, `id`, `torch`, `recorded`, `why` (where not),
and once the process ends by itself `ended`, with what was counted. A note is replaced as a whole, so that a
reader never sees half of one. One without `ended` is of a process that still runs or was killed.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from typing import Any, Callable  # noqa: UP035 - runs in Python 3.8


class Notes:
    """The notes of this process and of those that it forks."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._pid = 0
        self._left: list[tuple[str, dict[str, Any]]] = []
        """(path, content) of this process's."""
        self._counters: Callable[[], dict[str, Any]] | None = None

    def follow(self, rpc: Any, reason: Callable[[Any], str | None]) -> None:
        """Leaves a note whenever RPC has started. `reason`: why the agent, its argument, is not recorded."""
        api = rpc.api
        init = api._init_rpc_states  # of torch/distributed/rpc/api.py, the same from 1.13 to 2.14

        @functools.wraps(init)
        def _init_rpc_states(agent: Any) -> None:
            again = api._is_current_rpc_agent_set()  # it is called more than once for one agent
            init(agent)
            if not again:
                info, why = agent.get_worker_info(), reason(agent)
                self._leave({"name": info.name, "id": info.id, "recorded": why is None, "why": why})

        api._init_rpc_states = _init_rpc_states

    def unrecorded(self, why: str) -> None:
        """This process would have used RPC, and can't be recorded."""
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
        number = 0
        while os.path.exists(self._path(number)):
            number += 1
        torch = getattr(sys.modules.get("torch"), "__version__", None)
        note = {"pid": os.getpid(), "torch": None if torch is None else str(torch), **content}
        self._left.append((self._path(number), note))
        write(*self._left[-1])

    def _path(self, number: int) -> str:
        return os.path.join(self._folder, f"{os.getpid()}-{number}.json")

    def _end(self) -> None:
        counted = {} if self._counters is None else self._counters()
        for path, note in self._left:
            write(path, {**note, "ended": "clean", **(counted if note is self._left[-1][1] else {})})


def write(path: str, note: dict[str, Any]) -> None:
    """Replaces a note; where that can't be done the launcher is gone, and its folder with it."""
    hidden = path + ".new"
    try:
        with open(hidden, "w", encoding="utf-8") as file:
            json.dump(note, file)
        os.replace(hidden, path)
    except OSError:
        pass

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


class Note:
    """One process's RPC, from init_rpc on."""

    def __init__(self, path: str, content: dict[str, Any]) -> None:
        self._path = path
        self._content = content
        self._pid = os.getpid()
        self._write()

    def add(self, **content: Any) -> None:
        """Says more, such as what was counted; a forked child says nothing in its parent's name."""
        if os.getpid() == self._pid:
            self._content.update(content)
            self._write()

    def _write(self) -> None:
        hidden = self._path + ".new"
        try:
            with open(hidden, "w", encoding="utf-8") as file:
                json.dump(self._content, file)
            os.replace(hidden, self._path)
        except OSError:
            pass  # the launcher is gone, and its folder with it; the job goes on


class Notes:
    """The notes of this process and of those that it forks."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._pid = 0
        self._open: list[Note] = []
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
                why = reason(agent)
                self.started(agent, recorded=why is None, why=why)

        api._init_rpc_states = _init_rpc_states

    def started(self, agent: Any, *, recorded: bool = True, why: str | None = None) -> Note:
        """RPC has started in this process, with this agent."""
        info = agent.get_worker_info()
        return self._new({"name": info.name, "id": info.id, "recorded": recorded, "why": why})

    def unrecorded(self, why: str) -> Note:
        """This process would have used RPC, and can't be recorded."""
        return self._new({"name": None, "id": None, "recorded": False, "why": why})

    def at_end(self, counters: Callable[[], dict[str, Any]]) -> None:
        """What to add when the process ends."""
        self._counters = counters

    def _new(self, content: dict[str, Any]) -> Note:
        if self._pid != os.getpid():  # the first one, or a fork of a process that had some
            self._pid, self._open = os.getpid(), []
            # not atexit, which children of multiprocessing do not run
            from multiprocessing.util import Finalize

            Finalize(None, self._end, exitpriority=-100)
        torch = getattr(sys.modules.get("torch"), "__version__", None)
        number = 0
        while os.path.exists(self._path(number)):
            number += 1
        version = None if torch is None else str(torch)
        note = Note(self._path(number), {"pid": os.getpid(), "torch": version, **content})
        self._open.append(note)
        return note

    def _path(self, number: int) -> str:
        return os.path.join(self._folder, f"{os.getpid()}-{number}.json")

    def _end(self) -> None:
        counted = {} if self._counters is None else self._counters()
        for note in self._open:
            note.add(ended="clean", **(counted if note is self._open[-1] else {}))

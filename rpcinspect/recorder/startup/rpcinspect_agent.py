"""Recording by the agent: torch gets one that also records wherever it would make a TensorPipe agent.

In: the freshly imported `torch.distributed.rpc`; settings `output`, `library`, `torch` (the release that it
was built for), `tensors`, `when_full`, `queue_bytes`; those of a command have `queues` (a folder for queue
files), `failed_mark` and `launcher`, too. Out: the package, with a stand-in for its `TensorPipeAgent`, which
backend_registry.py looks up each time that it makes an agent. A process that can't be recorded gets torch's
own; its note says why.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import os
import threading
import time
from typing import Any

NAME = "rpcinspect_agent_native"
SMALL_BYTES = 4096
"""Of a storage that is recorded with `--tensors small`."""
STORAGE_BYTES = {"none": 0, "small": SMALL_BYTES, "all": -1}
ARGUMENTS = ("store", "name", "rank", "world_size")
"""The first ones of torch's agent."""
COUNTERS = ("messages", "bytes", "dropped", "failed")


class Recorders:
    """What records in this process: one for each agent that it makes, one after the other."""

    def __init__(self, rpc: Any, settings: dict[str, Any]) -> None:
        self._rpc = rpc
        self._settings = settings
        self._made: list[Any] = []
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self.agent = rpc.TensorPipeAgent
        """torch's own class."""
        self.refused: str | None = None
        """Why the last one that was made is torch's own."""

    def make(self, *args: Any, **keywords: Any) -> Any:
        """An agent; torch's own where it can't be recorded."""
        self.refused = None
        try:
            native, recorder = self._recorder(args, keywords)
        except Exception as error:
            self.refused = one_line(error)
            return self.agent(*args, **keywords)
        return native.make_agent(recorder, *args, **keywords)

    def why_not(self, agent: Any) -> str | None:
        """Why an agent that was started is not recorded; None for one that is."""
        if isinstance(agent, self.agent):
            return self.refused
        return f"its backend is {type(agent).__name__}, not TensorPipe"

    def job(self) -> str | None:
        """What the log calls the group of the last agent that was made; None where that is torch's own."""
        mine = self._mine()
        return mine[-1].job() if mine and self.refused is None else None

    def _recorder(self, args: Any, keywords: Any) -> Any:
        import torch

        settings = self._settings
        if settings["torch"] != torch.__version__:
            raise RuntimeError(
                f"the agent was built for torch {settings['torch']}, this is {torch.__version__} "
                "(another environment than that of the command)"
            )
        native = load(settings["library"])
        named = dict(zip(ARGUMENTS, args))  # noqa: B905 - runs in Python 3.8
        named.update(keywords)
        is_static = bool(named.get("world_size"))
        with self._lock:
            if self._pid != os.getpid():  # a fork: what its parent has made is the parent's
                self._pid, self._made = os.getpid(), []
            recorder = native.make_recorder(
                name=named["name"],
                log=os.fsencode(settings["output"]),  # which may be no text
                queue_file=os.fsencode(self._queue_file(len(self._made))),
                failed_mark=os.fsencode(settings.get("failed_mark") or ""),
                queue_bytes=settings["queue_bytes"],
                wait_when_full=settings["when_full"] == "wait",
                storage_bytes=STORAGE_BYTES[settings["tensors"]],
                # the members of a group without a size come and go: no digest of them is the same for all
                job="" if is_static else dynamic_job(self._rpc, named["store"]),
                way=0 if is_static else int(time.time() * 1000),
            )
            self._made.append(recorder)
        return native, recorder

    def _queue_file(self, number: int) -> str:
        folder = self._settings.get("queues")
        return os.path.join(folder, f"{os.getpid()}-{number}.queue") if folder else ""

    def remove(self) -> None:
        """Puts torch's own class of agents back."""
        self._rpc.TensorPipeAgent = self.agent

    def flush(self) -> None:
        """Writes everything until now into the log."""
        for recorder in self._mine():
            recorder.flush()

    def close(self) -> dict[str, Any]:
        """Ends all recorders; returns their counts. A forked child ends nothing of its parent."""
        for recorder in self._mine():
            recorder.close()
        counters = self.counters()
        if self._mine():
            self._tidy_up()
        return counters

    def _tidy_up(self) -> None:
        """Removes the queue files after the launcher was killed, which leaves nobody else to read or remove
        them."""
        launcher = self._settings.get("launcher")
        if launcher is None or is_there(launcher):
            return
        with contextlib.suppress(OSError):
            for number in range(len(self._made)):
                os.unlink(self._queue_file(number))
            os.rmdir(self._settings["queues"])

    def counters(self) -> dict[str, Any]:
        """The sum, and why recording ended early, if it did."""
        counted = [recorder.counters() for recorder in self._mine()]
        total: dict[str, Any] = {name: sum(each[name] for each in counted) for name in COUNTERS}
        failures = [each["failure"] for each in counted if each["failure"]]
        return {**total, "failure": failures[0]} if failures else total

    def _mine(self) -> list[Any]:
        return self._made if self._pid == os.getpid() else []


def install(rpc: Any, settings: dict[str, Any], notes: Any) -> None:
    """Puts the stand-in in place, and has notes left of each process."""
    recorders = stand_in_for(rpc, settings)
    notes.follow(rpc, recorders.why_not, recorders.job)
    notes.at_end(recorders.close)


def stand_in_for(rpc: Any, settings: dict[str, Any]) -> Recorders:
    """Puts the stand-in in place."""
    if not rpc.is_available() or not hasattr(rpc, "TensorPipeAgent"):
        raise RuntimeError("this torch was built without RPC")
    recorders = Recorders(rpc, settings)
    rpc.TensorPipeAgent = stand_in(recorders)
    return recorders


def stand_in(recorders: Recorders) -> Any:
    """Returns a class that makes recording agents and passes for torch's own in `isinstance`."""
    original = recorders.agent

    class Standing(type(original)):  # type: ignore[misc]
        def __call__(cls, *args: Any, **keywords: Any) -> Any:
            return recorders.make(*args, **keywords)

        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, original)

        def __subclasscheck__(cls, subclass: Any) -> bool:
            return issubclass(subclass, original)

    names = {
        "__module__": original.__module__,
        "__doc__": original.__doc__,
        "__qualname__": original.__qualname__,
    }
    return Standing(original.__name__, (original,), names)


def load(path: str) -> Any:
    """The extension; once in a process."""
    if path not in LOADED:
        spec = importlib.util.spec_from_file_location(NAME, path)
        assert spec is not None
        assert spec.loader is not None
        LOADED[path] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(LOADED[path])
    return LOADED[path]


LOADED: dict[str, Any] = {}


def dynamic_job(rpc: Any, store: Any) -> str:
    """A name for a group without a size: what its members have in common are store and number of the call."""
    store = getattr(store, "underlying_store", store)
    places = (getattr(store, key, None) for key in ("port", "path"))
    place = next((place for place in places if place is not None), "dynamic")
    return f"{place}/{getattr(rpc, '_init_counter', 0)}"


def is_there(pid: int) -> bool:
    """Whether a process still runs; a zombie does not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (OSError, IndexError):
        return False


def one_line(error: BaseException) -> str:
    """Returns the text of an error in one line."""
    text = " ".join(str(error).split())[:300]
    return text or type(error).__name__


def torch_rpc() -> Any:
    """Imports torch's RPC, in a process that has not done so yet."""
    import torch.distributed.rpc as rpc

    return rpc

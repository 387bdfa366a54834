"""What happens to a pickle in a live worker, done in the oracle's fork while everything is watched.

In: jobs. Out: for each, what happened that the plan did not name (see `watch` for how it is seen). A pickle
is loaded by torch's own `deserialize`, with CPython's C unpickler and its Python one, both hooked, then with
the untouched C one; its function is called as torch calls it; what came of it is then used in the usual
ways.
"""

from __future__ import annotations

import codecs
import pickle
import re
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed.rpc as rpc
from torch.distributed.rpc import internal

from tests.fuzz.model.jobs import Fault, Job, Seen
from tests.fuzz.model.places import Places
from tests.fuzz.model.reach import reach
from tests.fuzz.model.use import use
from tests.fuzz.model.watch import Stop, Watching
from tests.fuzz.model.wire_worker import WireWorker

HERE = Path(__file__).parent
MODULES = """
    job canary collections copyreg datetime decimal fractions functools ipaddress pathlib types uuid
    numpy numpy._core.multiarray numpy._core.numeric numpy._core._exceptions numpy.core.multiarray
    numpy.core.numeric torch.nn.parameter torch.distributed.nn.api.remote_module torch.optim
    torch.distributed.rpc.rref_proxy torch.distributed.optim.optimizer torch.distributed.rpc.api
    torch.distributed.optim
"""
OBJECTS: tuple[Callable[[], Any], ...] = (
    lambda: sys.modules["job"].Item(),
    lambda: sys.modules["job"].Net(),
    lambda: torch.nn.Linear(2, 3),
)
"""What is behind the RRefs 0, 1 and 2 of this worker, as `verdicts` tells the gate."""


def prepare() -> None:
    """Imports what a worker has imported, and what showing values imports when it is first done."""
    sys.path += [str(HERE / "src"), str(HERE / "elsewhere")]
    for name in MODULES.split():
        __import__(name)
    for codec in ("unicode_escape", "raw_unicode_escape", "latin1", "ascii"):
        codecs.lookup(codec)
    sparse, parameter = torch.ones(2).to_sparse(), torch.nn.Parameter(torch.ones(2))
    for value in (parameter, np.ones(2), np.float64(1), np.array([None]), KeyError("x"), sparse):
        use(value)


class Worker:
    """A member of a group of its own, as live workers are."""

    def __init__(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            store = Path(folder, "store")
            options = rpc.TensorPipeRpcBackendOptions(
                init_method=f"file://{store}",
                num_worker_threads=4,
                rpc_timeout=2,
                _transports=["uv"],
                _channels=["basic"],
            )
            rpc.init_rpc("w0", rank=0, world_size=1, rpc_backend_options=options)
            address = re.search(rb"uv://[0-9.]+:\d+", store.read_bytes())
        assert address is not None
        self._wire = WireWorker(address[0].decode())
        self._rrefs = [rpc.RRef(made()) for made in OBJECTS]
        for number, rref in enumerate(self._rrefs):
            assert rref._serialize()[:3] == (0, 0, number)
        warnings.simplefilter("ignore")  # telling of one opens files
        self._places = Places()
        files = ("watch", "worker", "reach", "oracle", "jobs", "permissions")
        self._watching = Watching(
            frozenset({_call.__code__}), frozenset(str(HERE / f"{name}.py") for name in files)
        )
        self._unpicklers = _unpicklers(self._watching)

    def changed(self) -> tuple[Fault, ...]:
        """What all jobs together have changed of what has a name; it takes too long for each of them."""
        return self._places.changed()

    def examine(self, job: Job) -> Seen:
        """Everything that a live worker would do with it; stops at the first fault."""
        if job.sort.isdigit():
            return self._wire.examine(job)
        notes: set[str] = set()
        faults: list[Fault] = []
        loaded = False
        for kind in self._unpicklers:
            watch = self._watching.begin(job)
            try:
                done = self._once(job, kind)
                loaded = loaded or (done and kind == "C")
            except Stop:
                faults = watch.faults
            finally:
                self._watching.pause()
            notes |= watch.notes
            if faults:
                break
        return Seen(tuple(faults), tuple(sorted(notes)), loaded)

    def _once(self, job: Job, kind: str) -> bool:
        """With one unpickler; whether it came to the end."""
        watching = self._watching
        try:
            value = self._load(job.data, kind)
        except Stop:
            raise
        except BaseException:
            return False
        request = job.sort == "request"
        reach(watching.current, value, getattr(value, "func", None) if request else None)
        if kind == "plain":
            watching.resume("call")
            try:
                _call(value) if request else internal._handle_exception(value)
            except Stop:
                raise
            except BaseException:
                pass  # as the job's own errors
            watching.resume("use")
            use((value.args, value.kwargs) if isinstance(value, internal.PythonUDF) else value)
        return True

    def _load(self, data: bytes, kind: str) -> Any:
        """By torch's own code, which calls the unpickler of that kind."""
        internal._unpickler = self._unpicklers[kind]
        table = internal._thread_local_tensor_tables
        self._watching.resume("load")
        try:
            return internal.deserialize(data, _tensors())
        finally:
            self._watching.pause()
            if hasattr(table, "recv_tables"):
                del table.recv_tables


def _unpicklers(watching: Watching) -> dict[str, Any]:
    """CPython's two, asking the job's watch for every name, and the C one as it is."""

    class HookedC(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            return watching.current.find(module, name, super().find_class)

    class HookedPython(pickle._Unpickler):  # type: ignore[name-defined,misc]
        def find_class(self, module: str, name: str) -> Any:
            return watching.current.find(module, name, super().find_class)

    return {"C": HookedC, "Python": HookedPython, "plain": pickle.Unpickler}


def _tensors() -> list[torch.Tensor]:
    """Those that pickles find by their numbers."""
    return [
        torch.arange(6, dtype=torch.float32).reshape(2, 3),
        torch.tensor([0, 1, 5]),
        torch.ones(2, requires_grad=True),
        torch.zeros(4, dtype=torch.uint8),
        torch.tensor([[0, 1 << 40]]),
        torch.tensor([1.0, 2.0]),
    ]


def _call(value: Any) -> None:
    """As `_run_function` of torch does."""
    if isinstance(value, AttributeError):
        raise value
    value.func(*value.args, **value.kwargs)

"""What a worker writes down of the calls that it makes and serves, while it works.

In: the functions of torch.distributed.rpc that calls go through; `install` wraps them before init_rpc. Out:
truth-WORKER.jsonl in the folder of the run, an object per line:

    call      a call or a fetch begins: `call`, `kind`, `to`, `function`, `serving` (the `run` during which it
              was made; null: the program's own), `label`, `begin_ns` and what it carries
    answered  `call`, `end_ns`
    run       a function begins to run for a caller: `run`, `function`, `begin_ns` and what it got
    ran       `run`, `end_ns`; `late` where it returned a future, so that the answer comes later
    dropped   a call that was left out of this run: `label`
    follows   a call made where nothing can be wrapped (TorchScript): what it carries, and what the request
              carries that it serves

What a call carries: `tensors` (the hash of each, as `decode` gives it), `rrefs`, `forks` (ids). Nothing of
this is sent, and nothing here reads a capture.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import hashlib
import itertools
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed.rpc as rpc
from torch.distributed.rpc import api as rpc_api
from torch.distributed.rpc import internal as rpc_internal

Json = dict[str, Any]

OWN = tuple(f"torch.distributed.rpc.{module}." for module in ("api", "_utils", "backend_registry"))
"""Where the functions of the agent's own calls are; all but one of them."""
TYPE_QUERY = "torch.distributed.rpc.api._rref_typeof_on_owner"

_serving: contextvars.ContextVar[int | None] = contextvars.ContextVar("serving", default=None)
_label: contextvars.ContextVar[str | None] = contextvars.ContextVar("label", default=None)
_ID = re.compile(r"created_on=(\d+), local_id=(\d+)")


class TruthLog:
    """A worker's file; its lines are whole also if the worker is killed."""

    def __init__(self, folder: Path, worker: str) -> None:
        self.worker = worker
        self.numbers = itertools.count()
        self._lock = threading.Lock()
        self._file = (folder / f"truth-{worker}.jsonl").open("a")

    def write(self, event: str, **fields: Any) -> None:
        line = json.dumps({"event": event, "worker": self.worker, **fields})
        with self._lock:
            self._file.write(line + "\n")
            self._file.flush()


_log: TruthLog | None = None


def write(event: str, **fields: Any) -> None:
    """Write a line of this worker's."""
    assert _log is not None
    _log.write(event, **fields)


@contextlib.contextmanager
def labelled(label: str) -> Iterator[None]:
    """Name the calls that are made here, for the log only."""
    token = _label.set(label)
    try:
        yield
    finally:
        _label.reset(token)


# --- what calls carry ---------------------------------------------------------------------------------------


def sha256_of(tensor: torch.Tensor) -> str:
    """Hash the elements in row-major order, as the contract says."""
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return hashlib.sha256(flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"").hexdigest()


def carried(value: Any) -> Json:
    """Tensors and RRefs of the arguments of a call, in order."""
    found: Json = {"tensors": [], "rrefs": [], "forks": []}
    _collect(value, found)
    return found


def _collect(value: Any, found: Json) -> None:
    if isinstance(value, torch.Tensor):
        if value.layout is torch.strided:
            found["tensors"].append(sha256_of(value))
    elif isinstance(value, torch._C._distributed_rpc.PyRRef):
        ids = [[int(a), int(b)] for a, b in _ID.findall(str(value))]
        found["rrefs"].append(ids[0])
        found["forks"] += ids[1:]
    elif isinstance(value, (list, tuple)):
        for part in value:
            _collect(part, found)
    elif isinstance(value, dict):
        for part in value.values():
            _collect(part, found)


def name_of(function: Any) -> str:
    function = getattr(function, "_wrapped_async_rpc_function", function)
    if isinstance(function, torch.jit.ScriptFunction):
        return str(function.qualified_name)
    return f"{getattr(function, '__module__', None)}.{getattr(function, '__qualname__', function)}"


def follows(worker: str, function: str, sent: Any, served: str, got: Any) -> None:
    """Say of a call that TorchScript makes which request it serves.

    A `worker` that serves `served` with what is `got` calls `function` with what is `sent`.
    """
    write(
        "follows",
        by=worker,
        function=function,
        **carried(sent),
        served={"function": served, **carried(got)},
    )


# --- calls that this worker makes ---------------------------------------------------------------------------


def _begin(kind: str, to: Any, function: str, carries: Json) -> int:
    assert _log is not None
    call = next(_log.numbers)
    write(
        "call",
        call=call,
        kind=kind,
        to=to if isinstance(to, str) else to.name,
        function=function,
        serving=_serving.get(),
        label=None if function == TYPE_QUERY else _label.get(),
        **carries,
        begin_ns=time.time_ns(),
    )
    return call


def _answered(call: int, _future: Any = None) -> None:
    write("answered", call=call, end_ns=time.time_ns())


def _invoke(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def logged(
        to: Any, function: Any, kind: Any, args: Any = None, kwargs: Any = None, *rest: Any, **more: Any
    ) -> Any:
        name = name_of(function)
        if name.startswith(OWN) and name != TYPE_QUERY:
            return original(to, function, kind, args, kwargs, *rest, **more)
        call = _begin("call", to, name, carried([args, kwargs]))
        future = original(to, function, kind, args, kwargs, *rest, **more)
        future.add_done_callback(functools.partial(_answered, call))
        return future

    return logged


def _remote(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def logged(to: Any, function: Any, args: Any = None, kwargs: Any = None, *rest: Any, **more: Any) -> Any:
        call = _begin("remote", to, name_of(function), carried([args, kwargs]))
        rref = original(to, function, args, kwargs, *rest, **more)
        rref._get_future().add_done_callback(functools.partial(_answered, call))
        return rref

    return logged


def _to_here(original: Callable[..., Any]) -> Callable[..., Any]:
    def logged(self: Any, *args: Any, **more: Any) -> Any:
        if self.is_owner():
            return original(self, *args, **more)
        call = _begin("fetch", self.owner(), "to_here", carried(self))
        value = original(self, *args, **more)
        _answered(call)
        return value

    return logged


# --- calls that this worker serves --------------------------------------------------------------------------


def _run(original: Callable[..., Any]) -> Callable[..., Any]:
    def logged(udf: Any) -> Any:
        name = "" if isinstance(udf, AttributeError) else name_of(udf.func)
        if not name or (name.startswith(OWN) and name != TYPE_QUERY):
            return original(udf)
        assert _log is not None
        run = next(_log.numbers)
        write("run", run=run, function=name, **carried([udf.args, udf.kwargs]), begin_ns=time.time_ns())
        token = _serving.set(run)
        try:
            result = original(udf)
        finally:
            _serving.reset(token)
        write("ran", run=run, late=isinstance(result, torch._C.Future), end_ns=time.time_ns())
        return result

    return logged


def _then(original: Callable[..., Any]) -> Callable[..., Any]:
    """A callback works for whom the code worked that chained it."""

    def kept(self: Any, callback: Callable[..., Any]) -> Any:
        context = contextvars.copy_context()
        return original(self, lambda future: context.run(callback, future))

    return kept


def install(folder: Path, worker: str) -> None:
    """Wrap what calls go through; before init_rpc, at which C++ keeps some of these functions."""
    global _log
    _log = TruthLog(folder, worker)
    rpc_api._invoke_rpc = _invoke(rpc_api._invoke_rpc)
    rpc_api.remote = rpc.remote = _remote(rpc_api.remote)
    handle = torch._C._distributed_rpc.PyRRef
    handle.to_here = _to_here(handle.to_here)
    rpc_internal._run_function = _run(rpc_internal._run_function)
    torch._C.Future.then = _then(torch._C.Future.then)
